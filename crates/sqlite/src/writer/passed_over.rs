//! Rows that cannot be read are passed over: the writer goes on without them, and logs them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::locks::row_of;
use crate::ready_instances;
use crate::unreadable::RowPlace;
use crate::writer::Writer;
use crate::writer::batch::{Assignments, WriterBatch};

const NAME_OF_INSTANCE: &str = "SELECT instance_id FROM everturn_instances INDEXED BY sqlite_autoindex_everturn_instances_1 \
     WHERE instance_key = ?1";
const INSTANCE_OF_ACTIVITY: &str = "SELECT instance_id FROM everturn_worker_queue WHERE seq = ?1";

impl Writer {
    /// A row ended the batch because it could not be read: runs the batch again without it.
    pub(crate) fn run_again_without(&mut self, batch: WriterBatch, place: RowPlace, reason: &str) {
        if let Err(error) = self.db.roll_back() {
            self.lose(batch, &error.to_string());
            return;
        }
        self.pass_over(place, None, reason);
        if self.outage.may_pass_over() {
            self.run_again_carefully(batch);
        } else {
            self.lose(batch, reason);
        }
    }

    /// Leaves a row alone for a while. Outside of a transaction, because the row may be read once more.
    pub(crate) fn pass_over(&mut self, place: RowPlace, instance: Option<String>, reason: &str) {
        let commits = self.shared.commits.load(Ordering::Relaxed);
        let now = self.db.clock.monotonic();
        let Some(passed_over) = self.db.unreadable.note(place, now, commits) else { return };
        metrics::counter!("everturn_sqlite_rows_passed_over_total").increment(1);
        if let RowPlace::Garbage(_) | RowPlace::GarbageList = place {
            self.garbage.look_after_pause(now);
        }
        if let RowPlace::ReadyBehind(seq) = place {
            let beyond = ready_instances::readable_beyond(&self.db.conn, seq);
            self.db.unreadable.note_beyond(place, beyond);
        }
        if passed_over.must_log {
            let instance_id =
                instance.or_else(|| self.instance_at(place)).unwrap_or_else(|| "unknown".to_owned());
            let pause_ms = u64::try_from(passed_over.pause.as_millis()).unwrap_or(u64::MAX);
            tracing::error!(target: "everturn::providers::sqlite", instance_id, row = ?place, reason, pause_ms,
                "stored data of an instance cannot be read; it is passed over and tried again after a pause of up to \
                 half a minute, other instances go on; check the disk, then repair or restore the file, or delete the \
                 instance");
        }
        self.show_unreadable();
    }

    /// The instance that a row belongs to, if that can be read.
    fn instance_at(&self, place: RowPlace) -> Option<String> {
        let (select, row) = match place {
            RowPlace::Instance(key) => (NAME_OF_INSTANCE, key),
            RowPlace::Activity(seq) => (INSTANCE_OF_ACTIVITY, seq),
            RowPlace::Message(_)
            | RowPlace::ReadyBehind(_)
            | RowPlace::Leases
            | RowPlace::Garbage(_)
            | RowPlace::GarbageList => return None,
        };
        // It is only for the log: an error says as much as no name.
        self.db.conn.prepare_cached(select).ok()?.query_row([row], |row| row.get(0)).ok()
    }

    /// A committed batch has read these rows: turns that ended, and activities that were assigned.
    pub(crate) fn note_read(&mut self, ended_turns: &HashSet<i64>, assigned: &Assignments) {
        if self.db.unreadable.is_empty() {
            return;
        }
        let turns = ended_turns.iter().map(|key| RowPlace::Instance(*key));
        let work = assigned.work.iter().filter_map(|(_, work)| row_of(&work.token)).map(RowPlace::Activity);
        for place in turns.chain(work) {
            if self.db.unreadable.note_read(place) {
                tracing::info!(target: "everturn::providers::sqlite", row = ?place,
                    "stored data that could not be read was read again; its instance goes on");
            }
        }
        self.show_unreadable();
    }

    pub(crate) fn show_unreadable(&self) {
        let rows = u32::try_from(self.db.unreadable.logged_count()).unwrap_or(u32::MAX);
        metrics::gauge!("everturn_sqlite_rows_unreadable").set(f64::from(rows));
    }
}
