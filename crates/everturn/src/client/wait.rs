//! Waiting for an instance to become something.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Client, ClientError};

impl Client {
    /// Looks until `look` finds something, after every change of the instance and at least every `look_again`.
    ///
    /// There is one look whatever the timeout. After it neither waiting nor looking goes beyond the deadline.
    pub(super) async fn wait_for<T, Look>(
        &self,
        instance: &str,
        timeout: Duration,
        look_again: Duration,
        look: impl Fn() -> Look,
    ) -> Result<T, ClientError>
    where
        Look: Future<Output = Result<Option<T>, ClientError>>,
    {
        // A timeout beyond the end of time is none.
        let deadline = Instant::now().checked_add(timeout);
        // Made before the first look, so that no change falls in between.
        let mut watch = self.store.watch_instance(instance);
        if let Some(found) = look().await? {
            return Ok(found);
        }
        let looking = async {
            loop {
                watch.changed(look_again).await;
                if let Some(found) = look().await? {
                    return Ok(found);
                }
            }
        };
        match deadline {
            Some(deadline) => timeout_at(deadline, looking).await.unwrap_or(Err(ClientError::Timeout)),
            None => looking.await,
        }
    }
}
