//! Bugs that are planted on purpose, to prove that the proofs find them.
//!
//! A build with the feature `planted-bugs` is another program than the one users run: it has one bug, named in the
//! environment, and the proof that ought to catch it must fail on it. Without the feature [`planted`] is the constant
//! `false`, so that nothing of this is left in a product: the engine never asks whether it is being tested.
//!
//! Each bug is one expression at the place where a careless hand would have written it. What each must be caught by
//! stands in `tests/planted`.

/// Names each bug once.
macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal,)+) => {
        /// A bug that can be planted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// What it is called in the environment.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A timer counts the millisecond in which it was made as its first.
    TimerEarly = "timer-early",
    /// Continuing as new forgets the messages that nobody has read.
    UnreadDropped = "unread-dropped",
    /// A live turn polls the code once for all its messages; replay polls after each.
    OnePollATurn = "one-poll-a-turn",
    /// An activity whose future was dropped is recorded as cancelled, and stays in the queue.
    DroppedNotWithdrawn = "dropped-not-withdrawn",
    /// An instance in memory is lent although its history has moved on elsewhere.
    StaleWarmCache = "stale-warm-cache",
    /// A renewal that failed for now counts as a lost lock.
    RenewalErrorIsLoss = "renewal-error-is-loss",
    /// A commit that failed for now is recorded as the failure of the orchestration.
    StorageErrorFails = "storage-error-fails",
    /// Activities hear that they are no longer wanted before the turn that says so is durable.
    WithdrawnBeforeCommit = "withdrawn-before-commit",
    /// An activity whose lock ran out unheard is taken off the queue as if it were unwanted.
    RunOutAcked = "run-out-acked",
    /// In memory: a turn takes messages with it that came while it ran.
    NewcomersAcked = "newcomers-acked",
    /// SQLite: any token opens a lock.
    NoTokenCheck = "no-token-check",
    /// SQLite: a lock that has ended still lets its holder commit.
    NoExpiryCheck = "no-expiry-check",
    /// SQLite: a renewal brings an ended lock back.
    RenewalResurrects = "renewal-resurrects",
    /// SQLite: own locks are judged by the wall clock.
    WallClockLocks = "wall-clock-locks",
    /// SQLite: commits are not synced.
    WeakerSync = "weaker-sync",
    /// SQLite: a turn's history and its messages are committed one after the other.
    SplitCommit = "split-commit",
    /// SQLite: callers hear of their operation when it has run, not when it is committed.
    AnsweredBeforeCommit = "answered-before-commit",
    /// SQLite: what had run in a batch when it was lost is answered as if it were committed.
    LostBatchAnswered = "lost-batch-answered",
    /// SQLite: an activity is handed out before the batch that assigned it is committed.
    ActivityBeforeCommit = "activity-before-commit",
    /// SQLite: the outcome of an activity is taken whoever brings it.
    OutcomeUnchecked = "outcome-unchecked",
    /// SQLite: a message that makes an instance ready wakes nobody.
    LostWakeUp = "lost-wake-up",
    /// SQLite: the log stays as long as it is when the disk is full.
    NoRoomMade = "no-room-made",
    /// SQLite: an instance that cannot be handed out counts as a store that fails.
    DamageBlocksOthers = "damage-blocks-others",
}

/// Whether this bug is planted: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Whether this bug is planted: the one that `EVERTURN_PLANTED_BUG` names.
///
/// # Panics
///
/// If that names no bug: a misspelt bug must not count as one that nobody caught.
#[cfg(feature = "planted-bugs")]
pub fn planted(bug: Bug) -> bool {
    static PLANTED: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("EVERTURN_PLANTED_BUG").ok()?;
        let bug = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
        assert!(bug.is_some(), "EVERTURN_PLANTED_BUG names no bug: {name:?}");
        bug
    });
    *PLANTED == Some(bug)
}
