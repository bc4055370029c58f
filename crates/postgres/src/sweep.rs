//! `sweep`: expired sessions are deleted, and messages for instances that were never started are dead-lettered.

use everturn_provider::ProviderError;
use everturn_provider::store::{Sweep, Swept};

use crate::provider::PostgresProvider;
use crate::sessions::DELETE_EXPIRED;
use crate::unknown_instance;

/// Deletes expired sessions without queued activities, and dead-letters messages that have waited too long for a start.
pub(crate) async fn sweep(provider: &PostgresProvider, sweep: &Sweep) -> Result<Swept, ProviderError> {
    provider.settled().await?;
    let (test_now_ms, dead_letter_after) = (provider.test_now_ms(), sweep.dead_letter_after);
    let swept = provider.readers().transaction("sweep", async move |session| {
        let deleted = session.execute(DELETE_EXPIRED, &[&test_now_ms]).await?;
        let swept = Swept::new(usize::try_from(deleted).unwrap_or(usize::MAX));
        Ok(match dead_letter_after {
            Some(waited) => swept.with_dead_letters(
                unknown_instance::dead_letter_unstarted(session, waited, test_now_ms).await?,
            ),
            None => swept,
        })
    });
    swept.await
}
