//! Cancellations: which calls can be cancelled, why, and the events that record it.

use crate::EventKind;

/// Calls that are cancelled when the code drops their future. The order is that in which drops are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cancellable {
    Activity,
    SubOrchestration,
    SignalWait,
    QueueRead,
}

impl Cancellable {
    /// The event that records the cancellation.
    pub(super) fn event(self, reason: CancelReason) -> EventKind {
        let reason = reason.as_str().to_owned();
        match self {
            Self::Activity => EventKind::ActivityCancelRequested { reason },
            Self::SubOrchestration => EventKind::SubOrchestrationCancelRequested { reason },
            Self::SignalWait => EventKind::ExternalSubscribedCancelled { reason },
            Self::QueueRead => EventKind::QueueSubscriptionCancelled { reason },
        }
    }
}

/// Why the engine cancels a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelReason {
    /// The code dropped the future.
    DroppedFuture,
    /// The execution ended while a wait or a queue read was open.
    Ended,
    /// The orchestration completed while an activity was open.
    Completed,
    /// The orchestration failed or was cancelled while an activity was open.
    Failed,
    /// The orchestration continued as new while an activity was open.
    ContinuedAsNew,
}

impl CancelReason {
    const ALL: [Self; 5] =
        [Self::DroppedFuture, Self::Ended, Self::Completed, Self::Failed, Self::ContinuedAsNew];

    /// The form in which histories keep the reason.
    const fn as_str(self) -> &'static str {
        match self {
            Self::DroppedFuture => "dropped_future",
            Self::Ended => "orchestration_terminal",
            Self::Completed => "orchestration_terminal_completed",
            Self::Failed => "orchestration_terminal_failed",
            Self::ContinuedAsNew => "orchestration_terminal_continued_as_new",
        }
    }
}

/// The call that an event cancels, and the reason if it is one of the engine's. `None` for any other event.
pub(super) fn cancellation_of(kind: &EventKind) -> Option<(Cancellable, Option<CancelReason>)> {
    let (cancelled, reason) = match kind {
        EventKind::ActivityCancelRequested { reason } => (Cancellable::Activity, reason),
        EventKind::SubOrchestrationCancelRequested { reason } => (Cancellable::SubOrchestration, reason),
        EventKind::ExternalSubscribedCancelled { reason } => (Cancellable::SignalWait, reason),
        EventKind::QueueSubscriptionCancelled { reason } => (Cancellable::QueueRead, reason),
        EventKind::OrchestrationStarted { .. }
        | EventKind::OrchestrationCompleted { .. }
        | EventKind::OrchestrationFailed { .. }
        | EventKind::OrchestrationContinuedAsNew { .. }
        | EventKind::OrchestrationCancelRequested { .. }
        | EventKind::OrchestrationChained { .. }
        | EventKind::ActivityScheduled { .. }
        | EventKind::ActivityCompleted { .. }
        | EventKind::ActivityFailed { .. }
        | EventKind::TimerCreated { .. }
        | EventKind::TimerFired { .. }
        | EventKind::ExternalSubscribed { .. }
        | EventKind::ExternalEvent { .. }
        | EventKind::QueueSubscribed { .. }
        | EventKind::QueueEventDelivered { .. }
        | EventKind::SubOrchestrationScheduled { .. }
        | EventKind::SubOrchestrationCompleted { .. }
        | EventKind::SubOrchestrationFailed { .. }
        | EventKind::CustomStatusUpdated { .. }
        | EventKind::KeyValueSet { .. }
        | EventKind::KeyValueCleared { .. }
        | EventKind::KeyValuesCleared => return None,
    };
    Some((cancelled, CancelReason::ALL.into_iter().find(|known| known.as_str() == reason)))
}
