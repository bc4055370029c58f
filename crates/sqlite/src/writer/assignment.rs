//! Assignment of work to parked fetches, inside a batch.

use std::time::Duration;

use everturn_provider::store::{LockKind, LockRenewal, Renewal};

use crate::due_timers;
use crate::expired_locks;
use crate::fetch_turns::{self, AssignedTurn};
use crate::fetch_work;
use crate::operation::{BatchOrder, Verb, VerbFailure};
use crate::parked_fetches::ParkedTurnFetch;
use crate::ready_instances::{self, Candidate, ReadyPage, StoredHandler};
use crate::ready_work::ReadyWork;
use crate::renew::Renew;
use crate::unknown_instance;
use crate::unreadable::{RowPlace, is_unreadable};
use crate::writer::Writer;
use crate::writer::batch::{Assignments, WriterBatch};
use crate::writer::connection::BatchLoss;

/// How many candidates one query reads at most.
const CANDIDATES_MAX: i64 = 128;
/// How many candidates for a missing handler one query reads.
const CANDIDATES_FOR_HANDLER: i64 = 32;

impl Writer {
    /// Wakes what has become due, then assigns ready instances and ready activities to parked fetches.
    pub(crate) fn assign(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        self.fetches.forget_gone();
        self.schedule.assignment_owed = false;
        if self.fetches.is_empty() {
            return Ok(());
        }
        let now = self.db.now();
        self.schedule.look_at_least_every_second(now);
        self.schedule.look_at_stepping(now);
        if self.schedule.is_look_ahead_overdue(now) {
            // Not ignored: inside a batch an error, even of a read, may have ended the transaction.
            self.schedule.find_next_due(&self.db.conn, now)?;
        }
        if self.schedule.hints.time || self.schedule.is_due(&self.db.own_locks, now) {
            let holders_are_pending =
                self.pending.iter().any(|operation| operation.order() <= BatchOrder::LockHolder);
            let may_expire = self.schedule.may_expire(holders_are_pending);
            self.wake_due(batch, may_expire)?;
        }
        if self.schedule.hints.turns && !self.fetches.turns.is_empty() {
            self.assign_turns(batch)?;
        }
        if self.schedule.hints.work && !self.fetches.work.is_empty() {
            self.assign_activities(batch)?;
        }
        Ok(())
    }

    /// Wakes what has become due: messages, activities and delayed instances, and if they may expire, locks and leases.
    fn wake_due(&mut self, batch: &mut WriterBatch, may_expire: bool) -> Result<(), BatchLoss> {
        let (mut more, mut woken_ms) = (false, i64::MIN);
        let (shown, effects) = self.db.run_whole(true, |scope| {
            woken_ms = scope.now.wall_ms;
            kept(due_timers::show(scope).map(|unfinished| more |= unfinished))
        })?;
        if shown {
            batch.absorb(effects, &mut self.schedule);
        }
        if !may_expire {
            self.schedule.note_expiry_deferred();
            return Ok(());
        }
        let future_locks = &mut self.schedule.future_locks;
        let fresh = batch.effects.held.iter().map(|(token, ..)| token.clone()).collect();
        let (expired, effects) = self.db.run_whole(true, |scope| {
            kept(expired_locks::expire(scope, future_locks, &fresh).map(|unfinished| more |= unfinished))
        })?;
        if expired {
            batch.absorb(effects, &mut self.schedule);
        }
        self.schedule.note_woken(woken_ms, more, self.db.now());
        Ok(())
    }

    /// Assigns ready instances. Fetches that get instances in memory are answered at once.
    fn assign_turns(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        self.assign_ready(batch)?;
        for (fetch, turns) in std::mem::take(&mut batch.assigned.warm) {
            // Warm at a committed position: their turns may begin before this batch is durable.
            batch.early.extend(turns.iter().map(|turn| turn.token.clone()));
            self.answer_turns(fetch, turns);
        }
        Ok(())
    }

