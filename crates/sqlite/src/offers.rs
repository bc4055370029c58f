//! Handing out work to those who wait for it, inside a batch.

use std::time::Duration;

use everturn_core::{Bug, SemverRange, planted};
use everturn_provider::LockKind;

use crate::batch::{Assignments, Batch, Lost};
use crate::due;
use crate::fetch_orchestration_item::{self as turns, Candidate};
use crate::fetch_work_item as work;
use crate::inbox;
use crate::locks::{RenewLocks, Renewal};
use crate::operation::{Effects, Failure, Order, Scope, Verb};
use crate::writer::{CLOCK_LOOK, Look, Writer};

/// How many candidates are looked at in one query at most.
const CANDIDATES: i64 = 32;
/// How many batches put the end of locks off because holders' calls are still waiting.
const EXPIRY_DEFERRED_MAX: u32 = 16;

/// The ready instances at the front of the queue that nobody who waits can replay: they need not be looked at again as
/// long as only newer ones come.
#[derive(Debug)]
pub(crate) struct Front {
    /// What all who wait can replay; `None` if they differ.
    range: Option<Option<SemverRange>>,
    /// The last of these instances, by its oldest message.
    up_to: i64,
    /// Somebody can replay the next one.
    ends: bool,
}

impl Front {
    fn pass_over(&mut self, seq: i64) {
        if !self.ends {
            self.up_to = seq;
        }
    }
}

impl Writer {
    /// Hands out what is there: first what time has brought, then turns, then activities.
    pub(crate) fn offer(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        self.turns.tidy();
        self.work.tidy();
        self.offer_owed = false;
        if self.turns.is_empty() && self.work.is_empty() {
            return Ok(());
        }
        self.look_at_least_every_second();
        self.look_ahead_in_time()?;
        if (self.look.time || self.is_due(self.now())) && self.may_expire() {
            self.wake_due(batch)?;
        }
        self.offer_turns(batch)?;
        self.offer_work(batch)
    }

    /// However busy the writer is, everything is looked at again from time to time: clocks may have been set.
    fn look_at_least_every_second(&mut self) {
        let now = self.now().monotonic;
        if now.saturating_sub(self.looked_at) >= CLOCK_LOOK {
            self.looked_at = now;
            self.look = Look::EVERYWHERE;
        }
    }

    /// Wakes what time has brought.
    fn wake_due(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        let mut future_locks = std::mem::take(&mut self.future_locks);
        let (mut more, mut woken_ms) = (false, i64::MIN);
        let fresh = batch.effects.held.iter().map(|(token, ..)| token.clone()).collect();
        let woken = self.whole(true, |scope| {
            woken_ms = scope.now.wall_ms;
            kept(due::wake(scope, &mut future_locks, &fresh).map(|unfinished| more = unfinished))
        });
        self.future_locks = future_locks;
        let (kept, effects) = woken?;
        if kept {
            self.absorb(batch, effects);
        }
        self.look.time = more;
        self.woken_ms = woken_ms;
        self.next_due_ms = None;
        self.note_unknown_due();
        Ok(())
    }

    /// Whether locks may end now: not while their holders' calls lie in the queue, unless that takes too long.
    fn may_expire(&mut self) -> bool {
        let holders_wait = self.pending.iter().any(|operation| operation.order() <= Order::Holder);
        self.expiry_deferred = if holders_wait { self.expiry_deferred + 1 } else { 0 };
        if self.expiry_deferred > EXPIRY_DEFERRED_MAX {
            self.expiry_deferred = 0;
        }
        self.expiry_deferred == 0
    }

