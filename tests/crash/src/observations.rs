//! What clients were answered and what activities and runtimes did, recorded outside the machine: no crash can change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use everturn::OrchestrationStatus;
use serde::{Deserialize, Serialize};

use crate::instance_script::InstanceScript;

/// All observations of a case.
#[derive(Default)]
pub struct ObservationLog {
    state: Mutex<Observations>,
    on_record: Option<fn(&Observation)>,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observation {
    /// The start of an instance is accepted.
    Started(String),
    /// The signal to an instance is accepted, after a client saw that the instance waits for it.
    Raised(String),
    /// The cancellation of an instance is accepted.
    Cancelled(String),
    /// A message to an instance is accepted.
    Message(String, String),
    /// A client read that an instance has ended.
    Ended(String, InstanceOutcome),
    /// An activity returned: of this instance and execution, with this input and this result.
    Ran(String, u64, String, String),
    /// A valid call failed with an error that is not retryable.
    Refused(String),
    /// A client is about to send this message to an instance; the answer may get lost.
    Asked(String, String),
    /// The commit of a turn was answered with `Ok`.
    Turn,
    /// A lock expired while its holder worked under it.
    LockEnded,
    /// A commit or a renewal after the expiry of its lock was refused.
    RefusedLate,
    /// Something that must not happen.
    Wrong(String),
}

/// Everything that was observed so far.
#[derive(Default, Clone)]
pub struct Observations {
    /// What was asked for, and what was answered, by instance.
    pub instances: BTreeMap<String, InstanceObservations>,
    /// What activities returned, run by run: by instance, execution and input.
    pub runs: BTreeMap<(String, u64, String), BTreeSet<String>>,
    /// How many times activities ran.
    pub run_count: u64,
    /// Errors of valid calls that are not retryable.
    pub refusals: Vec<String>,
    /// Turns with events whose commit was answered with `Ok`. A turn whose answer was lost is not counted.
    pub turns: u64,
    /// Locks that expired while their holders worked under them.
    pub locks_ended: u64,
    /// Commits and renewals after the expiry of their lock that were refused.
    pub refused_late: u64,
    /// What must not happen, and did.
    pub wrong: Vec<String>,
}

/// What clients know of one instance: what is set was answered with `Ok`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceObservations {
    /// What the instance does.
    pub script: InstanceScript,
    /// Its start is accepted.
    pub started: bool,
    /// Its signal is accepted, after a client saw that it waits for it.
    pub raised: bool,
    /// Its cancellation is accepted.
    pub cancelled: bool,
    /// The queue messages that were accepted.
    pub messages: BTreeSet<String>,
    /// How often each message was sent, whatever the answer.
    pub asked: BTreeMap<String, u64>,
    /// How it ended, as a client read it.
    pub outcome: Option<InstanceOutcome>,
}

impl InstanceObservations {
    /// An instance of which nothing is known yet.
    pub fn none(script: InstanceScript) -> Self {
        Self {
            script,
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
pub enum InstanceOutcome {
    /// With this output.
    Completed(String),
    /// With this error.
    Failed(String),
}

impl InstanceOutcome {
    /// The outcome in a status, if the instance has ended.
    pub fn of(status: &OrchestrationStatus) -> Option<Self> {
        match status {
            OrchestrationStatus::Completed { output, .. } => Some(Self::Completed(output.clone())),
            OrchestrationStatus::Failed { details, .. } => Some(Self::Failed(details.display_message())),
            _ => None,
        }
    }
}

impl ObservationLog {
    /// A log for instances that are not started yet.
    pub fn new(scripts: impl IntoIterator<Item = (String, InstanceScript)>) -> Self {
        let instances = scripts.into_iter().map(|(id, script)| (id, InstanceObservations::none(script)));
        Self::resume(instances.collect(), 0, None)
    }

    /// A log that continues an earlier one: activity runs are numbered from `first_run` on, and `on_record` is called
    /// for every observation.
    pub fn resume(
        instances: BTreeMap<String, InstanceObservations>,
        first_run: u64,
        on_record: Option<fn(&Observation)>,
    ) -> Self {
        let observations = Observations { instances, run_count: first_run, ..Observations::default() };
        Self { state: Mutex::new(observations), on_record }
    }

    /// Adds an instance.
    pub fn add(&self, instance: String, script: InstanceScript) {
        self.state().instances.insert(instance, InstanceObservations::none(script));
    }

    fn state(&self) -> MutexGuard<'_, Observations> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was observed so far.
    pub fn snapshot(&self) -> Observations {
        self.state().clone()
    }

    /// What was observed of one instance.
    pub fn instance(&self, instance: &str) -> InstanceObservations {
        self.state().instances[instance].clone()
    }

    /// Records an observation.
    pub fn record(&self, observation: Observation) {
        if let Some(on_record) = self.on_record {
            on_record(&observation);
        }
        let mut state = self.state();
        match observation {
            Observation::Started(id) => state.of(&id).started = true,
            Observation::Raised(id) => state.of(&id).raised = true,
            Observation::Cancelled(id) => state.of(&id).cancelled = true,
            Observation::Message(id, message) => state.of(&id).messages.extend([message]),
            Observation::Ended(id, outcome) => state.of(&id).outcome = Some(outcome),
            Observation::Refused(refusal) => state.refusals.push(refusal),
            Observation::Asked(id, message) => *state.of(&id).asked.entry(message).or_default() += 1,
            Observation::Turn => state.turns += 1,
            Observation::LockEnded => state.locks_ended += 1,
            Observation::RefusedLate => state.refused_late += 1,
            Observation::Wrong(wrong) => state.wrong.push(wrong),
            Observation::Ran(id, execution_id, input, result) => {
                state.runs.entry((id, execution_id, input)).or_default().insert(result);
            }
        }
    }

    /// Counts a run of an activity; returns its number, which is unique in the case.
    pub fn begin_run(&self) -> u64 {
        let mut state = self.state();
        state.run_count += 1;
        state.run_count
    }
}

impl Observations {
    fn of(&mut self, instance: &str) -> &mut InstanceObservations {
        self.instances.get_mut(instance).expect("every instance was added before")
    }

    /// How many instances have ended, as clients read it.
    pub fn finished(&self) -> u64 {
        self.instances.values().filter(|instance| instance.outcome.is_some()).count() as u64
    }
}
