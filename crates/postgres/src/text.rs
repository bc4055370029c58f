//! Texts that the server cannot hold.

use everturn_provider::ProviderError;

/// Refuses texts with a NUL character, which a column of type `text` cannot hold. Payloads are stored as JSON, which has none.
pub(crate) fn check_texts<'a>(
    operation: &str,
    texts: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<(), ProviderError> {
    for (what, text) in texts {
        if text.is_some_and(|text| text.contains('\0')) {
            let message = format!("{what} contains a NUL character, which PostgreSQL cannot store");
            return Err(ProviderError::permanent(operation, message));
        }
    }
    Ok(())
}
