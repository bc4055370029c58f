//! What a case found.

use std::fmt;

/// Why a case failed.
pub struct Failure {
    what: String,
    explain: Option<Box<dyn FnOnce() -> String + Send>>,
}

impl Failure {
    /// A failure that can be explained further, if somebody takes the time: by a smaller case, say.
    pub fn explained_by(what: String, explain: impl FnOnce() -> String + Send + 'static) -> Self {
        Self { what, explain: Some(Box::new(explain)) }
    }

    /// What is known at once.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What is to be said beyond that.
    pub(crate) fn explanation(self) -> String {
        self.explain.map_or_else(String::new, |explain| explain())
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self { what, explain: None }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failure").field(&self.what).finish()
    }
}
