//! One verb of the store that fails for a while, for all processes, while the others work: a full disk refuses what writes
//! much, a damaged index what uses it.

use std::time::Duration;

use tokio::time::Instant;

use crate::random::SeededRandom;

/// The verbs that can fail by themselves.
const VERBS: [&str; 9] = [
    "fetch_turns",
    "commit_turn",
    "commit_step",
    "abandon_turn",
    "fetch_work",
    "settle_work",
    "renew",
    "submit",
    "sweep",
];
/// How long a verb fails. Without renewals every lock ends, so that one fails for less than a few locks.
const FAILS_FOR_MS: [u64; 3] = [400, 1_000, 2_500];
const RENEWALS_FAIL_FOR_MS: u64 = 400;

/// A verb that fails, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailingVerb {
    pub(crate) verb: &'static str,
    pub(crate) lasts: Duration,
    began: Instant,
}

impl FailingVerb {
    /// Any verb, for some time from now on.
    pub(crate) fn drawn(random: &mut SeededRandom) -> Self {
        let (verb, ms) = (random.pick(VERBS), random.pick(FAILS_FOR_MS));
        let ms = if verb == "renew" { ms.min(RENEWALS_FAIL_FOR_MS) } else { ms };
        Self { verb, lasts: Duration::from_millis(ms), began: Instant::now() }
    }

    /// Whether a call of this verb fails now.
    pub(crate) fn has(&self, verb: &str) -> bool {
        self.verb == verb && self.began.elapsed() < self.lasts
    }
}
