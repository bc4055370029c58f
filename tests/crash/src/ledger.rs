//! What the outside world was told, and what it saw: the other half of every promise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use everturn::OrchestrationStatus;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// What the outside world knows. It is no part of the machine: nothing that happens to that is forgotten here.
#[derive(Default)]
pub struct Ledger {
    state: Mutex<Known>,
    witness: Option<fn(&Fact)>,
}

/// Something the outside world was told, or saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The start of an instance is accepted.
    Started(String),
    /// The signal to an instance is accepted, after it was seen to wait for it.
    Raised(String),
    /// The cancellation of an instance is accepted.
    Cancelled(String),
    /// A message to an instance is accepted.
    Message(String, String),
    /// An instance was seen to have ended.
    Ended(String, Outcome),
    /// An activity returned: of this instance and execution, with this input and this result.
    Ran(String, u64, String, String),
    /// A call was refused for good, and should not have been.
    Refused(String),
    /// A call is about to be made to an instance, with a message that is this; its answer may get lost.
    Asked(String, String),
    /// A turn was committed, and the runtime was told so.
    Turn,
    /// A lock ended while somebody worked under it.
    LockEnded,
    /// A commit or a renewal that came after the end of its lock was refused.
    RefusedLate,
    /// Something was seen that must not be.
    Wrong(String),
}

/// Everything that is known.
#[derive(Default, Clone)]
pub struct Known {
    /// What was asked for, and what was answered, by instance.
    pub instances: BTreeMap<String, Told>,
    /// What activities returned, run by run: by instance, execution and input.
    pub runs: BTreeMap<(String, u64, String), BTreeSet<String>>,
    /// How many times activities ran.
    pub run_count: u64,
    /// Errors that will not pass by themselves, of calls that nothing was wrong with.
    pub refusals: Vec<String>,
    /// Turns with events whose commit was answered with `Ok`. One whose answer was lost is not among them.
    pub turns: u64,
    /// Locks that ended while somebody worked under them.
    pub locks_ended: u64,
    /// Commits and renewals that came after the end of their lock, and were refused.
    pub refused_late: u64,
    /// What was seen that must not be.
    pub wrong: Vec<String>,
}

/// What a client was told about one instance: what is set was answered with `Ok`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What the instance does.
    pub plan: Plan,
    /// Its start is accepted.
    pub started: bool,
    /// Its signal is accepted, after it was seen to wait for it.
    pub raised: bool,
    /// Its cancellation is accepted.
    pub cancelled: bool,
    /// The queue messages that were accepted.
    pub messages: BTreeSet<String>,
    /// How often each message was sent, whatever the answer.
    pub asked: BTreeMap<String, u64>,
    /// How it ended, as read by the client.
    pub outcome: Option<Outcome>,
}

impl Told {
    /// Nothing was said about an instance with this plan.
    pub fn nothing(plan: Plan) -> Self {
        Self {
            plan,
            started: false,
            raised: false,
            cancelled: false,
            messages: BTreeSet::new(),
            asked: BTreeMap::new(),
            outcome: None,
        }
    }
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// With this output.
    Completed(String),
    /// For this reason.
    Failed(String),
}

impl Outcome {
    /// The end that a status tells of, if it does.
    pub fn of(status: &OrchestrationStatus) -> Option<Self> {
        match status {
            OrchestrationStatus::Completed { output, .. } => Some(Self::Completed(output.clone())),
            OrchestrationStatus::Failed { details, .. } => Some(Self::Failed(details.display_message())),
            _ => None,
        }
    }
}

impl Ledger {
    /// A ledger of instances that nobody was told anything about.
    pub fn new(plans: impl IntoIterator<Item = (String, Plan)>) -> Self {
        Self::going_on(plans.into_iter().map(|(id, plan)| (id, Told::nothing(plan))).collect(), 0, None)
    }

    /// A ledger in the middle of a story: its runs are numbered from `first_run` on, and `witness` hears of every fact.
    pub fn going_on(instances: BTreeMap<String, Told>, first_run: u64, witness: Option<fn(&Fact)>) -> Self {
        let known = Known { instances, run_count: first_run, ..Known::default() };
        Self { state: Mutex::new(known), witness }
    }

    /// Another instance.
    pub fn add(&self, instance: String, plan: Plan) {
        self.state().instances.insert(instance, Told::nothing(plan));
    }

    fn state(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is known.
    pub fn known(&self) -> Known {
        self.state().clone()
    }

    /// What is known of one instance.
    pub fn told(&self, instance: &str) -> Told {
        self.state().instances[instance].clone()
    }

    /// Learns something.
    pub fn learn(&self, fact: Fact) {
        if let Some(witness) = self.witness {
            witness(&fact);
        }
        let mut state = self.state();
        match fact {
            Fact::Started(id) => state.of(&id).started = true,
            Fact::Raised(id) => state.of(&id).raised = true,
            Fact::Cancelled(id) => state.of(&id).cancelled = true,
            Fact::Message(id, message) => state.of(&id).messages.extend([message]),
            Fact::Ended(id, outcome) => state.of(&id).outcome = Some(outcome),
            Fact::Refused(refusal) => state.refusals.push(refusal),
            Fact::Asked(id, message) => *state.of(&id).asked.entry(message).or_default() += 1,
            Fact::Turn => state.turns += 1,
            Fact::LockEnded => state.locks_ended += 1,
            Fact::RefusedLate => state.refused_late += 1,
            Fact::Wrong(wrong) => state.wrong.push(wrong),
            Fact::Ran(id, execution_id, input, result) => {
                state.runs.entry((id, execution_id, input)).or_default().insert(result);
            }
        }
    }

    /// An activity runs: returns what makes this run different from all others.
    pub fn begin_run(&self) -> u64 {
        let mut state = self.state();
        state.run_count += 1;
        state.run_count
    }
}

impl Known {
    fn of(&mut self, instance: &str) -> &mut Told {
        self.instances.get_mut(instance).expect("the ledger knows every instance")
    }
}
