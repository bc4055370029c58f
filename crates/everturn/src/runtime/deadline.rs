//! Adding any duration to an instant without overflow.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than any process runs, and short enough for every clock.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The instant `wait` after `from`, at most 30 years later.
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
