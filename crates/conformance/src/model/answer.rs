//! What a provider answered, in a form that can be compared with another's.

use std::fmt::Debug;

use everturn_provider::ProviderError;

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did something, or found something.
    Done,
    /// It found nothing; that is no error.
    Empty,
    /// It was refused.
    Refused,
}

/// How a call went, and everything it told, tokens apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) told: String,
}

impl Answer {
    pub(crate) fn done(told: impl Debug) -> Self {
        Self { outcome: Outcome::Done, told: format!("{told:?}") }
    }

    pub(crate) fn empty(told: impl Debug) -> Self {
        Self { outcome: Outcome::Empty, told: format!("{told:?}") }
    }

    pub(crate) fn done_unless(is_empty: bool, told: impl Debug) -> Self {
        if is_empty { Self::empty(told) } else { Self::done(told) }
    }

    /// Texts are a provider's own; what a caller may decide by is not.
    pub(crate) fn refused(error: &ProviderError) -> Self {
        let kinds = [
            ("lock lost", error.is_lock_lost()),
            ("history moved", error.is_history_moved()),
            ("not found", error.is_not_found()),
            ("still running", error.is_still_running()),
            ("sub-orchestration", error.is_sub_orchestration()),
            ("damaged", error.is_damaged()),
            ("retryable", error.is_retryable()),
        ];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(_, holds)| *holds).map(|(kind, _)| kind).collect();
        Self { outcome: Outcome::Refused, told: format!("refused {kinds:?}") }
    }

    /// The answer to a call that was accepted as `shown` says, or refused.
    pub(crate) fn of<T>(answer: Result<T, ProviderError>, shown: impl FnOnce(T) -> Self) -> Self {
        match answer {
            Ok(value) => shown(value),
            Err(error) => Self::refused(&error),
        }
    }

    /// The answer to a call that tells nothing but that it was accepted.
    pub(crate) fn accepted(answer: Result<(), ProviderError>) -> Self {
        Self::of(answer, Self::done)
    }

    /// The answer to a call that lists something.
    pub(crate) fn listed<T: Debug>(answer: Result<Vec<T>, ProviderError>) -> Self {
        Self::of(answer, |list| Self::done_unless(list.is_empty(), list))
    }

    /// The answer to a call that finds something or not.
    pub(crate) fn found<T: Debug>(answer: Result<Option<T>, ProviderError>) -> Self {
        Self::of(answer, |found| Self::done_unless(found.is_none(), found))
    }
}
