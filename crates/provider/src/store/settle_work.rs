//! Request of [`Store::settle_work`](super::Store::settle_work).

use std::time::Duration;

use super::handlers::HandlerKey;
use super::messages::NewMessage;

/// Ends the lock of a fetched activity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// The lock.
    pub lock_token: String,
    /// What becomes of the activity.
    pub kind: SettlementKind,
}

/// What becomes of a fetched activity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettlementKind {
    /// It leaves the queue, and its completion is enqueued.
    End {
        /// The completion; `None` if no orchestration waits for one.
        completion: Option<NewMessage>,
    },
    /// It returns to the queue.
    Abandon {
        /// How long it stays invisible.
        delay: Option<Duration>,
        /// Takes back the attempt that the fetch counted.
        ignore_attempt: bool,
        /// The handler that the caller lacks: then the delay concerns only callers that lack it, too. Needs
        /// [`Feature::HandlerLookup`](super::Feature::HandlerLookup).
        missing_handler: Option<HandlerKey>,
    },
}

impl Settlement {
    /// Removes the activity and enqueues its completion.
    pub fn end(lock_token: impl Into<String>, completion: Option<NewMessage>) -> Self {
        Self { lock_token: lock_token.into(), kind: SettlementKind::End { completion } }
    }

    /// Returns the activity to the queue, visible after `delay`.
    pub fn abandon(lock_token: impl Into<String>, delay: Option<Duration>, ignore_attempt: bool) -> Self {
        let kind = SettlementKind::Abandon { delay, ignore_attempt, missing_handler: None };
        Self { lock_token: lock_token.into(), kind }
    }

    /// Returns the activity to the queue because the caller lacks its handler. The attempt counts; callers without the
    /// handler cannot fetch it before `delay` is over.
    pub fn lacking_handler(
        lock_token: impl Into<String>,
        delay: Option<Duration>,
        missing_handler: HandlerKey,
    ) -> Self {
        let missing_handler = Some(missing_handler);
        let kind = SettlementKind::Abandon { delay, ignore_attempt: false, missing_handler };
        Self { lock_token: lock_token.into(), kind }
    }
}
