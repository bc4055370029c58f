//! Committing a turn together with the activities whose outcomes it was taken on.

use super::tables::{Instance, Moment, Stored, Tables};
use crate::error::ProviderError;
use crate::store::{EndedWork, FetchedWork, NextWork, Stamp, StepAnswer, StepCommit, StepDecline, WorkFetch};

const OPERATION: &str = "commit_step";

impl Tables {
    /// Commits a step and leaves `stamp` on the instance, or declines it and changes nothing.
    pub fn commit_step(
        &mut self,
        now: Moment,
        stamp: Stamp,
        step: &StepCommit,
    ) -> Result<StepAnswer, ProviderError> {
        let instance = step.instance.as_str();
        let stored = self.stamps.get(instance).copied();
        if stored == step.turn.stamp && stored.is_some() || self.has_locked_for(step) {
            return Ok(self.answer_again(now, step));
        }
        if stored.is_none() || stored != step.turn.base {
            return Ok(StepAnswer::Declined(StepDecline::HistoryMoved));
        }
        let is_delayed = self.instance_delays.get(instance).is_some_and(|delay| !delay.is_over(now));
        if is_delayed || self.is_instance_locked(instance, now) {
            return Ok(StepAnswer::Declined(StepDecline::Locked));
        }
        let mut messages = self.orchestrator_queue.values();
        if messages.any(|message| message.instance == instance && message.is_visible(now)) {
            // A fetch may have passed the instance over because of this step.
            self.changes.orchestrator_queue = true;
            return Ok(StepAnswer::Declined(StepDecline::MessagesWaiting));
        }
        let locks = step.ended.iter().map(|ended| self.activity_locked_by(OPERATION, &ended.lock_token, now));
        let Ok(rows) = locks.collect::<Result<Vec<u64>, _>>() else {
            return Ok(StepAnswer::Declined(StepDecline::WorkGone));
        };
        self.check_turn(OPERATION, instance, &step.turn)?;
        for row_id in rows {
            self.touch_session(row_id, now);
            self.worker_queue.remove(&row_id);
        }
        self.write_turn(now, stamp, instance.to_owned(), step.turn.clone());
        let next = step.ended.iter().map(|ended| self.fetch_next(now, ended));
        Ok(StepAnswer::Committed(next.collect()))
    }

    /// Whether an activity is locked with a token that only this step gives.
    fn has_locked_for(&self, step: &StepCommit) -> bool {
        let mut tokens = step.ended.iter().filter_map(|ended| ended.next.as_ref()).map(token_of);
        tokens.any(|token| self.row_locked_with(&token).is_some())
    }

    fn row_locked_with(&self, token: &str) -> Option<u64> {
        let mut rows = self.worker_queue.iter();
        let held = rows.find(|(_, activity)| activity.lock.as_ref().is_some_and(|lock| lock.token == token));
        held.map(|(row_id, _)| *row_id)
    }

    /// The answer to a step that was committed before: the activities that are still locked with its tokens.
    fn answer_again(&self, now: Moment, step: &StepCommit) -> StepAnswer {
        let next = step.ended.iter().map(|ended| self.locked_before(now, ended.next.as_ref()?));
        StepAnswer::Committed(next.collect())
    }

    fn locked_before(&self, now: Moment, next: &NextWork) -> Option<FetchedWork> {
        let token = token_of(next);
        let activity = self.worker_queue.get(&self.row_locked_with(&token)?)?;
        let lock_left = now.until(activity.lock.as_ref()?.held_until);
        let Stored::Good(item) = &activity.item else { return None };
        let mut work = FetchedWork::new(item.clone(), token, lock_left, activity.attempt_count);
        work.orchestration = self.instances.get(item.instance()).map(Instance::orchestration);
        Some(work).filter(|work| !work.lock_left.is_zero())
    }

    /// Locks what the worker of an ended activity runs next.
    fn fetch_next(&mut self, now: Moment, ended: &EndedWork) -> Option<FetchedWork> {
        let next = ended.next.as_ref()?;
        let one = WorkFetch::clone(&next.fetch).with_work_max(1);
        self.fetch_work(now, &one, || token_of(next)).pop()
    }
}

fn token_of(next: &NextWork) -> String {
    format!("{:032x}", next.random)
}
