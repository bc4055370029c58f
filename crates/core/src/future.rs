//! Futures whose results survive crashes.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWakerVTable, Waker};

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
/// cancels the work. When it becomes ready it wakes its task, in the order of the events, so that every combinator of the
/// `futures` crate that does not choose at random works in orchestrations.
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
    /// The engine puts the result into the slot.
    Slot(PendingAction),
    /// The engine makes the slot ready when the queue has a message for this read.
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
    slot: Arc<ResultSlot>,
    /// The waker that the slot keeps.
    kept_waker: WakerIdentity,
    finished: bool,
}

impl PendingAction {
    /// Emits an action. `None` if no call has an effect now.
    fn emit(
        shared: &Arc<SharedState>,
        location: &'static Location<'static>,
        action: impl FnOnce(&mut ReplayState) -> Action,
    ) -> Option<Self> {
        let slot = Arc::new(ResultSlot::default());
        let token = shared.emit(location, Some(&slot), action)?;
        Some(Self {
            shared: Arc::clone(shared),
            token,
            slot,
            kept_waker: WakerIdentity::NONE,
            finished: false,
        })
    }

    /// Whether the engine has made the future ready. If it has not, it wakes the task of `cx` when it does.
    fn is_ready(&mut self, cx: &Context<'_>) -> bool {
        if self.slot.is_ready() {
            return true;
        }
        let waker = cx.waker();
        let identity = WakerIdentity::of(waker);
        if self.kept_waker.data == identity.data && self.kept_waker.vtable == identity.vtable {
            return false;
        }
        let kept = self.slot.keep_waker(waker.clone(), &self.shared.detached);
        self.kept_waker = if kept { identity } else { WakerIdentity::NONE };
        self.slot.is_ready()
    }

    fn poll_result(&mut self, cx: &Context<'_>) -> Option<FutureResult> {
        if !self.is_ready(cx) {
            return None;
        }
        let result = self.shared.take_result(self.token, &self.slot)?;
        self.finished = true;
        Some(result)
    }

    fn poll_message(&mut self, cx: &Context<'_>) -> Option<FutureResult> {
        if !self.is_ready(cx) {
            return None;
        }
        let message = self.shared.take_message(self.token)?;
        self.finished = true;
        Some(FutureResult::Value(message))
    }
}

impl Drop for PendingAction {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.future_dropped(self.token, &self.slot);
        }
    }
}

/// Tells wakers apart as [`Waker::will_wake`] does, without keeping one. Valid while a clone of the waker is kept: no
/// other waker has its address until then.
struct WakerIdentity {
    data: usize,
    vtable: usize,
}

impl WakerIdentity {
    /// No waker: none has a table at address 0.
    const NONE: Self = Self { data: 0, vtable: 0 };

    #[inline]
    fn of(waker: &Waker) -> Self {
        let vtable: *const RawWakerVTable = waker.vtable();
        Self { data: waker.data() as usize, vtable: vtable as usize }
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
        let source = match PendingAction::emit(shared, location, action) {
            Some(pending) => {
                if let ScheduleKind::SubOrchestration { token: call } = &mut kind {
                    *call = pending.token;
                }
                ResultSource::Slot(pending)
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
        let pending = PendingAction::emit(shared, location, |_| Action::Dequeue { name });
        let source = pending.map_or(ResultSource::Never, ResultSource::Queue);
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
        if let ResultSource::Slot(pending) = &self.source {
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let result = match &mut this.source {
            ResultSource::Slot(pending) => pending.poll_result(cx),
            ResultSource::Queue(pending) => pending.poll_message(cx),
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
