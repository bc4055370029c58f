//! Removing what has expired from the store: idle sessions, and messages for instances that were never started.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::limits::MAX_DEAD_LETTERS_PER_SWEEP;
use everturn_provider::store::{Feature, Store, Sweep, Swept};
use tokio::time::sleep;

use super::observability::MetricsProvider;
use super::options::RuntimeOptions;

/// Sweeps the store at an interval, until this future is dropped.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    metrics: Option<Arc<MetricsProvider>>,
    options: RuntimeOptions,
) {
    let mut sweep = Sweep::new(options.session_idle_timeout);
    if store.supports(Feature::DeadLetters) {
        sweep = sweep.with_dead_letter_after(options.dead_letter_after);
    }
    loop {
        // An interval of zero would never yield.
        sleep(options.session_cleanup_interval.max(Duration::from_millis(1))).await;
        sweep_all(store.as_ref(), &sweep, metrics.as_deref()).await;
    }
}

/// Sweeps until no message is left to be dead-lettered: each sweep takes a bounded number.
async fn sweep_all(store: &dyn Store, sweep: &Sweep, metrics: Option<&MetricsProvider>) {
    loop {
        let swept = match store.sweep(sweep).await {
            Ok(swept) => swept,
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::worker", %error,
                    "sweeping idle sessions and unstarted instances failed; retrying after the interval");
                return;
            }
        };
        report(&swept, metrics);
        if swept.dead_letters.len() < MAX_DEAD_LETTERS_PER_SWEEP {
            return;
        }
    }
}

fn report(swept: &Swept, metrics: Option<&MetricsProvider>) {
    for letter in &swept.dead_letters {
        tracing::warn!(target: "everturn::runtime", instance_id = %letter.instance, kind = %letter.kind,
            "message for an instance that was never started was dead-lettered; check the id that its sender used");
    }
    if let Some(metrics) = metrics {
        metrics.record_messages_dead_lettered(swept.dead_letters.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use everturn_provider::store::{DeadLetter, StoreLayer};
    use everturn_provider::{MemoryProvider, ProviderError, store_of};

    use super::*;

    /// Answers each sweep with so many dead letters, the last number first.
    struct ScriptedSweeps {
        inner: Arc<dyn Store>,
        dead_letters: Mutex<Vec<usize>>,
    }

    impl StoreLayer for ScriptedSweeps {
        fn inner(&self) -> &dyn Store {
            &*self.inner
        }

        fn supports(&self, feature: Feature) -> bool {
            self.inner.supports(feature)
        }

        async fn sweep(&self, _sweep: &Sweep) -> Result<Swept, ProviderError> {
            let next = self.dead_letters.lock().unwrap().pop();
            let count = next.ok_or_else(|| ProviderError::permanent("sweep", "one sweep too many"))?;
            Ok(Swept::new(0).with_dead_letters(vec![DeadLetter::new("ghost", "ExternalRaised"); count]))
        }
    }

    #[tokio::test]
    async fn the_store_is_swept_again_as_long_as_it_takes_as_many_messages_as_it_can() {
        let dead_letters = Mutex::new(vec![1, MAX_DEAD_LETTERS_PER_SWEEP - 1, MAX_DEAD_LETTERS_PER_SWEEP]);
        let store = ScriptedSweeps { inner: store_of(Arc::new(MemoryProvider::new())), dead_letters };
        sweep_all(&store, &Sweep::new(Duration::ZERO), None).await;
        assert_eq!(*store.dead_letters.lock().unwrap(), [1], "two sweeps: a full one, and the one after it");
    }
}
