//! Clients that start, signal, feed, cancel and wait, and record the answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn::providers::WorkItem;
use everturn::providers::store::{NewMessage, Submission};
use everturn::{Client, ClientError, OrchestrationStatus};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::faulty_store::FaultyStore;
use crate::interpreter::Stage;
use crate::names;
use crate::plan::Root;
use crate::process::Process;
use crate::process_faults::ProcessFaults;
use crate::recorded_store::RecordedStore;
use crate::recorder::ClientRequest;
use crate::scenario::Scenario;
use crate::world_store::OpenedStore;

/// A client stops waiting after this long, and asks again.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Something that was acknowledged to a client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Acknowledged {
    Started { instance: String },
    Signalled { instance: String, name: String },
    Enqueued { instance: String, queue: String, data: String },
    Cancelled { instance: String, at: Duration },
}

impl Acknowledged {
    /// The instance it is about.
    pub(crate) fn instance(&self) -> &str {
        match self {
            Self::Started { instance }
            | Self::Signalled { instance, .. }
            | Self::Enqueued { instance, .. }
            | Self::Cancelled { instance, .. } => instance,
        }
    }
}

/// The answers that clients got.
#[derive(Debug, Default)]
pub(crate) struct ClientAnswers {
    pub(crate) acknowledged: Vec<Acknowledged>,
    pub(crate) outcomes: BTreeMap<String, OrchestrationStatus>,
}

/// All clients together.
#[derive(Clone)]
pub(crate) struct Clients {
    scenario: Arc<Scenario>,
    /// The client, and the store as it has it open: another one after each power cut.
    client: Arc<Mutex<(Arc<dyn OpenedStore>, Client)>>,
    answers: Arc<Mutex<ClientAnswers>>,
}

impl Clients {
    pub(crate) fn new(scenario: Arc<Scenario>) -> Self {
        let opened = scenario.clients();
        let client = open_client(&scenario, &opened);
        Self { scenario, client: Arc::new(Mutex::new((opened, client))), answers: Arc::default() }
    }

    /// The client of the store as it is open now.
    fn client(&self) -> Client {
        let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = self.scenario.clients();
        if !Arc::ptr_eq(&current.0, &opened) {
            let client = open_client(&self.scenario, &opened);
            *current = (opened, client);
        }
        current.1.clone()
    }

    /// Takes out the answers that clients got.
    pub(crate) fn take_answers(&self) -> ClientAnswers {
        std::mem::take(&mut *self.answers())
    }

