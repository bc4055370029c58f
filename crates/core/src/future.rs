//! Futures whose results survive crashes.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::action::Action;
use crate::replay_state::{FutureResult, ReplayState, ResultSlot, SharedState};

/// What a [`DurableFuture`] waits for.
#[derive(Debug, Clone)]
pub enum ScheduleKind {
    /// An activity.
    Activity {
        /// Its registered name.
        name: String,
    },
    /// A timer.
    Timer,
    /// A positional signal.
    ExternalWait {
        /// Its name.
        event_name: String,
    },
    /// A queue message.
    QueueDequeue {
        /// Name of the queue.
        event_name: String,
    },
    /// A child orchestration.
    SubOrchestration {
        /// Number of the call within its execution.
        token: u64,
    },
}

/// A future whose result is recorded: after a crash it yields the same value again, without repeating the work.
///
/// The work is scheduled when the future is made, not when it is first polled. Dropping the future before it returned
/// cancels the work.
///
/// ```
/// use everturn_core::{DurableFuture, OrchestrationContext};
///
/// fn greeting(ctx: &OrchestrationContext, name: &str) -> DurableFuture<Result<usize, String>> {
///     ctx.schedule_activity("Greet", name).map(|text| text.map(|text| text.len()))
/// }
///
/// async fn lengths(ctx: OrchestrationContext, name: String) -> Result<String, String> {
///     Ok(greeting(&ctx, &name).await?.to_string())
/// }
/// ```
#[must_use = "dropping a durable future cancels its work"]
pub struct DurableFuture<T> {
    kind: ScheduleKind,
    source: ResultSource,
    decode: Option<Decode<T>>,
}

type Decode<T> = Box<dyn FnOnce(FutureResult) -> T + Send>;

enum ResultSource {
    /// The engine puts the result into a slot.
    Slot(PendingAction, Arc<ResultSlot>),
    /// The result is read from a queue.
    Queue(PendingAction),
    /// The result was known when the future was made.
    Known(Option<FutureResult>),
    /// The future was made outside a poll of its orchestration, where no call has an effect. It never ends.
    Never,
}

/// An action whose result the future has not returned. Dropping it cancels the work.
struct PendingAction {
    shared: Arc<SharedState>,
    token: u64,
    finished: bool,
}

impl Drop for PendingAction {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.future_dropped(self.token);
        }
    }
}

impl<T: Send + 'static> DurableFuture<T> {
    /// Emits an action; the future returns its result.
    pub(crate) fn emit(
        shared: &Arc<SharedState>,
        mut kind: ScheduleKind,
        location: &'static Location<'static>,
        action: impl FnOnce(&mut ReplayState) -> Action,
        decode: impl FnOnce(FutureResult) -> T + Send + 'static,
    ) -> Self {
        let slot = Arc::new(ResultSlot::default());
        let source = match shared.emit(location, Some(&slot), action) {
            Some(token) => {
                if let ScheduleKind::SubOrchestration { token: call } = &mut kind {
                    *call = token;
                }
                ResultSource::Slot(PendingAction { shared: Arc::clone(shared), token, finished: false }, slot)
            }
            None => ResultSource::Never,
        };
        Self { kind, source, decode: Some(Box::new(decode)) }
    }

    /// Emits a queue read; the future returns the message.
    pub(crate) fn emit_dequeue(
        shared: &Arc<SharedState>,
        location: &'static Location<'static>,
        name: String,
        decode: impl FnOnce(FutureResult) -> T + Send + 'static,
    ) -> Self {
        let kind = ScheduleKind::QueueDequeue { event_name: name.clone() };
        let source = match shared.emit(location, None, |_| Action::Dequeue { name }) {
            Some(token) => {
                ResultSource::Queue(PendingAction { shared: Arc::clone(shared), token, finished: false })
            }
            None => ResultSource::Never,
        };
        Self { kind, source, decode: Some(Box::new(decode)) }
    }

    /// A future that is ready at once.
    pub(crate) fn known(
        kind: ScheduleKind,
        result: FutureResult,
        decode: impl FnOnce(FutureResult) -> T + Send + 'static,
    ) -> Self {
        Self { kind, source: ResultSource::Known(Some(result)), decode: Some(Box::new(decode)) }
    }

    /// Passes the result through `f`. Dropping the new future cancels the work.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> DurableFuture<U> {
        let decode = self.decode.map(|decode| {
            let mapped: Decode<U> = Box::new(move |result| f(decode(result)));
            mapped
        });
        DurableFuture { kind: self.kind, source: self.source, decode }
    }

    /// Routes an activity to workers that serve this tag. The last call wins.
    ///
    /// # Panics
    /// If this is not the future of an activity, or the orchestration has waited since it was made.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn render(ctx: OrchestrationContext, scene: String) -> Result<String, String> {
    ///     ctx.schedule_activity("Render", scene).with_tag("gpu").await
    /// }
    /// ```
    pub fn with_tag(self, tag: impl Into<String>) -> Self {
        assert!(
            matches!(self.kind, ScheduleKind::Activity { .. }),
            "with_tag() can only be called on activity futures, got {:?}",
            self.kind
        );
        if let ResultSource::Slot(pending, _) = &self.source {
            assert!(
                pending.shared.set_tag(pending.token, tag.into()),
                "with_tag(): token {} not found in emitted_actions: set the tag before the orchestration waits",
                pending.token
            );
        }
        self
    }
}

impl<T> Future for DurableFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let result = match &mut this.source {
            ResultSource::Slot(pending, slot) => slot.take().inspect(|_| {
                pending.finished = true;
                pending.shared.lock().bindings.remove(&pending.token);
            }),
            ResultSource::Queue(pending) => pending.shared.poll_dequeue(pending.token).map(|data| {
                pending.finished = true;
                FutureResult::Value(data)
            }),
            ResultSource::Known(result) => result.take(),
            ResultSource::Never => None,
        };
        match result.and_then(|result| this.decode.take().map(|decode| decode(result))) {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

/// The result of an activity or a child: its value, or the text of its failure.
pub(crate) fn result(result: FutureResult) -> Result<String, String> {
    match result {
        FutureResult::Value(value) => Ok(value),
        FutureResult::Failed(text) => Err(text),
        FutureResult::Fired => Ok(String::new()),
    }
}

/// The payload of a signal or a queue message.
pub(crate) fn payload(result: FutureResult) -> String {
    match result {
        FutureResult::Value(text) | FutureResult::Failed(text) => text,
        FutureResult::Fired => String::new(),
    }
}
