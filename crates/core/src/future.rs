//! Futures whose results survive crashes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::exchange::{Exchange, Outcome, Slot};

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
        /// Which call of the execution it is.
        token: u64,
    },
}

/// A future whose result is recorded: after a crash it yields the same value again, without repeating the work.
///
/// The work is asked for when the future is made, not when it is first polled. Dropping it before it returned its value
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
    source: Source,
    decode: Option<Decode<T>>,
}

type Decode<T> = Box<dyn FnOnce(Outcome) -> T + Send>;

enum Source {
    /// The result comes through a slot.
    Slot(Ticket, Arc<Slot>),
    /// The result is read from a queue.
    Queue(Ticket),
    /// The result was known at once.
    Known(Option<Outcome>),
    /// The future was made where nothing may be asked for; it never ends.
    Never,
}

/// The right to one result; dropping it unused cancels the work.
struct Ticket {
    exchange: Arc<Exchange>,
    token: u64,
    finished: bool,
}

impl Ticket {
    fn new(exchange: &Arc<Exchange>, token: u64) -> Self {
        Self { exchange: Arc::clone(exchange), token, finished: false }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            self.exchange.dropped(self.token);
        }
    }
}

impl<T: Send + 'static> DurableFuture<T> {
    pub(crate) fn scheduled(
        exchange: &Arc<Exchange>,
        kind: ScheduleKind,
        scheduled: Option<(u64, Arc<Slot>)>,
        decode: impl FnOnce(Outcome) -> T + Send + 'static,
    ) -> Self {
        let source = match scheduled {
            Some((token, slot)) => Source::Slot(Ticket::new(exchange, token), slot),
            None => Source::Never,
        };
        Self { kind, source, decode: Some(Box::new(decode)) }
    }

    pub(crate) fn dequeue(
        exchange: &Arc<Exchange>,
        kind: ScheduleKind,
        token: Option<u64>,
        decode: impl FnOnce(Outcome) -> T + Send + 'static,
    ) -> Self {
        let source = token.map_or(Source::Never, |token| Source::Queue(Ticket::new(exchange, token)));
        Self { kind, source, decode: Some(Box::new(decode)) }
    }

    pub(crate) fn known(
        kind: ScheduleKind,
        outcome: Outcome,
        decode: impl FnOnce(Outcome) -> T + Send + 'static,
    ) -> Self {
        Self { kind, source: Source::Known(Some(outcome)), decode: Some(Box::new(decode)) }
    }

    /// The same work with its result passed through `f`. Dropping the new future cancels the original work.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> DurableFuture<U> {
        let decode = self.decode.map(|decode| {
            let mapped: Decode<U> = Box::new(move |outcome| f(decode(outcome)));
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
        if let Source::Slot(ticket, _) = &self.source {
            assert!(
                ticket.exchange.set_tag(ticket.token, tag.into()),
                "with_tag(): token {} not found in emitted_actions: set the tag before the orchestration waits",
                ticket.token
            );
        }
        self
    }
}

impl<T> Future for DurableFuture<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        let outcome = match &mut this.source {
            Source::Slot(ticket, slot) => slot.take().inspect(|_| {
                ticket.finished = true;
                ticket.exchange.finish(ticket.token);
            }),
            Source::Queue(ticket) => ticket.exchange.poll_dequeue(ticket.token).map(|data| {
                ticket.finished = true;
                Outcome::Value(data)
            }),
            Source::Known(outcome) => outcome.take(),
            Source::Never => None,
        };
        match outcome.and_then(|outcome| this.decode.take().map(|decode| decode(outcome))) {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

/// Futures of activities and children: a value, or the text of the failure.
pub(crate) fn result(outcome: Outcome) -> Result<String, String> {
    match outcome {
        Outcome::Value(value) => Ok(value),
        Outcome::Failed(text) => Err(text),
        Outcome::Fired => Ok(String::new()),
    }
}

/// Futures of signals and queue messages: always a value.
pub(crate) fn data(outcome: Outcome) -> String {
    match outcome {
        Outcome::Value(text) | Outcome::Failed(text) => text,
        Outcome::Fired => String::new(),
    }
}