    fn offer_turns(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        if !self.look.turns || self.turns.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.look.orphans) {
            self.sweep_orphans(batch)?;
        }
        let mut front = self.front();
        let mut after = front.up_to;
        loop {
            let wanted = i64::try_from(self.turns.len()).unwrap_or(CANDIDATES).clamp(1, CANDIDATES);
            let candidates = turns::candidates(&self.conn, after, wanted)?;
            for candidate in &candidates {
                if self.turns.is_empty() || self.is_full(batch) {
                    self.offer_owed = !self.turns.is_empty();
                    self.passed_over = Some(front);
                    return Ok(());
                }
                after = candidate.ready_seq;
                let ended_now = batch.effects.ended_turns.contains(&candidate.key);
                batch.look_again |= ended_now;
                let Some(place) = self.turns.position(|waiter| waiter.accepts(candidate.pin())) else {
                    front.pass_over(after);
                    continue;
                };
                front.ends = true;
                if !ended_now {
                    self.assign_turn(batch, candidate, place)?;
                }
            }
            let last_page = i64::try_from(candidates.len()).is_ok_and(|found| found < wanted);
            if last_page || after == i64::MAX {
                break;
            }
        }
        self.passed_over = Some(front);
        self.look.turns = false;
        batch.no_turn.extend(self.turns.take_once());
        Ok(())
    }

    /// Takes away messages that nobody will ever read.
    fn sweep_orphans(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        let mut more = false;
        let (kept, effects) =
            self.whole(true, |scope| kept(inbox::sweep_orphans(scope).map(|unfinished| more = unfinished)))?;
        if kept {
            self.absorb(batch, effects);
            self.look.orphans = more;
        }
        Ok(())
    }

    /// Where the queue begins for those who wait now.
    fn front(&mut self) -> Front {
        let range = self.turns.common(|waiter| &waiter.range).cloned();
        match self.passed_over.take() {
            Some(front) if range.is_some() && front.range == range => Front { ends: false, ..front },
            _ => Front { range, up_to: i64::MIN, ends: false },
        }
    }

    fn assign_turn(&mut self, batch: &mut Batch, candidate: &Candidate, place: usize) -> Result<(), Lost> {
        let Some(waiter) = self.turns.get(place) else { return Ok(()) };
        let mut assigned = None;
        let mut refusal = None;
        let (kept, effects) = self.whole(false, |scope| match turns::assign(scope, candidate, waiter) {
            Ok(turn) => {
                assigned = turn;
                Ok(true)
            }
            Err(Failure::Refused(error)) => {
                refusal = Some(error);
                Ok(false)
            }
            Err(Failure::Storage(error)) => Err(error),
        })?;
        if kept {
            self.absorb(batch, effects);
        }
        if let Some(error) = refusal.as_ref().filter(|_| planted(Bug::DamageBlocksOthers)) {
            return Err(Lost::Storage(error.to_string()));
        }
        if let Some(error) = refusal
            && self.reported.insert(candidate.key)
        {
            let instance = &candidate.instance_id;
            tracing::error!(target: "everturn::providers::sqlite", instance, %error, "cannot be fetched");
        }
        let (Some(turn), true) = (assigned, kept) else { return Ok(()) };
        let Some(waiter) = self.turns.take(place) else { return Ok(()) };
        batch.operations += 1;
        if turn.lent.is_some() {
            // Warm at a committed position: its turn may begin before this batch is durable.
            batch.early.insert(turn.token.clone());
            self.answer_turn(waiter, turn);
        } else {
            batch.assigned.turns.push((waiter, turn));
        }
        Ok(())
    }

    fn offer_work(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        if !self.look.work || self.work.is_empty() {
            return Ok(());
        }
        let mut place = 0;
        // Waiters that found nothing; whoever wants the same need not look.
        let mut in_vain: Vec<usize> = Vec::new();
        let mut sessions_wait = None;
        while place < self.work.len() {
            if self.is_full(batch) {
                self.offer_owed = true;
                return Ok(());
            }
            let Some(waiter) = self.work.get(place) else { break };
            let sessions_wait = match sessions_wait {
                None if in_vain.is_empty() => false,
                None => *sessions_wait.insert(work::sessions_wait(&self.conn)?),
                Some(known) => known,
            };
            let hopeless = in_vain
                .iter()
                .filter_map(|other| self.work.get(*other))
                .any(|other| waiter.wants_the_same(other, sessions_wait));
            if hopeless {
                place += 1;
                continue;
            }
            let mut assigned = None;
            let (kept, effects) = self.whole(false, |scope| {
                assigned = match work::assign(scope, waiter) {
                    Ok(work) => work,
                    Err(Failure::Refused(error)) => {
                        tracing::error!(target: "everturn::providers::sqlite", %error, "an activity cannot be fetched");
                        return Ok(false);
                    }
                    Err(Failure::Storage(error)) => return Err(error),
                };
                Ok(true)
            })?;
            if kept {
                self.absorb(batch, effects);
            }
            match (assigned, kept) {
                (Some(work), true) => {
                    let Some(waiter) = self.work.take(place) else { break };
                    batch.operations += 1;
                    if planted(Bug::ActivityBeforeCommit) {
                        self.answer_work(waiter, work);
                    } else {
                        batch.assigned.work.push((waiter, work));
                    }
                }
                _ => {
                    in_vain.push(place);
                    place += 1;
                }
            }
        }
        self.look.work = false;
        batch.no_work.extend(self.work.take_once());
        Ok(())
    }

    /// Answers that took so long that their lock has aged get it renewed first.
    pub(crate) fn renew_late(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        if batch.alone || self.late.is_empty() {
            return Ok(());
        }
        batch.late = std::mem::take(&mut self.late);
        // They were ours when they were handed out, and still are if their tokens stand in their rows.
        let assigned_at = batch.late.turns.iter().map(|(_, turn)| turn.at);
        let assigned_at = assigned_at.chain(batch.late.work.iter().map(|(_, work)| work.at));
        let called = assigned_at.min_by_key(|at| at.monotonic).unwrap_or_else(|| self.now());
        let turns = batch.late.turns.iter();
        let turns = turns.map(|(_, turn)| renewal(LockKind::Orchestration, &turn.token, turn.lock_ms));
        let work = batch.late.work.iter();
        let work = work.map(|(_, work)| renewal(LockKind::WorkItem, &work.token, work.lock_ms));
        let verb = RenewLocks { renewals: turns.chain(work).collect(), called };
        let (kept, effects) = self.whole(true, |scope| kept(verb.run(scope).map(|_| ())))?;
        if kept {
            self.absorb(batch, effects);
        }
        // A lock that was lost meanwhile belongs to somebody else; the answer would be worth nothing.
        batch.effects.removed = true;
        Ok(())
    }

    /// What was assigned and then deleted in the same batch is not handed out.
    pub(crate) fn drop_vanished(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        if !batch.effects.removed {
            return Ok(());
        }
        let scope = Scope {
            conn: &self.conn,
            clock: &*self.clock,
            now: self.now(),
            own_locks: &self.own_locks,
            effects: Effects::default(),
        };
        let mut vanished = Assignments::default();
        for list in [&mut batch.assigned, &mut batch.late] {
            for (waiter, turn) in std::mem::take(&mut list.turns) {
                let held = settled(turns::is_held(&scope, &turn.token))?;
                if held { &mut *list } else { &mut vanished }.turns.push((waiter, turn));
            }
            for (waiter, work) in std::mem::take(&mut list.work) {
                let held = settled(work::is_held(&scope, &work.token))?;
                if held { &mut *list } else { &mut vanished }.work.push((waiter, work));
            }
        }
        self.wait_on(vanished);
        Ok(())
    }
}

fn renewal(kind: LockKind, token: &str, lock_ms: u64) -> Renewal {
    Renewal { kind, token: token.to_owned(), extend_for: Duration::from_millis(lock_ms) }
}

/// A refusal rolls the savepoint back, a storage error loses the batch.
fn kept(done: Result<(), Failure>) -> Result<bool, rusqlite::Error> {
    match done {
        Ok(()) => Ok(true),
        Err(Failure::Refused(error)) => {
            tracing::error!(target: "everturn::providers::sqlite", %error, "housekeeping was refused");
            Ok(false)
        }
        Err(Failure::Storage(error)) => Err(error),
    }
}

/// A row that cannot be read is not there.
fn settled(held: Result<bool, Failure>) -> Result<bool, rusqlite::Error> {
    match held {
        Ok(held) => Ok(held),
        Err(Failure::Refused(_)) => Ok(false),
        Err(Failure::Storage(error)) => Err(error),
    }
}