    /// Assigns ready instances, the one with the oldest message first.
    fn assign_ready(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        if std::mem::take(&mut self.schedule.hints.orphans) {
            self.delete_orphans(batch)?;
        }
        let mut for_handlers = self.candidates_for_handlers()?;
        let range = self.fetches.turns.common(|fetch| &fetch.range).cloned();
        let mut skipped = self.schedule.take_skipped(range);
        let mut after = skipped.up_to;
        let mut is_stepping = false;
        loop {
            let wanted = self.candidates_wanted(batch);
            let page = ready_instances::ready(&self.db.conn, self.db.rows(), after, wanted);
            let ReadyPage { mut candidates, up_to, has_gaps } = page.map_err(|error| self.db.loss(error))?;
            skipped.ends |= has_gaps;
            let page_end = up_to.unwrap_or(i64::MAX);
            let of_page = for_handlers.partition_point(|candidate| candidate.ready_seq <= page_end);
            candidates.extend(for_handlers.drain(..of_page));
            candidates.sort_by_key(|candidate| candidate.ready_seq);
            let is_full = candidates.len() as i64 >= wanted;
            let mut candidates = candidates.iter();
            while let Some(candidate) = candidates.next() {
                if self.fetches.turns.is_empty() || batch.is_full_for_fetches(&self.limits) {
                    self.schedule.assignment_owed = !self.fetches.turns.is_empty();
                    self.schedule.keep_skipped(skipped);
                    return self.assign_beside(batch, std::iter::once(candidate).chain(candidates));
                }
                let ended_now = batch.effects.ended_turns.contains(&candidate.key);
                batch.look_again |= ended_now;
                if self.fetches.turns.position(|fetch| fetch.is_stepping(candidate)).is_some() {
                    // What the step commits has the writer look again; it may also end without a commit.
                    (skipped.ends, is_stepping) = (true, true);
                    continue;
                }
                let place = self.fetches.turns.position(|fetch| fetch.may_take(candidate));
                if candidate.missing_handler.is_none() {
                    match place {
                        Some(_) => skipped.ends = true,
                        None => skipped.skip(candidate.ready_seq),
                    }
                }
                if let (Some(place), false) = (place, ended_now) {
                    let may_have_others = self.assign_turn(batch, candidate, place)?;
                    self.schedule.several_are_ready = is_full && may_have_others;
                }
            }
            after = page_end;
            if after == i64::MAX {
                break;
            }
        }
        self.schedule.keep_skipped(skipped);
        self.schedule.hints.turns = false;
        self.schedule.note_stepping(is_stepping, self.db.now());
        batch.no_turn.extend(self.fetches.turns.take_once());
        Ok(())
    }

    /// How many ready instances to look at: one for each fetch, or as many as the fetches take.
    fn candidates_wanted(&self, batch: &WriterBatch) -> i64 {
        let wanted = if self.schedule.several_are_ready {
            let served = batch.assigned.turns.iter().chain(&batch.assigned.warm);
            let rooms = served.map(|(fetch, turns)| fetch.turns_max.saturating_sub(turns.len()));
            let rooms = self.fetches.turns.iter().map(|fetch| fetch.turns_max).chain(rooms);
            rooms.fold(0, usize::saturating_add)
        } else {
            self.fetches.turns.len()
        };
        i64::try_from(wanted).unwrap_or(CANDIDATES_MAX).clamp(1, CANDIDATES_MAX)
    }

    /// Instances that were given back for the lack of a handler which a parked fetch has, as many as there are fetches for
    /// each handler; the one with the oldest message first. The fetches are asked now: what they have may change.
    fn candidates_for_handlers(&self) -> Result<Vec<Candidate>, BatchLoss> {
        let (conn, fetches) = (&self.db.conn, &self.fetches.turns);
        let mut found = Vec::new();
        let mut handler = StoredHandler::default();
        while let Some(next) = handler.next(conn)? {
            handler = next;
            let key = handler.key();
            if fetches.position(|fetch| fetch.has(&key)).is_none() {
                continue;
            }
            let (mut after, mut places) = (i64::MIN, fetches.len());
            while places > 0 {
                let page =
                    ready_instances::ready_for(conn, self.db.rows(), &handler, after, CANDIDATES_FOR_HANDLER);
                let ReadyPage { candidates, up_to, .. } = page.map_err(|error| self.db.loss(error))?;
                let may_be_taken =
                    |candidate: &Candidate| fetches.position(|fetch| fetch.may_take(candidate)).is_some();
                let page = candidates.into_iter().filter(may_be_taken).take(places);
                let before = found.len();
                found.extend(page);
                places -= found.len() - before;
                let Some(up_to) = up_to else { break };
                after = up_to;
            }
        }
        found.sort_by_key(|candidate: &Candidate| candidate.ready_seq);
        Ok(found)
    }

    /// Deletes messages that no instance will ever read.
    fn delete_orphans(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        let mut more = false;
        let (kept, effects) = self.db.run_whole(true, |scope| {
            kept(unknown_instance::delete_orphans(scope).map(|unfinished| more = unfinished))
        })?;
        if kept {
            batch.absorb(effects, &mut self.schedule);
            self.schedule.hints.orphans = more;
        }
        Ok(())
    }

