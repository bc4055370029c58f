//! Watches on instances.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::watch;

use crate::columns;

/// Below this many entries, those that are no longer watched are not searched for.
const TIDY_MIN: usize = 64;
/// How many instances one look compares: the writer's other work waits for it.
const LOOK_MAX: usize = 64;

/// The stamp of an instance: its last commit.
pub(crate) const SELECT_STAMP: &str = "SELECT turn_stamp FROM everturn_instances WHERE instance_id = ?1";

/// The watched instances, sorted, so that watches are woken in the same order every time.
#[derive(Debug, Default)]
pub(crate) struct InstanceWatches {
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    watched: BTreeMap<Arc<str>, WatchedInstance>,
    tidy_at: usize,
    /// Instances that another process may have changed.
    doubtful: BTreeSet<Arc<str>>,
    /// The last instance that was looked at. The next look begins after it: while others commit all the time, every
    /// instance has its turn.
    looked_at_last: Arc<str>,
    /// No watch is woken any more.
    closed: bool,
}

#[derive(Debug)]
struct WatchedInstance {
    sender: watch::Sender<u64>,
    /// The stamp of its last commit when it was last looked at; the inner `None` if there was none. Every commit that
    /// clients can see changes it, and so does a deletion.
    seen: Option<Option<i64>>,
}

impl WatchedInstance {
    fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn wake(&self) {
        self.sender.send_modify(|changes| *changes = changes.wrapping_add(1));
    }
}

impl WatchState {
    /// The instances of the next look, which are no longer doubtful.
    fn take_doubtful(&mut self) -> Vec<Arc<str>> {
        let last = &*self.looked_at_last;
        let later = self.doubtful.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
        let earlier = self.doubtful.range::<str, _>((Bound::Unbounded, Bound::Included(last)));
        let taken: Vec<_> = later.chain(earlier).take(LOOK_MAX).cloned().collect();
        for instance in &taken {
            self.doubtful.remove(instance);
        }
        if let Some(last) = taken.last() {
            self.looked_at_last = Arc::clone(last);
        }
        taken
    }
}

impl InstanceWatches {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver that changes after each commit that clients of the instance can see. After [`close`](Self::close) it
    /// reports that it is closed.
    pub(crate) fn watch(&self, instance: &str) -> watch::Receiver<u64> {
        let mut state = self.state();
        if let Some(watched) = state.watched.get(instance) {
            return watched.sender.subscribe();
        }
        if state.watched.len() >= state.tidy_at.max(TIDY_MIN) {
            state.watched.retain(|_, watched| watched.is_watched());
            state.tidy_at = state.watched.len() * 2;
        }
        let (sender, receiver) = watch::channel(0);
        if !state.closed {
            state.watched.insert(Arc::from(instance), WatchedInstance { sender, seen: None });
        }
        receiver
    }

    /// Whether any instance is watched.
    pub(crate) fn is_watched(&self) -> bool {
        self.state().watched.values().any(WatchedInstance::is_watched)
    }

    /// These instances changed.
    pub(crate) fn bump(&self, instances: &[String]) {
        if instances.is_empty() {
            return;
        }
        let mut state = self.state();
        for instance in instances {
            let Some(watched) = state.watched.get(instance.as_str()) else { continue };
            if watched.is_watched() {
                watched.wake();
            } else {
                state.watched.remove(instance.as_str());
            }
        }
    }

    /// Another process has committed: any instance may have changed.
    pub(crate) fn note_foreign_commit(&self) {
        let mut state = self.state();
        state.watched.retain(|_, watched| watched.is_watched());
        state.doubtful = state.watched.keys().cloned().collect();
    }

    /// Whether another process may have changed an instance that was not looked at since.
    pub(crate) fn needs_look(&self) -> bool {
        !self.state().doubtful.is_empty()
    }

    /// Looks at some of the instances that another process may have changed, and wakes the watches of those that it did:
    /// one look for all watches of an instance, and none by the clients of the others.
    pub(crate) fn look(&self, conn: &Connection) -> rusqlite::Result<()> {
        let looked_at = self.state().take_doubtful();
        if looked_at.is_empty() {
            return Ok(());
        }
        let (found, failure) = match stamps(conn, &looked_at) {
            Ok(found) => (found.into_iter().map(Some).collect(), Ok(())),
            // Nothing is known of them: their clients look for themselves.
            Err(error) => (vec![None; looked_at.len()], Err(error)),
        };
        let mut state = self.state();
        for (instance, stamp) in looked_at.iter().zip(found) {
            let Some(watched) = state.watched.get_mut(instance) else { continue };
            let seen = std::mem::replace(&mut watched.seen, stamp);
            if stamp.is_none() || seen != stamp {
                watched.wake();
            }
        }
        failure
    }

    /// The writer has ended: watches must look for themselves.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.watched.clear();
        state.doubtful.clear();
    }
}

