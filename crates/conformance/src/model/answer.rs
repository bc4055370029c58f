//! An answer of a store, in a form that can be compared with that of another store.

use std::fmt::Debug;

use everturn_provider::ProviderError;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// It did something, or found something.
    Done,
    /// It found nothing; that is no error.
    Empty,
    /// It was refused.
    Refused,
}

/// How a call ended, and everything it returned except tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ComparedAnswer {
    pub(crate) kind: AnswerKind,
    pub(crate) shown: String,
}

impl ComparedAnswer {
    pub(crate) fn done(shown: impl Debug) -> Self {
        Self { kind: AnswerKind::Done, shown: format!("{shown:?}") }
    }

    pub(crate) fn empty(shown: impl Debug) -> Self {
        Self { kind: AnswerKind::Empty, shown: format!("{shown:?}") }
    }

    pub(crate) fn done_unless(is_empty: bool, shown: impl Debug) -> Self {
        if is_empty { Self::empty(shown) } else { Self::done(shown) }
    }

    /// The kinds of an error are compared, its text is not.
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
        Self { kind: AnswerKind::Refused, shown: format!("refused {kinds:?}") }
    }

    /// The answer to a call that was accepted as `shown` says, or refused.
    pub(crate) fn of<T>(answer: Result<T, ProviderError>, shown: impl FnOnce(T) -> Self) -> Self {
        match answer {
            Ok(value) => shown(value),
            Err(error) => Self::refused(&error),
        }
    }

    /// The answer to a call that returns nothing.
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
