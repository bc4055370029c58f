//! The bugs, and how each is written into the copy.

/// A bug that can be switched on in the copy of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedBug {
    /// Its name in the environment.
    pub name: &'static str,
    /// What the code does wrong.
    pub does: &'static str,
    /// The file that it is planted in.
    pub file: &'static str,
    /// The text that is replaced. It occurs once in the file.
    pub find: &'static str,
    /// The text that replaces it. `BUG` stands for the question whether this bug is switched on.
    pub replace: &'static str,
}

/// All bugs.
pub const BUGS: &[PlantedBug] = &[
    PlantedBug {
        name: "timer-early",
        does: "A timer counts the millisecond in which it was created as its first.",
        file: "crates/core/src/context/timers.rs",
        find: "state.now_ms.saturating_add(delay_ms)",
        replace: "state.now_ms.saturating_add(delay_ms).saturating_sub(u64::from(BUG))",
    },
    PlantedBug {
        name: "unread-dropped",
        does: "Continue-as-new loses the queue messages that were not read.",
        file: "crates/core/src/turn/finish.rs",
        find: "state.queues.unread().cloned()",
        replace: "state.queues.unread().filter(|_| !BUG).cloned()",
    },
    PlantedBug {
        name: "one-poll-a-turn",
        does: "A live turn polls the code once for all its messages; replay polls after each.",
        file: "crates/core/src/turn/execution.rs",
        find: "\
            self.poll_if_owed(clock)?;
            if self.output.is_some() {",
        replace: "\
            if index <= stored.len() || !BUG {
                self.poll_if_owed(clock)?;
            }
            if self.output.is_some() {",
    },
    PlantedBug {
        name: "dropped-not-withdrawn",
        does: "An activity whose future was dropped is recorded as cancelled and stays in the queue.",
        file: "crates/core/src/turn/finish.rs",
        find: "Cancellable::Activity => draft.cancelled_activities.push(source),",
        replace: "\
            Cancellable::Activity if BUG => {}
            Cancellable::Activity => draft.cancelled_activities.push(source),",
    },
    PlantedBug {
        name: "stale-warm-cache",
        does: "A cached execution is lent although another process has committed a turn since.",
        file: "crates/everturn/src/runtime/warm_cache.rs",
        find: "entry.execution_id != execution_id || entry.stamp != stamp",
        replace: "entry.execution_id != execution_id || (entry.stamp != stamp && !BUG)",
    },
    PlantedBug {
        name: "renewal-error-is-loss",
        does: "A renewal that failed with a retryable error counts as a lost lock.",
        file: "crates/everturn/src/runtime/lock_keeper.rs",
        find: "Err(error) if error.is_lock_lost() => {",
        replace: "Err(error) if error.is_lock_lost() || BUG => {",
    },
    PlantedBug {
        name: "storage-error-fails",
        does: "A commit that failed with a retryable error is recorded as the failure of the orchestration.",
        file: "crates/everturn/src/runtime/dispatcher/commit_turn.rs",
        find: "if !error.is_retryable() {",
        replace: "if !error.is_retryable() || BUG {",
    },
    PlantedBug {
        name: "withdrawn-before-commit",
        does: "Activities are cancelled before the turn that cancels them is durable.",
        file: "crates/everturn/src/runtime/dispatcher/commit_turn.rs",
        find: "let outcome = self.commit_while_locked(&commit, &after).await;",
        replace: "\
        if BUG {
            self.node.running.cancel(&commit.cancelled_activities);
        }
        let outcome = self.commit_while_locked(&commit, &after).await;",
    },
    PlantedBug {
        name: "run-out-acked",
        does: "An activity whose lock ended without an answer is deleted as if it had been cancelled.",
        file: "crates/everturn/src/runtime/worker/activity.rs",
        find: "InvocationEnd::Cancelled if lock.is_given_up() => {",
        replace: "InvocationEnd::Cancelled if lock.is_given_up() && !BUG => {",
    },
    PlantedBug {
        name: "newcomers-acked",
        does: "In memory: a turn deletes messages that arrived while it ran.",
        file: "crates/provider/src/memory/commit_turn.rs",
        find: ".retain(|_, message| message.tagged_by.as_deref() != Some(commit.lock_token.as_str()));",
        replace: "\
            .retain(|_, message| {
                message.tagged_by.as_deref() != Some(commit.lock_token.as_str())
                    && !(BUG && message.instance == instance)
            });",
    },
    PlantedBug {
        name: "no-token-check",
        does: "SQLite: every token opens a lock.",
        file: "crates/sqlite/src/locks.rs",
        find: "\
    if stored.token.as_deref() != Some(token) {
        return Err(unknown_token(token));
    }
    let is_alive",
        replace: "\
    if stored.token.as_deref() != Some(token) && !BUG {
        return Err(unknown_token(token));
    }
    let is_alive",
    },
    PlantedBug {
        name: "no-expiry-check",
        does: "SQLite: the holder of an expired lock can commit.",
        file: "crates/sqlite/src/locks.rs",
        find: "if is_alive {",
        replace: "if is_alive || BUG {",
    },
    PlantedBug {
        name: "renewal-resurrects",
        does: "SQLite: a renewal extends an expired lock.",
        file: "crates/sqlite/src/renew.rs",
        find: "\
    let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
    locks::check(scope, &stored, token, called)?;",
        replace: "\
    let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
    if !BUG || stored.token.as_deref() != Some(token) {
        locks::check(scope, &stored, token, called)?;
    }",
    },
    PlantedBug {
        name: "wall-clock-locks",
        does: "SQLite: the process judges its own locks by the wall clock.",
        file: "crates/sqlite/src/locks.rs",
        find: "let is_alive = match scope.own_locks.deadline(token) {",
        replace: "let is_alive = match scope.own_locks.deadline(token).filter(|_| !BUG) {",
    },
    PlantedBug {
        name: "weaker-sync",
        does: "SQLite: commits are not synced.",
        file: "crates/sqlite/src/pragmas.rs",
        find: "Synchronous::Full => (\"FULL\", \"2\"),",
        replace: "\
            Synchronous::Full if BUG => (\"NORMAL\", \"1\"),
            Synchronous::Full => (\"FULL\", \"2\"),",
    },
    PlantedBug {
        name: "split-commit",
        does: "SQLite: the history of a turn and its messages are committed in two transactions.",
        file: "crates/sqlite/src/commit_turn.rs",
        find: "self.write_queues(scope)?;",
        replace: "\
        if BUG {
            scope.conn.execute_batch(\"COMMIT; BEGIN IMMEDIATE\")?;
        }
        self.write_queues(scope)?;",
    },
    PlantedBug {
        name: "answered-before-commit",
        does: "SQLite: a caller is answered when its operation has run, before it is committed.",
        file: "crates/sqlite/src/operation.rs",
        find: "self.outcome = Some(outcome);",
        replace: "\
        match self.reply.take_if(|_| BUG) {
            Some(reply) => drop(reply.send(outcome)),
            None => self.outcome = Some(outcome),
        }",
    },
    PlantedBug {
        name: "lost-batch-answered",
        does: "SQLite: operations that had run in a lost batch are answered as if they were committed.",
        file: "crates/sqlite/src/writer/lost_batch.rs",
        find: "let mut operations: Vec<_> = done.into_iter().chain(todo).collect();",
        replace: "\
        let (answered, done) = if BUG { (done, Vec::new()) } else { (Vec::new(), done) };
        answered.into_iter().for_each(|operation| operation.answer());
        let mut operations: Vec<_> = done.into_iter().chain(todo).collect();",
    },
    PlantedBug {
        name: "activity-before-commit",
        does: "SQLite: a fetch gets an activity before the batch that assigned it is committed.",
        file: "crates/sqlite/src/writer/assignment.rs",
        find: "batch.assigned.work.push((fetch, work));",
        replace: "\
                    if BUG {
                        self.answer_work(fetch, work);
                    } else {
                        batch.assigned.work.push((fetch, work));
                    }",
    },
    PlantedBug {
        name: "outcome-unchecked",
        does: "SQLite: any token can record the outcome of an activity.",
        file: "crates/sqlite/src/settle_work.rs",
        find: "locks::check(scope, &stored, token, self.called)?;",
        replace: "\
        if !(BUG && matches!(self.kind, StoredSettlement::End { .. })) {
            locks::check(scope, &stored, token, self.called)?;
        }",
    },
    PlantedBug {
        name: "lost-wake-up",
        does: "SQLite: a message that makes an instance ready wakes no fetch.",
        file: "crates/sqlite/src/orchestrator_queue.rs",
        find: "unless_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some();",
        replace: "unless_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some() && !BUG;",
    },
    PlantedBug {
        name: "no-room-made",
        does: "SQLite: the write-ahead log stays long when the disk is full.",
        file: "crates/sqlite/src/writer/lost_batch.rs",
        find: "\
            if let Some(checkpointer) = &mut self.checkpointer {
                checkpointer.after_loss(&self.db.conn);",
        replace: "\
            if let Some(checkpointer) = self.checkpointer.as_mut().filter(|_| !BUG) {
                checkpointer.after_loss(&self.db.conn);",
    },
    PlantedBug {
        name: "damage-blocks-others",
        does: "SQLite: an instance with damaged rows counts as a failure of the store.",
        file: "crates/sqlite/src/writer/assignment.rs",
        find: "\
        if let Some(error) = refusal
            && self.reported.insert(candidate.key)",
        replace: "\
        if let Some(error) = refusal.as_ref().filter(|_| BUG) {
            return Err(BatchLoss::Storage(error.to_string()));
        }
        if let Some(error) = refusal
            && self.reported.insert(candidate.key)",
    },
];