/// The stamp of each instance; `None` for one that has none.
fn stamps(conn: &Connection, instances: &[Arc<str>]) -> rusqlite::Result<Vec<Option<i64>>> {
    let mut select = conn.prepare_cached(SELECT_STAMP)?;
    instances
        .iter()
        .map(|instance| {
            Ok(select.query_row([&**instance], |row| columns::integer(row, 0)).optional()?.flatten())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE everturn_instances (instance_id TEXT PRIMARY KEY, turn_stamp INTEGER)",
        )
        .unwrap();
        conn
    }

    fn commit(conn: &Connection, instance: &str, stamp: i64) {
        let sql = "INSERT OR REPLACE INTO everturn_instances VALUES (?1, ?2)";
        conn.execute(sql, rusqlite::params![instance, stamp]).unwrap();
    }

    /// Another process has committed, and the writer looks until it has seen everything. Returns the number of looks.
    fn look_after_foreign_commit(watches: &InstanceWatches, conn: &Connection) -> usize {
        watches.note_foreign_commit();
        let mut looks = 0;
        while watches.needs_look() {
            watches.look(conn).unwrap();
            looks += 1;
        }
        looks
    }

    fn fired(receiver: &mut watch::Receiver<u64>) -> bool {
        let fired = receiver.has_changed().unwrap();
        receiver.mark_unchanged();
        fired
    }

    #[test]
    fn a_foreign_commit_wakes_only_the_watches_of_instances_that_it_changed() {
        let (watches, conn) = (InstanceWatches::default(), database());
        commit(&conn, "changed", 1);
        let [mut changed, mut idle, mut unborn] =
            ["changed", "idle", "unborn"].map(|instance| watches.watch(instance));
        commit(&conn, "idle", 1);
        look_after_foreign_commit(&watches, &conn);
        assert!(fired(&mut changed) && fired(&mut idle) && fired(&mut unborn), "nothing was known of them");
        commit(&conn, "changed", 2);
        look_after_foreign_commit(&watches, &conn);
        assert!(fired(&mut changed));
        assert!(!fired(&mut idle) && !fired(&mut unborn));
        commit(&conn, "unborn", 1);
        conn.execute("DELETE FROM everturn_instances WHERE instance_id = 'idle'", []).unwrap();
        look_after_foreign_commit(&watches, &conn);
        assert!(fired(&mut unborn), "it was created");
        assert!(fired(&mut idle), "it was deleted");
        assert!(!fired(&mut changed));
    }

    #[test]
    fn a_look_compares_a_bounded_number_of_instances() {
        let (watches, conn) = (InstanceWatches::default(), database());
        let mut receivers: Vec<_> =
            (0..LOOK_MAX * 2 + 1).map(|nth| watches.watch(&format!("i{nth}"))).collect();
        assert_eq!(look_after_foreign_commit(&watches, &conn), 3);
        assert!(receivers.iter_mut().all(fired), "every instance was looked at");
    }

    #[test]
    fn every_instance_is_looked_at_although_others_commit_all_the_time() {
        let (watches, conn) = (InstanceWatches::default(), database());
        let mut receivers: Vec<_> = (0..LOOK_MAX * 3).map(|nth| watches.watch(&format!("i{nth}"))).collect();
        for _ in 0..3 {
            watches.note_foreign_commit();
            watches.look(&conn).unwrap();
        }
        let count = receivers.iter_mut().filter_map(|receiver| fired(receiver).then_some(())).count();
        assert_eq!(count, LOOK_MAX * 3);
    }

    #[test]
    fn a_failed_look_wakes_the_watches_and_trusts_nothing_it_knew() {
        let (watches, conn) = (InstanceWatches::default(), database());
        let mut receiver = watches.watch("i");
        look_after_foreign_commit(&watches, &conn);
        assert!(fired(&mut receiver));
        watches.note_foreign_commit();
        assert!(watches.look(&Connection::open_in_memory().unwrap()).is_err(), "there is no such table");
        assert!(fired(&mut receiver) && !watches.needs_look());
        look_after_foreign_commit(&watches, &conn);
        assert!(fired(&mut receiver), "it may have changed when the look failed");
    }

    #[test]
    fn closing_ends_every_watch() {
        let watches = InstanceWatches::default();
        let before = watches.watch("i");
        watches.close();
        assert!(before.has_changed().is_err(), "its sender is gone");
        assert!(watches.watch("i").has_changed().is_err());
    }

    #[test]
    fn entries_without_a_watch_are_removed() {
        let watches = InstanceWatches::default();
        let _kept = watches.watch("kept");
        for nth in 0..10 * TIDY_MIN {
            drop(watches.watch(&nth.to_string()));
        }
        assert!(watches.state().watched.len() <= 2 * TIDY_MIN, "{}", watches.state().watched.len());
        watches.note_foreign_commit();
        assert_eq!(watches.state().watched.len(), 1);
    }
}
