//! Which data a store reads and writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which data a store reads and writes: two stores of one process with the same identity share all their rows.
///
/// Runtimes on one identity tell each other of cancelled activities at once, instead of at the next lock renewal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreIdentity(String);

impl StoreIdentity {
    /// An identity by name. The name must not be reused in this process for other data.
    pub fn named(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// An identity that no other store of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(format!("unique {}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_identity_equals_only_itself() {
        let (one, other) = (StoreIdentity::unique(), StoreIdentity::unique());
        assert_ne!(one, other);
        assert_eq!(one, one.clone());
        assert_eq!(StoreIdentity::named("a"), StoreIdentity::named("a"));
    }
}
