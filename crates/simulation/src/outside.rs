//! The outside world: clients that start, signal, feed, cancel and wait, and remember what they were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn::{Client, ClientError, OrchestrationStatus};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::interpreter::Stage;
use crate::life::Life;
use crate::names;
use crate::observer::Errand;
use crate::plan::Root;
use crate::scene::Scene;
use crate::stormy_store::{Caller, Seat, StormyStore};

/// A client gives up waiting after this long, and asks again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something a client was told is done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Started { instance: String },
    Signalled { instance: String, name: String },
    Enqueued { instance: String, queue: String, data: String },
    Cancelled { instance: String, at: Duration },
}

impl Promise {
    /// Whom it is about.
    pub(crate) fn instance(&self) -> &str {
        match self {
            Self::Started { instance }
            | Self::Signalled { instance, .. }
            | Self::Enqueued { instance, .. }
            | Self::Cancelled { instance, .. } => instance,
        }
    }
}

/// What clients were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) promises: Vec<Promise>,
    pub(crate) outcomes: BTreeMap<String, OrchestrationStatus>,
}

/// All clients together.
#[derive(Clone)]
pub(crate) struct Outside {
    scene: Arc<Scene>,
    client: Client,
    told: Arc<Mutex<Told>>,
}

impl Outside {
    pub(crate) fn new(scene: Arc<Scene>) -> Self {
        let caller = Caller { name: "client".to_owned(), clock: None, freeze_ms: 0 };
        let life = Arc::new(Life::new());
        let store = StormyStore::new(Arc::clone(&scene), caller, life, Seat::Clients);
        Self { scene, client: Client::new(Arc::new(store)), told: Arc::default() }
    }

    /// Takes out what clients were told.
    pub(crate) fn take_told(&self) -> Told {
        std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn promised(&self, promise: Promise) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).promises.push(promise);
    }

    fn promised_cancel(&self, instance: &str) {
        let at = self.scene.moment().monotonic;
        self.promised(Promise::Cancelled { instance: instance.to_owned(), at });
    }

    /// Starts an instance and waits for its end.
    pub(crate) fn drive(&self, root: Root) {
        let (outside, under_way) = (self.clone(), self.scene.begin());
        tokio::spawn(async move {
            sleep(Duration::from_millis(root.start_after_ms)).await;
            let input = Stage::of(root.program.clone()).encode();
            let start = || outside.client.start_orchestration(&root.id, names::ORCHESTRATION, &input);
            outside.until_done(start).await;
            outside.promised(Promise::Started { instance: root.id.clone() });
            if let Some(cancel_after_ms) = root.cancel_after_ms {
                sleep(Duration::from_millis(cancel_after_ms)).await;
                outside.until_done(|| outside.client.cancel_instance(&root.id, names::CANCEL_REASON)).await;
                outside.promised_cancel(&root.id);
            }
            if outside.one_in(3) {
                // A start that comes twice starts nothing twice, even when the first has long ended.
                sleep(outside.scene.some_ms(0, 20_000)).await;
                outside.until_done(start).await;
            }
            outside.wait_for_end(&root.id).await;
            drop(under_way);
        });
    }

    async fn wait_for_end(&self, instance: &str) {
        loop {
            match self.client.wait_for_orchestration(instance, PATIENCE).await {
                Ok(status) => {
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.outcomes.insert(instance.to_owned(), status);
                    return;
                }
                Err(error) if error.is_retryable() => sleep(self.scene.some_ms(1, 50)).await,
                Err(error) => return self.scene.violated(format!("waiting for {instance}: {error}")),
            }
        }
    }

    /// Runs errands, as they come, side by side.
    pub(crate) async fn run_errands(self, mut errands: mpsc::UnboundedReceiver<Errand>) {
        while let Some(errand) = errands.recv().await {
            let (outside, under_way) = (self.clone(), self.scene.begin());
            tokio::spawn(async move {
                outside.run_errand(errand).await;
                drop(under_way);
            });
        }
    }

    async fn run_errand(&self, errand: Errand) {
        let twice = self.one_in(4);
        match errand {
            Errand::Signal { instance, name } => {
                sleep(self.scene.some_ms(0, 500)).await;
                let data = names::signal_data(&name);
                let raise = || self.client.raise_event(&instance, &name, &data);
                self.until_done(raise).await;
                // Who no longer waits may have ended when it comes.
                if !names::is_casual(&name) {
                    self.promised(Promise::Signalled { instance: instance.clone(), name: name.clone() });
                }
                self.again(twice, raise).await;
            }
            Errand::Messages { instance, queue, count } => {
                for number in 0..count {
                    sleep(self.scene.some_ms(0, 1_500)).await;
                    let data = number.to_string();
                    let enqueue = || self.client.enqueue_event(&instance, &queue, &data);
                    self.until_done(enqueue).await;
                    let promise = Promise::Enqueued {
                        instance: instance.clone(),
                        queue: queue.clone(),
                        data: data.clone(),
                    };
                    self.promised(promise);
                    self.again(twice, enqueue).await;
                }
            }
            Errand::Cancel { instance } => {
                sleep(self.scene.some_ms(0, 500)).await;
                let cancel = || self.client.cancel_instance(&instance, names::CANCEL_REASON);
                self.until_done(cancel).await;
                self.promised_cancel(&instance);
                self.again(twice, cancel).await;
            }
        }
    }

    /// Does once more what was done already.
    async fn again<F>(&self, twice: bool, call: impl Fn() -> F)
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        if twice {
            sleep(self.scene.some_ms(0, 300)).await;
            self.until_done(call).await;
        }
    }

    /// Makes a call until it says that it is done.
    async fn until_done<F>(&self, call: impl Fn() -> F)
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        while let Err(error) = call().await {
            if !error.is_retryable() {
                return self.scene.violated(format!("a client was refused: {error}"));
            }
            sleep(self.scene.some_ms(1, 50)).await;
        }
    }

    fn one_in(&self, times: u64) -> bool {
        self.scene.books().sky.chance().one_in(times)
    }
}
