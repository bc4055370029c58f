//! When work is poison: it was tried too often, and is failed instead of tried again.

/// Returns true if work was tried more often than `max_attempts`. `attempt_count` includes this attempt.
pub(super) fn is_poison(attempt_count: u32, max_attempts: u32) -> bool {
    attempt_count > max_attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_allowed_attempt_is_not_poison() {
        assert!(!is_poison(10, 10));
        assert!(is_poison(11, 10));
    }
}
