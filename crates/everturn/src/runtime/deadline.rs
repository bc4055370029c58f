//! Moments that durations lead to, however long these are.

use std::time::Duration;

use tokio::time::Instant;

/// Nobody waits longer than this, and every clock can show it.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The moment `wait` after `from`. One beyond the end of time is so far away that it never comes.
pub(crate) fn after(from: Instant, wait: Duration) -> Instant {
    from + wait.min(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_wait_ends_far_away() {
        let now = Instant::now();
        assert!(after(now, Duration::MAX) > now + Duration::from_secs(365 * 24 * 3600));
        assert_eq!(after(now, Duration::from_secs(7)), now + Duration::from_secs(7));
    }
}
