//! The faults that a scenario injects into the calls of one process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::ProviderError;
use everturn::providers::store::TurnCommit;

use crate::fault_plan::Fault;
use crate::faulty_store::{CallFaults, CallKind};
use crate::scenario::Scenario;
use crate::world_store::OpenedStore;

/// How much later than its answer a call takes effect, at most.
const LATE_MS_MAX: u64 = 1_500;

/// The faults of one process, drawn from the scenario's plan and written into its trace.
pub(crate) struct ProcessFaults {
    pub(crate) scenario: Arc<Scenario>,
    /// The name of the process in the trace.
    pub(crate) name: String,
    /// Whether it is a node: only nodes crash.
    pub(crate) is_node: bool,
    /// The store as the process has it open.
    pub(crate) opened: Arc<dyn OpenedStore>,
}

impl CallFaults for ProcessFaults {
    fn draw(&self, call: CallKind, verb: &'static str) -> (Option<Fault>, Option<Duration>) {
        let mut records = self.scenario.records();
        let (fault, delay) = (records.faults.fault_for(call, self.is_node), records.faults.delay());
        if !records.failing_verb.is_some_and(|failing| failing.has(verb)) {
            return (fault, delay);
        }
        if let Some(fault) = fault {
            // The call fails anyway. Clients repeat it, and would use up all faults of the plan.
            records.faults.give_back(fault);
        }
        (Some(Fault::VerbOutage), delay)
    }

    fn answer_delay(&self) -> Option<Duration> {
        self.scenario.records().faults.delay()
    }

    fn late_by(&self) -> (Duration, Box<dyn Send>) {
        let under_way = self.scenario.begin();
        (self.scenario.some_ms(0, LATE_MS_MAX), Box::new(under_way))
    }

    fn turn_decided(&self, commit: &TurnCommit, tokens: &[&str]) {
        let called = self.scenario.moment();
        let clock = &self.scenario.store_clock;
        self.scenario.records().recorder.turn_decided(commit, tokens, called, clock);
    }

    fn struck(&self, fault: Fault, verb: &'static str, subject: &str) {
        self.scenario.fault(fault, format_args!("{} {verb} {subject}", self.name));
    }

    fn answered(&self, verb: &'static str, subject: &str, error: Option<&ProviderError>) {
        match error {
            None => self.scenario.trace(format_args!("{} {verb} {subject}", self.name)),
            Some(error) => self.scenario.trace(format_args!("{} {verb} {subject}: {error}", self.name)),
        }
    }

    fn answered_late(&self, verb: &'static str, subject: &str, answer: &dyn fmt::Debug) {
        self.scenario.trace(format_args!("late {verb} {subject}: {answer:?}"));
    }

    /// A process that loses its store by a power failure may try again.
    fn error_of(&self, verb: &'static str, error: ProviderError) -> ProviderError {
        let is_gone = !self.is_node && !Arc::ptr_eq(&self.opened, &self.scenario.clients());
        if is_gone || !self.scenario.has_power() {
            return ProviderError::retryable(verb, "the power failed");
        }
        error
    }
}
