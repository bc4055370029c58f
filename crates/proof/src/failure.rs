//! Why a case failed.

use std::fmt;

/// Why a case failed.
pub struct Failure {
    what: String,
    explain: Option<Box<dyn FnOnce() -> String + Send>>,
}

impl Failure {
    /// A failure with an explanation that takes a while to find, for example a smaller case that fails the same way.
    pub fn explained_by(what: String, explain: impl FnOnce() -> String + Send + 'static) -> Self {
        Self { what, explain: Some(Box::new(explain)) }
    }

    /// The reason.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The explanation; empty if there is none.
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
