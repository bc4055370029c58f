//! The owners of sessions, as far as answers show: while a lease is live, no other owner gets an activity of its session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::SessionFetchConfig;
use everturn::providers::store::SessionRenewal;

use crate::process::Process;
use crate::recorder::{WorldTime, has_ended};
use crate::sim_clock::SimClock;

/// The leases that are known to be live.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<String, Lease>);

#[derive(Debug)]
struct Lease {
    owner_id: String,
    since: WorldTime,
    /// Its end, by the monotonic clock and by the wall clock: whichever comes first.
    until: Duration,
    until_ms: u64,
    /// When an activity of it was last fetched.
    active_at: Duration,
    /// The process that leased or renewed it, if the store releases the leases of processes that no longer run.
    holder: Option<Arc<Process>>,
}

impl Lease {
    fn is_live(&self, at: WorldTime, clock: &SimClock) -> bool {
        !has_ended(self.holder.as_ref())
            && at.monotonic < self.until
            && clock.latest_ms_since(self.since.monotonic) < self.until_ms
    }
}

impl Sessions {
    /// An activity of a session was fetched; returns what is wrong with that. If the answer did not come at once, it is
    /// unknown how much of the lease is left.
    pub(crate) fn fetched(
        &mut self,
        session_id: &str,
        config: &SessionFetchConfig,
        at: WorldTime,
        clock: &SimClock,
        is_fresh: bool,
        holder: Option<Arc<Process>>,
    ) -> Option<String> {
        if !is_fresh {
            self.0.remove(session_id);
            return None;
        }
        let lease = Lease {
            owner_id: config.owner_id.clone(),
            since: at,
            until: at.monotonic + config.lock_timeout,
            until_ms: at.now_ms + config.lock_timeout.as_millis() as u64,
            active_at: at.monotonic,
            holder,
        };
        let before = self.0.insert(session_id.to_owned(), lease)?;
        let is_stolen = before.owner_id != config.owner_id && before.is_live(at, clock);
        is_stolen.then(|| {
            let left = before.until - at.monotonic;
            format!(
                "{session_id} went to {}, though {} has it for another {left:?}",
                config.owner_id, before.owner_id
            )
        })
    }

    /// A renewal was answered: it extended the leases that are live and in use.
    pub(crate) fn renewed(
        &mut self,
        renewal: &SessionRenewal,
        called: WorldTime,
        at: WorldTime,
        clock: &SimClock,
        holder: Option<&Arc<Process>>,
    ) {
        for lease in self.0.values_mut() {
            let is_in_use = called.monotonic < lease.active_at + renewal.idle_timeout;
            let is_owned = renewal.owner_ids.contains(&lease.owner_id);
            if is_owned && is_in_use && lease.is_live(called, clock) {
                lease.until = at.monotonic + renewal.extend_for;
                lease.until_ms = at.now_ms + renewal.extend_for.as_millis() as u64;
                lease.holder = holder.cloned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn::providers::Clock as _;
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::random::SeededRandom;

    const LEASE: Duration = Duration::from_secs(1);

    fn now(clock: &SimClock) -> WorldTime {
        WorldTime { now_ms: clock.wall_ms(), monotonic: clock.monotonic(), jumps: clock.jumps() }
    }

    fn fetched(sessions: &mut Sessions, owner: &str, clock: &SimClock) -> Option<String> {
        let config = SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LEASE };
        sessions.fetched("s", &config, now(clock), clock, true, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_of_a_process_that_no_longer_runs_may_go_to_another_owner_at_once() {
        let clock = SimClock::new(Instant::now(), 0, SeededRandom::new(1));
        let (mut sessions, process) = (Sessions::default(), Arc::new(Process::new()));
        let config = SessionFetchConfig { owner_id: "one".to_owned(), lock_timeout: LEASE };
        let holder = Some(Arc::clone(&process));
        assert_eq!(sessions.fetched("s", &config, now(&clock), &clock, true, holder), None);
        process.kill();
        assert_eq!(fetched(&mut sessions, "two", &clock), None, "its lease was released");
        assert!(fetched(&mut sessions, "one", &clock).is_some(), "the new one counts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_goes_to_another_owner_while_its_lease_is_live_is_noticed() {
        let clock = SimClock::new(Instant::now(), 0, SeededRandom::new(1));
        let mut sessions = Sessions::default();
        assert_eq!(fetched(&mut sessions, "one", &clock), None);
        assert_eq!(fetched(&mut sessions, "one", &clock), None);
        advance(LEASE / 2).await;
        let renewal =
            SessionRenewal { owner_ids: vec!["one".to_owned()], extend_for: LEASE, idle_timeout: LEASE };
        sessions.renewed(&renewal, now(&clock), now(&clock), &clock, None);
        advance(LEASE * 3 / 4).await;
        assert!(fetched(&mut sessions, "two", &clock).is_some(), "it was renewed");
        advance(LEASE).await;
        assert_eq!(fetched(&mut sessions, "one", &clock), None, "it was not renewed");
        clock.jump(1_000);
        assert_eq!(fetched(&mut sessions, "two", &clock), None, "by the wall clock it has ended");
    }
}