    /// Assigns an instance to the parked fetch in this place. Returns whether the fetch may take others too.
    fn assign_turn(
        &mut self,
        batch: &mut WriterBatch,
        candidate: &Candidate,
        place: usize,
    ) -> Result<bool, BatchLoss> {
        let Some(fetch) = self.fetches.turns.take(place) else { return Ok(false) };
        match self.lock_turn(batch, candidate, &fetch, false) {
            Ok(Some(turn)) => {
                let may_have_others = turn.may_have_others();
                batch.assigned.served(turn.lent.is_some()).push((fetch, vec![turn]));
                Ok(may_have_others)
            }
            not_locked => {
                self.fetches.turns.park_again(fetch);
                not_locked.map(|_none| false)
            }
        }
    }

    /// No parked fetch is without an instance: assigns the next ones to fetches that take several, as long as they need not
    /// come alone. Starts come beside starts, instances in memory beside others in memory.
    fn assign_beside<'a>(
        &mut self,
        batch: &mut WriterBatch,
        candidates: impl Iterator<Item = &'a Candidate>,
    ) -> Result<(), BatchLoss> {
        for candidate in candidates {
            let in_memory = !candidate.origin.is_start();
            let has_room = |(fetch, turns): &(ParkedTurnFetch, Vec<AssignedTurn>)| {
                turns.len() < fetch.turns_max
                    && turns.iter().all(AssignedTurn::may_have_others)
                    && fetch.may_take(candidate)
                    && !fetch.is_stepping(candidate)
            };
            let ended_now = batch.effects.ended_turns.contains(&candidate.key);
            if ended_now || batch.is_full_for_fetches(&self.limits) {
                break;
            }
            let served = batch.assigned.served(in_memory);
            let with_room = served.iter().enumerate().filter(|(_, fetch)| has_room(fetch));
            // The one with the fewest: all slots get work.
            let Some((place, _)) = with_room.min_by_key(|(_, (_, turns))| turns.len()) else { break };
            let (fetch, mut turns) = served.swap_remove(place);
            let locked = self.lock_turn(batch, candidate, &fetch, true);
            let is_last = !matches!(locked, Ok(Some(_)));
            let outcome = locked.map(|turn| turns.extend(turn));
            // One that left memory in this moment is read, and no turn of its fetch begins before the commit.
            let in_memory = turns.iter().all(|turn| turn.lent.is_some());
            batch.assigned.served(in_memory).push((fetch, turns));
            outcome?;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Locks an instance for a fetch, which may have others already; `None` if it cannot be given to it now.
    fn lock_turn(
        &mut self,
        batch: &mut WriterBatch,
        candidate: &Candidate,
        fetch: &ParkedTurnFetch,
        has_others: bool,
    ) -> Result<Option<AssignedTurn>, BatchLoss> {
        let mut assigned = None;
        let mut refusal = None;
        let (kept, effects) = self.db.run_whole(self.outage.is_careful(), |scope| {
            scope.rows.at(RowPlace::Instance(candidate.key));
            match fetch_turns::assign(scope, candidate, fetch, has_others) {
                Ok(turn) => {
                    assigned = turn;
                    Ok(true)
                }
                Err(VerbFailure::Refused(error)) => {
                    refusal = Some(error);
                    Ok(false)
                }
                Err(VerbFailure::Storage(error)) => Err(error),
            }
        })?;
        if kept {
            batch.absorb(effects, &mut self.schedule);
        }
        if let Some(error) = refusal
            && self.reported.insert(candidate.key)
        {
            let instance_id = &candidate.instance_id;
            tracing::error!(target: "everturn::providers::sqlite", instance_id, %error,
                "the rows of an instance are damaged; it is not run until they are repaired or it is deleted");
        }
        let assigned = assigned.filter(|_| kept);
        batch.operations += usize::from(assigned.is_some());
        Ok(assigned)
    }

    /// Assigns ready activities, to the fetch that was parked first.
    fn assign_activities(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        let mut place = 0;
        let mut ready = ReadyWork::for_fetches(self.fetches.work.len());
        while let Some(fetch) = self.fetches.work.get(place) {
            if batch.is_full_for_fetches(&self.limits) {
                self.schedule.assignment_owed = true;
                return Ok(());
            }
            // Most fetches find nothing: they need no savepoint.
            let now_ms = self.db.now().wall_ms;
            let oldest = ready.oldest_for(&self.db.conn, self.db.rows(), fetch, now_ms);
            match oldest {
                Ok(None) => {
                    place += 1;
                    continue;
                }
                Err(error) if is_unreadable(&error) => return Err(self.db.loss(error)),
                // A damaged value comes up again below.
                Ok(Some(_)) | Err(_) => {}
            }
            let mut assigned = None;
            let (kept, effects) = self.db.run_whole(self.outage.is_careful(), |scope| {
                assigned = match fetch_work::assign(scope, fetch, &mut ready) {
                    Ok(work) => work,
                    Err(VerbFailure::Refused(error)) => {
                        tracing::error!(target: "everturn::providers::sqlite", %error,
                            "a damaged activity can be neither assigned nor dead-lettered; repair or delete its row");
                        return Ok(false);
                    }
                    Err(VerbFailure::Storage(error)) => return Err(error),
                };
                Ok(true)
            })?;
            if kept {
                batch.absorb(effects, &mut self.schedule);
            } else {
                ready.forget();
            }
            match (assigned, kept) {
                (Some(work), true) => {
                    let Some(fetch) = self.fetches.work.take(place) else { break };
                    batch.operations += 1;
                    batch.assigned.work.push((fetch, work));
                }
                _ => place += 1,
            }
        }
        self.schedule.hints.work = false;
        batch.no_work.extend(self.fetches.work.take_once());
        Ok(())
    }

    /// Renews the locks of assignments whose answer took so long that the lock has aged.
    pub(crate) fn renew_late(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        batch.late = std::mem::take(&mut self.late);
        // The locks were ours when they were assigned, and still are if their tokens are in their rows.
        let turns = || batch.late.turns.iter().flat_map(|(_, turns)| turns);
        let assigned_at = turns().map(|turn| turn.at).chain(batch.late.work.iter().map(|(_, work)| work.at));
        let called = assigned_at.min_by_key(|at| at.monotonic).unwrap_or_else(|| self.db.now());
        let turns = turns().map(|turn| lock_renewal(LockKind::Orchestration, &turn.token, turn.lock_ms));
        let work = batch.late.work.iter();
        let work = work.map(|(_, work)| lock_renewal(LockKind::WorkItem, &work.token, work.lock_ms));
        let verb = Renew { renewal: Renewal::of_locks(turns.chain(work).collect()), called };
        let (kept, effects) = self.db.run_whole(true, |scope| kept(verb.run(scope).map(|_| ())))?;
        if kept {
            batch.absorb(effects, &mut self.schedule);
        }
        // A lock that was lost meanwhile has another holder: its fetch is not answered but parked again.
        batch.effects.removed = true;
        Ok(())
    }

    /// Parks fetches again whose assigned row was deleted or taken over in the same batch.
    pub(crate) fn drop_vanished(&mut self, batch: &mut WriterBatch) -> Result<(), BatchLoss> {
        let scope = self.db.scope();
        let mut vanished = Assignments::default();
        for list in [&mut batch.assigned, &mut batch.late] {
            for (fetch, turns) in std::mem::take(&mut list.turns) {
                let mut held = Vec::with_capacity(turns.len());
                for turn in turns {
                    if missing_if_damaged(fetch_turns::is_held(&scope, &turn.token))? {
                        held.push(turn);
                    }
                }
                if held.is_empty() { &mut vanished } else { &mut *list }.turns.push((fetch, held));
            }
            for (fetch, work) in std::mem::take(&mut list.work) {
                let held = missing_if_damaged(fetch_work::is_held(&scope, &work.token))?;
                if held { &mut *list } else { &mut vanished }.work.push((fetch, work));
            }
        }
        self.park_again(vanished);
        Ok(())
    }
}

fn lock_renewal(kind: LockKind, token: &str, lock_ms: u64) -> LockRenewal {
    LockRenewal { kind, token: token.to_owned(), extend_for: Duration::from_millis(lock_ms) }
}

/// A refusal rolls the savepoint back, a storage error loses the batch.
pub(crate) fn kept(done: Result<(), VerbFailure>) -> Result<bool, rusqlite::Error> {
    match done {
        Ok(()) => Ok(true),
        Err(VerbFailure::Refused(error)) => {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "damaged rows prevented housekeeping (expired locks, due messages, orphans); it is tried again");
            Ok(false)
        }
        Err(VerbFailure::Storage(error)) => Err(error),
    }
}

/// A row that cannot be read counts as missing.
fn missing_if_damaged(held: Result<bool, VerbFailure>) -> Result<bool, rusqlite::Error> {
    match held {
        Ok(held) => Ok(held),
        Err(VerbFailure::Refused(_)) => Ok(false),
        Err(VerbFailure::Storage(error)) => Err(error),
    }
}
