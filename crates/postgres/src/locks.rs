//! Lock tokens: how they are made and checked.

use everturn_provider::ProviderError;

/// The token of a lock: its row, and a random number that cannot be guessed. Only the number makes it valid.
pub(crate) fn token(row: i64, random: u128) -> String {
    format!("{row}-{random:032x}")
}

/// The row of a token; `None` if the token is not from this provider.
pub(crate) fn row_of(token: &str) -> Option<i64> {
    token.rsplit_once('-')?.0.parse().ok()
}

/// The error for a token that fits no row.
pub(crate) fn unknown_token(token: &str) -> ProviderError {
    ProviderError::lock_lost("", format!("Invalid lock token {token}"))
}

/// The lock in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredLock {
    pub(crate) token: Option<String>,
    pub(crate) until_ms: Option<i64>,
    pub(crate) lock_ms: Option<i64>,
}

impl StoredLock {
    /// Fails unless `token` held the lock when the caller called. The time of the call counts, not the time at which the server
    /// runs it: a slow server costs no holder its lock, and a new holder changes the token.
    pub(crate) fn check(&self, token: &str, called_ms: i64) -> Result<(), ProviderError> {
        if self.token.as_deref() != Some(token) {
            return Err(unknown_token(token));
        }
        if self.until_ms.is_some_and(|until_ms| called_ms < until_ms) {
            return Ok(());
        }
        Err(ProviderError::lock_lost("", format!("lock expired (lock_token {token})")))
    }
}