    fn answers(&self) -> MutexGuard<'_, ClientAnswers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledged(&self, acknowledged: Acknowledged) {
        self.answers().acknowledged.push(acknowledged);
    }

    fn acknowledged_cancel(&self, instance: &str) {
        let at = self.scenario.moment().monotonic;
        self.acknowledged(Acknowledged::Cancelled { instance: instance.to_owned(), at });
    }

    /// Starts an instance and waits for its end.
    pub(crate) fn drive(&self, root: Root) {
        let (clients, under_way) = (self.clone(), self.scenario.begin());
        tokio::spawn(async move {
            if names::is_cancelled_early(&root.id) {
                clients.cancel_early(&root.id).await;
            }
            sleep(Duration::from_millis(root.start_after_ms)).await;
            let input = Stage::of(root.program.clone()).encode();
            let start = || {
                let client = clients.client();
                let (id, input) = (&root.id, &input);
                async move { client.start_orchestration(id, names::ORCHESTRATION, input).await }
            };
            clients.until_done(start).await;
            clients.acknowledged(Acknowledged::Started { instance: root.id.clone() });
            if let Some(cancel_after_ms) = root.cancel_after_ms {
                sleep(Duration::from_millis(cancel_after_ms)).await;
                let cancel = || {
                    let (client, id) = (clients.client(), &root.id);
                    async move { client.cancel_instance(id, names::CANCEL_REASON).await }
                };
                clients.until_done(cancel).await;
                clients.acknowledged_cancel(&root.id);
            }
            if clients.one_in(3) {
                // A second start has no effect, even when the instance has long ended.
                sleep(clients.scenario.some_ms(0, 20_000)).await;
                clients.until_done(start).await;
            }
            clients.wait_for_end(&root.id).await;
            drop(under_way);
        });
    }

    /// Cancels an instance that nothing has started: the one that gets this id later must not be cancelled. The call has no
    /// faults, because one that takes effect late would meet that instance.
    async fn cancel_early(&self, instance: &str) {
        let (instance, reason) = (instance.to_owned(), "too early".to_owned());
        let cancel = Submission::of(NewMessage::from(WorkItem::CancelInstance { instance, reason }));
        while self.scenario.clients_store().submit(&cancel).await.is_err() {
            sleep(self.scenario.some_ms(1, 50)).await;
        }
    }

    async fn wait_for_end(&self, instance: &str) {
        loop {
            match self.client().wait_for_orchestration(instance, WAIT_MAX).await {
                Ok(status) => {
                    self.answers().outcomes.insert(instance.to_owned(), status);
                    return;
                }
                Err(error) if error.is_retryable() => sleep(self.scenario.some_ms(1, 50)).await,
                Err(error) => return self.scenario.violated(format!("waiting for {instance}: {error}")),
            }
        }
    }

    /// Runs requests, as they come, side by side.
    pub(crate) async fn run_requests(self, mut requests: mpsc::UnboundedReceiver<ClientRequest>) {
        while let Some(request) = requests.recv().await {
            let (clients, under_way) = (self.clone(), self.scenario.begin());
            tokio::spawn(async move {
                clients.run_request(request).await;
                drop(under_way);
            });
        }
    }

    async fn run_request(&self, request: ClientRequest) {
        let twice = self.one_in(4);
        match request {
            ClientRequest::Signal { instance, name } => {
                sleep(self.scenario.some_ms(0, 500)).await;
                let data = names::signal_data(&name);
                let raise = || {
                    let (client, instance, name, data) = (self.client(), &instance, &name, &data);
                    async move { client.raise_event(instance, name, data).await }
                };
                self.until_done(raise).await;
                // An instance that no longer waits for it may have ended when it arrives.
                if !names::is_casual(&name) {
                    self.acknowledged(Acknowledged::Signalled {
                        instance: instance.clone(),
                        name: name.clone(),
                    });
                }
                self.again(twice, raise).await;
            }
            ClientRequest::Messages { instance, queue, count } => {
                for number in 0..count {
                    sleep(self.scenario.some_ms(0, 1_500)).await;
                    let data = number.to_string();
                    let enqueue = || {
                        let (client, instance, queue, data) = (self.client(), &instance, &queue, &data);
                        async move { client.enqueue_event(instance, queue, data).await }
                    };
                    self.until_done(enqueue).await;
                    let enqueued = Acknowledged::Enqueued {
                        instance: instance.clone(),
                        queue: queue.clone(),
                        data: data.clone(),
                    };
                    self.acknowledged(enqueued);
                    self.again(twice, enqueue).await;
                }
            }
            ClientRequest::Cancel { instance } => {
                sleep(self.scenario.some_ms(0, 500)).await;
                let cancel = || {
                    let (client, instance) = (self.client(), &instance);
                    async move { client.cancel_instance(instance, names::CANCEL_REASON).await }
                };
                self.until_done(cancel).await;
                self.acknowledged_cancel(&instance);
                self.again(twice, cancel).await;
            }
        }
    }

    /// Repeats a call that was acknowledged.
    async fn again<F>(&self, twice: bool, call: impl Fn() -> F)
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        if twice {
            sleep(self.scenario.some_ms(0, 300)).await;
            self.until_done(call).await;
        }
    }

    /// Makes a call until it is acknowledged.
    async fn until_done<F>(&self, call: impl Fn() -> F)
    where
        F: Future<Output = Result<(), ClientError>>,
    {
        while let Err(error) = call().await {
            if !error.is_retryable() {
                return self.scenario.violated(format!("a client was refused: {error}"));
            }
            sleep(self.scenario.some_ms(1, 50)).await;
        }
    }

    fn one_in(&self, times: u64) -> bool {
        self.scenario.records().faults.random().one_in(times)
    }
}

/// A client whose calls fail and are recorded.
fn open_client(scenario: &Arc<Scenario>, opened: &Arc<dyn OpenedStore>) -> Client {
    let process = Arc::new(Process::new());
    let recorded = RecordedStore::new(opened.store(), Arc::clone(scenario), Arc::clone(&process), None);
    let faults = ProcessFaults {
        scenario: Arc::clone(scenario),
        name: "client".to_owned(),
        is_node: false,
        opened: Arc::clone(opened),
    };
    let store = FaultyStore::around(Arc::new(recorded));
    Client::new(Arc::new(store.with_call_faults(process, Duration::ZERO, Arc::new(faults))))
}
