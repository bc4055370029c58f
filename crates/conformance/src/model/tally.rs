//! How often each verb did something, found nothing and was refused.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::answer::AnswerKind;
use super::op::Op;

/// What a verb must have met once in a hundred cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variety {
    /// It succeeds and is refused.
    Refusable,
    /// It finds something and finds nothing; the contract gives no reason to refuse it.
    Finds,
    /// It always returns something; the contract gives no reason to refuse it.
    Tells,
}

use Variety::{Finds, Refusable, Tells};

/// So many cases form one block of the count.
const BLOCK: u64 = 100;

#[derive(Debug, Clone, Copy, Default)]
struct VerbCounts {
    done: u64,
    empty: u64,
    refused: u64,
}

impl VerbCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            empty: self.empty + other.empty,
            refused: self.refused + other.refused,
        }
    }
}

/// The counts of a case.
#[derive(Debug, Default)]
pub(super) struct CaseCounts(BTreeMap<&'static str, VerbCounts>);

impl CaseCounts {
    pub(super) fn count(&mut self, op: &Op, kind: AnswerKind) {
        let counts = self.0.entry(verb(op)).or_default();
        match kind {
            AnswerKind::Done => counts.done += 1,
            AnswerKind::Empty => counts.empty += 1,
            AnswerKind::Refused => counts.refused += 1,
        }
    }

    /// How many operations there were.
    pub(super) fn operations(&self) -> u64 {
        self.0.values().map(|counts| counts.done + counts.empty + counts.refused).sum()
    }
}

/// The counts of a run, by hundreds of cases.
#[derive(Debug, Default)]
pub(super) struct Tally {
    blocks: BTreeMap<u64, CountBlock>,
}

#[derive(Debug, Default)]
struct CountBlock {
    cases: u64,
    verbs: BTreeMap<&'static str, VerbCounts>,
}

impl Tally {
    /// Adds the counts of a case by its number.
    pub(super) fn add(&mut self, number: u64, case: CaseCounts) {
        let block = self.blocks.entry(number / BLOCK).or_default();
        block.cases += 1;
        for (verb, counts) in case.0 {
            let sum = block.verbs.entry(verb).or_default();
            *sum = sum.plus(counts);
        }
    }

    /// The hundreds of which every case was run.
    fn full_blocks(&self) -> impl Iterator<Item = (u64, &BTreeMap<&'static str, VerbCounts>)> + Clone {
        let full = self.blocks.iter().filter(|(_, block)| block.cases == BLOCK);
        full.map(|(number, block)| (*number, &block.verbs))
    }

    fn total(&self, verb: &str) -> VerbCounts {
        let counts = self.blocks.values().filter_map(|block| block.verbs.get(verb));
        counts.fold(VerbCounts::default(), |sum, counts| sum.plus(*counts))
    }

    /// The smallest counts in a hundred cases: how often a verb did something, and how often it was refused or, if the
    /// contract never refuses it, found nothing.
    fn fewest(&self, verb: &str, variety: Variety) -> Option<(u64, u64)> {
        let full_blocks = self.full_blocks();
        let counts = || full_blocks.clone().map(|(_, verbs)| verbs.get(verb).copied().unwrap_or_default());
        let other = |counts: VerbCounts| if variety == Refusable { counts.refused } else { counts.empty };
        Some((counts().map(|counts| counts.done).min()?, counts().map(other).min()?))
    }

    /// The counts as a table: of the whole run, and the smallest in a hundred cases.
    pub(super) fn table(&self) -> String {
        let mut table =
            format!("{:<32} {:>9} {:>9} {:>9}   fewest in 100\n", "verb", "done", "empty", "refused");
        for (verb, variety) in VERBS {
            let VerbCounts { done, empty, refused } = self.total(verb);
            write!(table, "{verb:<32} {done:>9} {empty:>9} {refused:>9}").unwrap();
            if let Some((done, other)) = self.fewest(verb, variety) {
                match variety {
                    Refusable => write!(table, "   {done} done, {other} refused").unwrap(),
                    Finds => write!(table, "   {done} done, {other} empty").unwrap(),
                    Tells => write!(table, "   {done} done").unwrap(),
                }
            }
            table.push_str(if variety == Refusable { "\n" } else { "  (never refused)\n" });
        }
        table
    }

    /// What some full block of a hundred cases lacks.
    pub(super) fn lacking(&self) -> Vec<String> {
        let mut lacking = Vec::new();
        for (number, verbs) in self.full_blocks() {
            for (verb, variety) in VERBS {
                let counts = verbs.get(verb).copied().unwrap_or_default();
                let other = match variety {
                    Refusable => counts.refused,
                    Finds => counts.empty,
                    Tells => 1,
                };
                if counts.done == 0 || other == 0 {
                    lacking.push(format!("{verb} in block {number}: {counts:?}, expected {variety:?}"));
                }
            }
        }
        lacking
    }
}

/// Every verb, in the order of the table.
const VERBS: [(&str, Variety); 52] = [
    ("fetch_turns", Finds),
    ("commit_turn", Refusable),
    ("abandon_turn", Refusable),
    ("fetch_work", Finds),
    ("settle_work", Refusable),
    ("renew", Refusable),
    ("submit", Refusable),
    ("sweep", Finds),
    ("read_execution", Finds),
    ("read_status", Finds),
    ("read_orchestration_name", Finds),
    ("read_custom_status", Finds),
    ("read_kv_value", Finds),
    ("read_kv_values", Finds),
    ("read_stats", Finds),
    ("fetch_orchestration_item", Finds),
    ("ack_orchestration_item", Refusable),
    ("abandon_orchestration_item", Refusable),
    ("renew_orchestration_item_lock", Refusable),
    ("enqueue_for_orchestrator", Refusable),
    ("enqueue_for_worker", Refusable),
    ("fetch_work_item", Finds),
    ("ack_work_item", Refusable),
    ("abandon_work_item", Refusable),
    ("renew_work_item_lock", Refusable),
    ("renew_session_lock", Finds),
    ("cleanup_orphaned_sessions", Finds),
    ("append_with_execution", Refusable),
    ("read", Finds),
    ("read_with_execution", Finds),
    ("get_custom_status", Finds),
    ("get_kv_value", Finds),
    ("get_kv_all_values", Finds),
    ("get_instance_stats", Finds),
    ("list_instances", Finds),
    ("list_instances_by_status", Finds),
    ("list_executions", Finds),
    ("read_history", Finds),
    ("read_history_with_execution_id", Finds),
    ("latest_execution_id", Tells),
    ("get_instance_info", Refusable),
    ("get_execution_info", Refusable),
    ("get_system_metrics", Tells),
    ("get_queue_depths", Tells),
    ("list_children", Finds),
    ("get_parent_id", Refusable),
    ("get_instance_tree", Tells),
    ("delete_instances_atomic", Refusable),
    ("delete_instance", Refusable),
    ("delete_instance_bulk", Finds),
    ("prune_executions", Refusable),
    ("prune_executions_bulk", Finds),
];

/// The name of an operation's verb.
fn verb(op: &Op) -> &'static str {
    match op {
        Op::Pass { .. } => "pass",
        Op::FetchOrchestrationItem { .. } => "fetch_orchestration_item",
        Op::FetchTurns { .. } => "fetch_turns",
        Op::AbandonTurn { .. } => "abandon_turn",
        Op::FetchWork { .. } => "fetch_work",
        Op::SettleWork { .. } => "settle_work",
        Op::Renew { .. } => "renew",
        Op::Submit { .. } => "submit",
        Op::Sweep { .. } => "sweep",
        Op::ReadExecution { .. } => "read_execution",
        Op::ReadCustomStatus { .. } => "read_custom_status",
        Op::ReadKvValue { .. } => "read_kv_value",
        Op::ReadKvValues { .. } => "read_kv_values",
        Op::ReadStats { .. } => "read_stats",
        Op::AckOrchestrationItem { .. } => "ack_orchestration_item",
        Op::CommitTurn { .. } => "commit_turn",
        Op::AbandonOrchestrationItem { .. } => "abandon_orchestration_item",
        Op::RenewOrchestrationItemLock { .. } => "renew_orchestration_item_lock",
        Op::EnqueueForOrchestrator { .. } => "enqueue_for_orchestrator",
        Op::EnqueueForWorker { .. } => "enqueue_for_worker",
        Op::FetchWorkItem { .. } => "fetch_work_item",
        Op::AckWorkItem { .. } => "ack_work_item",
        Op::AbandonWorkItem { .. } => "abandon_work_item",
        Op::RenewWorkItemLock { .. } => "renew_work_item_lock",
        Op::RenewSessionLock { .. } => "renew_session_lock",
        Op::CleanupOrphanedSessions => "cleanup_orphaned_sessions",
        Op::AppendWithExecution { .. } => "append_with_execution",
        Op::Read { .. } => "read",
        Op::ReadWithExecution { .. } => "read_with_execution",
        Op::ReadStatus { .. } => "read_status",
        Op::ReadOrchestrationName { .. } => "read_orchestration_name",
        Op::GetCustomStatus { .. } => "get_custom_status",
        Op::GetKvValue { .. } => "get_kv_value",
        Op::GetKvAllValues { .. } => "get_kv_all_values",
        Op::GetInstanceStats { .. } => "get_instance_stats",
        Op::ListInstances => "list_instances",
        Op::ListInstancesByStatus { .. } => "list_instances_by_status",
        Op::ListExecutions { .. } => "list_executions",
        Op::ReadHistory { .. } => "read_history",
        Op::ReadHistoryWithExecutionId { .. } => "read_history_with_execution_id",
        Op::LatestExecutionId { .. } => "latest_execution_id",
        Op::GetInstanceInfo { .. } => "get_instance_info",
        Op::GetExecutionInfo { .. } => "get_execution_info",
        Op::GetSystemMetrics => "get_system_metrics",
        Op::GetQueueDepths => "get_queue_depths",
        Op::ListChildren { .. } => "list_children",
        Op::GetParentId { .. } => "get_parent_id",
        Op::GetInstanceTree { .. } => "get_instance_tree",
        Op::DeleteInstancesAtomic { .. } => "delete_instances_atomic",
        Op::DeleteInstance { .. } => "delete_instance",
        Op::DeleteInstanceBulk { .. } => "delete_instance_bulk",
        Op::PruneExecutions { .. } => "prune_executions",
        Op::PruneExecutionsBulk { .. } => "prune_executions_bulk",
    }
}
