//! Positional signals and queues.

use std::future::Future;
use std::panic::Location;

use serde::de::DeserializeOwned;

use super::OrchestrationContext;
use super::expected_names::expect_name;
use crate::action::Action;
use crate::codec;
use crate::future::{DurableFuture, ScheduleKind, payload};

impl OrchestrationContext {
    /// Waits for a signal. The n-th wait on a name gets the n-th signal that found a wait open; a signal that finds
    /// none is lost. For messages that must not be lost use [`dequeue_event`](Self::dequeue_event).
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn approval(ctx: OrchestrationContext, request: String) -> Result<String, String> {
    ///     let by = ctx.schedule_wait("Approved").await;
    ///     Ok(format!("{request} was approved by {by}"))
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_wait(&self, name: impl Into<String>) -> DurableFuture<String> {
        let name = name.into();
        expect_name("signal name", &name);
        let kind = ScheduleKind::ExternalWait { event_name: name.clone() };
        DurableFuture::emit(&self.shared, kind, Location::caller(), |_| Action::Wait { name }, payload)
    }

    /// [`schedule_wait`](Self::schedule_wait) with a typed payload. A payload that cannot be decoded panics, which
    /// fails the orchestration.
    #[track_caller]
    pub fn schedule_wait_typed<T: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
    ) -> DurableFuture<T> {
        let name = name.into();
        self.schedule_wait(name.clone()).map(move |payload| decoded_payload("signal", &name, &payload))
    }

    /// Takes the next message of a queue. Messages wait until they are read, also across continue-as-new.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn cart(ctx: OrchestrationContext, mut items: String) -> Result<String, String> {
    ///     loop {
    ///         match ctx.dequeue_event("commands").await.as_str() {
    ///             "checkout" => return Ok(items),
    ///             item => items = format!("{items} {item}"),
    ///         }
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn dequeue_event(&self, queue: impl Into<String>) -> DurableFuture<String> {
        let queue = queue.into();
        expect_name("queue name", &queue);
        DurableFuture::emit_dequeue(&self.shared, Location::caller(), queue, payload)
    }

    /// [`dequeue_event`](Self::dequeue_event) with a typed payload. A payload that cannot be decoded panics, which
    /// fails the orchestration.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn average(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ///     let (first, second): (f64, f64) =
    ///         (ctx.dequeue_event_typed("readings").await, ctx.dequeue_event_typed("readings").await);
    ///     Ok(((first + second) / 2.0).to_string())
    /// }
    /// ```
    #[track_caller]
    pub fn dequeue_event_typed<T: DeserializeOwned>(
        &self,
        queue: impl Into<String>,
    ) -> impl Future<Output = T> {
        let queue = queue.into();
        let message = self.dequeue_event(queue.clone());
        async move { decoded_payload("a message of queue", &queue, &message.await) }
    }

    /// The former name of [`dequeue_event`](Self::dequeue_event).
    #[deprecated(note = "use dequeue_event")]
    #[track_caller]
    pub fn schedule_wait_persistent(&self, name: impl Into<String>) -> DurableFuture<String> {
        self.dequeue_event(name)
    }

    /// The former name of [`dequeue_event_typed`](Self::dequeue_event_typed).
    #[deprecated(note = "use dequeue_event_typed")]
    #[track_caller]
    pub fn schedule_wait_persistent_typed<T: DeserializeOwned>(
        &self,
        name: impl Into<String>,
    ) -> impl Future<Output = T> {
        self.dequeue_event_typed(name)
    }
}

fn decoded_payload<T: DeserializeOwned>(what: &str, name: &str, payload: &str) -> T {
    codec::decode(payload).unwrap_or_else(|error| panic!("decoding {what} {name}: {error}"))
}
