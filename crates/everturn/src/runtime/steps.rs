//! Fused steps: who takes the turn when activities of one instance end in this process.
//!
//! The first activity to end leads: its worker takes the turn on the outcome and commits both together. Activities of the
//! same instance that end meanwhile wait, and the first of them leads next, with the outcomes of all. So the turns of one
//! instance are serial, and a burst of outcomes becomes few turns.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::store::{FetchedWork, NextWork, Stamp};
use tokio::sync::oneshot;

use super::unfinished_work::WorkUnderWay;

/// After a declined step so many outcomes of the instance go the ordinary way: the reason may last.
const ORDINARY_AFTER_DECLINE: u32 = 8;
/// Of so many instances it is remembered that their steps were declined, and why.
const DECLINED_MAX: usize = 4_096;

/// An activity that ended in this process.
pub(crate) struct EndedActivity {
    pub(crate) execution_id: u64,
    pub(crate) activity_id: u64,
    /// The message that brings the outcome to the orchestration.
    pub(crate) completion: WorkItem,
    pub(crate) lock_token: String,
    /// What its worker can run next.
    pub(crate) next: Option<NextWork>,
}

/// The activity that a worker goes on with. Dropped unread, its lock is abandoned when the runtime stops.
pub(crate) struct TakenWork {
    pub(crate) work: FetchedWork,
    pub(crate) under_way: WorkUnderWay,
}

/// What became of an ended activity that waited.
pub(crate) enum StepNews {
    /// Its worker leads now.
    Lead(StepLead),
    /// Its outcome is committed; what the worker goes on with.
    Committed(Option<Box<TakenWork>>),
    /// Its outcome goes the ordinary way.
    NotFused,
}

/// An ended activity on its way into a step.
pub(crate) enum Entered {
    /// No other step of the instance is under way.
    Leads(StepLead),
    /// One is under way; the news come after it.
    Waits(oneshot::Receiver<StepNews>),
    /// Steps of the instance were declined: the ordinary way.
    NotFused,
}

/// An ended activity that waits for a leader.
pub(crate) struct WaitingActivity {
    pub(crate) ended: Arc<EndedActivity>,
    news: oneshot::Sender<StepNews>,
}

impl WaitingActivity {
    /// Tells its worker, if that still waits.
    pub(crate) fn tell(self, news: StepNews) {
        drop(self.news.send(news));
    }

    /// Its outcome is committed, and its worker goes on with `next`. Returns that if the worker waits no longer.
    pub(crate) fn tell_committed(self, next: Option<Box<TakenWork>>) -> Option<Box<TakenWork>> {
        match self.news.send(StepNews::Committed(next)) {
            Err(StepNews::Committed(untaken)) => untaken,
            Ok(()) | Err(_) => None,
        }
    }
}

/// The steps under way in one runtime; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<StepsInner>>);

#[derive(Default)]
struct StepsInner {
    /// Instances with a leader, and the ended activities that wait for it.
    waiting: HashMap<String, VecDeque<WaitingActivity>>,
    /// How many more outcomes of an instance go the ordinary way.
    declined: HashMap<String, u32>,
    /// Steps that were not committed because their replay differed.
    differences: HashMap<String, (Stamp, ErrorDetails)>,
}

impl Steps {
    /// Takes part in the next step of the instance, or leads it.
    pub(crate) fn enter(&self, instance: &str, ended: &Arc<EndedActivity>) -> Entered {
        let mut steps = self.inner();
        if let Some(waiting) = steps.waiting.get_mut(instance) {
            let (news, receiver) = oneshot::channel();
            waiting.push_back(WaitingActivity { ended: Arc::clone(ended), news });
            return Entered::Waits(receiver);
        }
        if let Some(left) = steps.declined.get_mut(instance) {
            *left -= 1;
            if *left == 0 {
                steps.declined.remove(instance);
            }
            return Entered::NotFused;
        }
        steps.waiting.insert(instance.to_owned(), VecDeque::new());
        Entered::Leads(StepLead { instance: instance.to_owned(), steps: self.clone() })
    }

    /// A step of the instance was declined.
    pub(crate) fn note_declined(&self, instance: &str) {
        let mut steps = self.inner();
        if steps.declined.len() >= DECLINED_MAX {
            steps.declined.clear();
        }
        steps.declined.insert(instance.to_owned(), ORDINARY_AFTER_DECLINE);
    }

    /// A step on `base` was not committed because its replay differed.
    pub(crate) fn note_difference(&self, instance: &str, base: Stamp, difference: ErrorDetails) {
        let mut steps = self.inner();
        if steps.differences.len() >= DECLINED_MAX {
            steps.differences.clear();
        }
        steps.differences.insert(instance.to_owned(), (base, difference));
    }

    /// How the replay of a step on `base` differed, if one did.
    pub(crate) fn take_difference(&self, instance: &str, base: Stamp) -> Option<ErrorDetails> {
        let mut steps = self.inner();
        if steps.differences.is_empty() {
            return None;
        }
        let (noted_base, difference) = steps.differences.remove(instance)?;
        (noted_base == base).then_some(difference)
    }

    fn inner(&self) -> MutexGuard<'_, StepsInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to take the next turn of an instance. When it is dropped, the first activity that waits leads.
pub(crate) struct StepLead {
    pub(crate) instance: String,
    steps: Steps,
}

impl StepLead {
    /// The ended activities that wait.
    pub(crate) fn take_waiting(&self) -> VecDeque<WaitingActivity> {
        let mut steps = self.steps.inner();
        steps.waiting.get_mut(&self.instance).map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for StepLead {
    fn drop(&mut self) {
        // Empty if another leads already.
        let mut instance = std::mem::take(&mut self.instance);
        while !instance.is_empty() {
            let next = {
                let mut steps = self.steps.inner();
                let next = steps.waiting.get_mut(&instance).and_then(VecDeque::pop_front);
                if next.is_none() {
                    steps.waiting.remove(&instance);
                }
                next
            };
            let Some(next) = next else { return };
            let lead = Self { instance, steps: self.steps.clone() };
            // A worker that is gone does not take it: the one behind it leads.
            instance = match next.news.send(StepNews::Lead(lead)) {
                Err(StepNews::Lead(mut lead)) => std::mem::take(&mut lead.instance),
                Ok(()) | Err(_) => return,
            };
        }
    }
}

#[cfg(test)]
mod tests;
