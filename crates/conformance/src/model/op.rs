//! The operations of the model test, as plain data that prints as the code it is written in.

use super::op_parts::{Base, Decided, Filter, Handler, Item, NewEvent, Settled, Tags, Token, Which};

/// The instances that operations are about. `c` may be a child of `a`, and `d` one of `c`.
pub const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];

/// One call of a verb of the store or of a plain verb, or the passing of time.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "an operation is the call of the method of the same name")]
pub enum Op {
    /// Time passes.
    Pass {
        ms: u64,
    },
    /// Fetches until there are so many turns or none is left. With `kept`, the runtime keeps in memory what it
    /// committed last. Without `handlers` it does not say what it has.
    FetchTurns {
        turns_max: usize,
        lock_ms: u64,
        filter: Filter,
        kept: bool,
        handlers: Option<Vec<Handler>>,
    },
    CommitTurn {
        token: Token,
        decided: Decided,
        base: Base,
        stamp: u64,
    },
    AbandonTurn {
        token: Token,
        delay_ms: Option<u64>,
        refund: bool,
        missing: Option<Handler>,
    },
    /// Fetches until there are so many activities or none is left.
    FetchWork {
        work_max: usize,
        lock_ms: u64,
        owner: Option<(&'static str, u64)>,
        tags: Tags,
        handlers: Option<Vec<Handler>>,
    },
    SettleWork {
        token: Token,
        settled: Settled,
    },
    /// The tokens of turns and of activities, each renewed as what it is, and the sessions of these owners.
    Renew {
        tokens: Vec<Token>,
        owners: Option<Vec<&'static str>>,
        extend_ms: u64,
        idle_ms: u64,
    },
    /// Messages with their delays.
    Submit {
        messages: Vec<(Item, Option<u64>)>,
    },
    /// A sweep that dead-letters messages which have waited so long for a start.
    Sweep {
        dead_letter_after_ms: Option<u64>,
    },
    ReadExecution {
        instance: &'static str,
        execution: Option<u64>,
    },
    ReadStatus {
        instance: &'static str,
    },
    ReadOrchestrationName {
        instance: &'static str,
    },
    ReadCustomStatus {
        instance: &'static str,
        last_seen: u64,
    },
    ReadKvValue {
        instance: &'static str,
        key: &'static str,
    },
    ReadKvValues {
        instance: &'static str,
    },
    ReadStats {
        instance: &'static str,
    },
    FetchOrchestrationItem {
        lock_ms: u64,
        filter: Filter,
    },
    AckOrchestrationItem {
        token: Token,
        decided: Decided,
    },
    AbandonOrchestrationItem {
        token: Token,
        delay_ms: Option<u64>,
        refund: bool,
    },
    RenewOrchestrationItemLock {
        token: Token,
        extend_ms: u64,
    },
    EnqueueForOrchestrator {
        item: Item,
        delay_ms: Option<u64>,
    },
    EnqueueForWorker {
        item: Item,
    },
    FetchWorkItem {
        lock_ms: u64,
        owner: Option<(&'static str, u64)>,
        tags: Tags,
    },
    AckWorkItem {
        token: Token,
        completion: Option<Item>,
    },
    AbandonWorkItem {
        token: Token,
        delay_ms: Option<u64>,
        refund: bool,
    },
    RenewWorkItemLock {
        token: Token,
        extend_ms: u64,
    },
    RenewSessionLock {
        owners: Vec<&'static str>,
        extend_ms: u64,
        idle_ms: u64,
    },
    CleanupOrphanedSessions,
    AppendWithExecution {
        instance: &'static str,
        execution: u64,
        events: Vec<(u64, NewEvent)>,
    },
    Read {
        instance: &'static str,
    },
    ReadWithExecution {
        instance: &'static str,
        execution: u64,
    },
    GetCustomStatus {
        instance: &'static str,
        last_seen: u64,
    },
    GetKvValue {
        instance: &'static str,
        key: &'static str,
    },
    GetKvAllValues {
        instance: &'static str,
    },
    GetInstanceStats {
        instance: &'static str,
    },
    ListInstances,
    ListInstancesByStatus {
        status: &'static str,
    },
    ListExecutions {
        instance: &'static str,
    },
    ReadHistory {
        instance: &'static str,
    },
    ReadHistoryWithExecutionId {
        instance: &'static str,
        execution: u64,
    },
    LatestExecutionId {
        instance: &'static str,
    },
    GetInstanceInfo {
        instance: &'static str,
    },
    GetExecutionInfo {
        instance: &'static str,
        execution: u64,
    },
    GetSystemMetrics,
    GetQueueDepths,
    ListChildren {
        instance: &'static str,
    },
    GetParentId {
        instance: &'static str,
    },
    GetInstanceTree {
        instance: &'static str,
    },
    DeleteInstancesAtomic {
        ids: Vec<&'static str>,
        force: bool,
    },
    DeleteInstance {
        instance: &'static str,
        force: bool,
    },
    DeleteInstanceBulk {
        which: Which,
    },
    PruneExecutions {
        instance: &'static str,
        keep_last: Option<u32>,
        ended_before: Option<u64>,
    },
    PruneExecutionsBulk {
        which: Which,
        keep_last: Option<u32>,
        ended_before: Option<u64>,
    },
}

impl Op {
    /// Whether the arguments alone are reason enough to refuse it, whatever the store holds. If the lock is lost as well,
    /// the contract does not say which error is returned.
    pub(super) fn is_malformed(&self) -> bool {
        match self {
            Self::AckOrchestrationItem { decided, .. } | Self::CommitTurn { decided, .. } => {
                decided.is_malformed()
            }
            Self::AckWorkItem { completion: Some(item), .. }
            | Self::SettleWork { settled: Settled::Ended(Some(item)), .. } => {
                !matches!(item, Item::ActivityDone(..) | Item::ActivityBroke(..))
            }
            Self::Submit { messages } => messages.iter().any(|(item, _)| item.is_activity()),
            _ => false,
        }
    }
}

/// The operations as the body of a regression test.
pub fn as_code(ops: &[Op]) -> String {
    let mut code = String::from("vec![\n");
    for op in ops {
        // Lists print without the macro that makes them vectors.
        code.push_str(&format!("    {op:?},\n").replace('[', "vec!["));
    }
    code.push(']');
    code
}
