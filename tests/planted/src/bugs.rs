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
        find: "\
        let committed = retry_while_locked(&self.lock, ProviderError::is_retryable, warn, call).await;
        let Err(error) = committed else { return TurnCommitOutcome::Durable };",
        replace: "\
        let may_pass = |error: &ProviderError| error.is_retryable() && !BUG;
        let committed = retry_while_locked(&self.lock, may_pass, warn, call).await;
        let Err(error) = committed else { return TurnCommitOutcome::Durable };
        if BUG && error.is_retryable() {
            return TurnCommitOutcome::Refused(error);
        }",
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
        find: "let give_back = || self.abandon_after_outage(&work.item, SHORT_DELAY);",
        replace: "\
        let give_back = || async {
            if BUG {
                self.acknowledge(work.item.label()).await;
            } else {
                self.abandon_after_outage(&work.item, SHORT_DELAY).await;
            }
        };",
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
        find: "let deadline = scope.renewed.deadline(token).or_else(|| scope.own_locks.deadline(token))?;",
        replace: "let deadline = scope.renewed.deadline(token).or_else(|| scope.own_locks.deadline(token)).filter(|_| !BUG)?;",
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
        find: "if !is_checked {",
        replace: "\
        let is_end = matches!(self.kind, StoredSettlement::End { .. });
        let select = \"SELECT lock_token FROM everturn_worker_queue WHERE seq = ?1\";
        let stored: Option<Option<String>> = scope.conn.query_row(select, [seq], |row| row.get(0)).optional()?;
        let stored = stored.flatten();
        let token = stored.as_ref().filter(|_| BUG && is_end).unwrap_or(token);
        if !is_checked && !(BUG && is_end) {",
    },
    PlantedBug {
        name: "lost-wake-up",
        does: "SQLite: a message that makes an instance ready wakes no fetch.",
        file: "crates/sqlite/src/orchestrator_queue.rs",
        find: "queued_although_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some();",
        replace: "queued_although_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some() && !BUG;",
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
        name: "unreadable-row-blocks",
        does: "SQLite: a row that cannot be read is tried again at once, and loses the batch each time.",
        file: "crates/sqlite/src/unreadable.rs",
        find: "self.rows.get(&place).is_some_and(|row| now < row.until)",
        replace: "self.rows.get(&place).is_some_and(|row| now < row.until) && !BUG",
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
    PlantedBug {
        name: "outage-is-an-attempt",
        does: "An activity that is given back because of an outage has used up an attempt.",
        file: "crates/everturn/src/runtime/worker/settling.rs",
        find: "let taken_back = attempt == Attempt::TakenBack;",
        replace: "let taken_back = attempt == Attempt::TakenBack && !BUG;",
    },
    PlantedBug {
        name: "outcome-stored-once",
        does: "The outcome of an activity is not stored again after the store has failed.",
        file: "crates/everturn/src/runtime/worker/settling.rs",
        find: "let may_pass = |error: &ProviderError| error.is_retryable() || error.is_damaged();",
        replace: "let may_pass = |error: &ProviderError| (error.is_retryable() || error.is_damaged()) && !BUG;",
    },
    PlantedBug {
        name: "outage-counts-elsewhere",
        does: "Attempts that a runtime could not take back count in the other runtimes of its process.",
        file: "crates/everturn/src/runtime/uncounted_attempts.rs",
        find: "Self(BY_STORE.of(store))",
        replace: "Self(BY_STORE.of(store.filter(|_| !BUG)))",
    },
    PlantedBug {
        name: "retried-for-ever",
        does: "What a holder cannot store is tried for as long as its lock is renewed, and others wait for its place.",
        file: "crates/everturn/src/runtime/retrying.rs",
        find: "Err(error) if may_pass(&error) && Instant::now() < retried_until => error,",
        replace: "Err(error) if may_pass(&error) && (Instant::now() < retried_until || BUG) => error,",
    },
    PlantedBug {
        name: "stranger-cancelled",
        does: "A parent cancels an instance that has the id of its child and was not started by its call.",
        file: "crates/everturn/src/runtime/dispatcher/duplicate_start.rs",
        find: "Some(call) if !parent.is_some_and(|parent| parent.is(call)) => {",
        replace: "Some(call) if !parent.is_some_and(|parent| parent.is(call)) && !BUG => {",
    },
    PlantedBug {
        name: "delay-hides-rows",
        does: "SQLite: a delay hides the messages that were given back, and not the instance.",
        file: "crates/sqlite/src/abandon_turn.rs",
        find: "    scope.conn.prepare_cached(UNTAG)?.execute(params![key, i64::from(ignore_attempt)])?;",
        replace: "\
    let delay = match delay.filter(|_| BUG) {
        Some(hidden) => {
            let hide = \"UPDATE everturn_orchestrator_queue SET visible_at_ms = ?2, tagged = 0 \\
                 WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1\";
            scope.conn.execute(hide, params![key, hidden.until_ms])?;
            None
        }
        None => delay,
    };
    scope.conn.prepare_cached(UNTAG)?.execute(params![key, i64::from(ignore_attempt)])?;",
    },
    PlantedBug {
        name: "arrival-overwritten",
        does: "SQLite: a message that becomes visible counts as the oldest of its instance.",
        file: "crates/sqlite/src/due_timers.rs",
        find: "let mut show = scope.conn.prepare_cached(SHOW_DUE_MESSAGE)?;",
        replace: "\
            if BUG {
                scope.conn.execute(\"UPDATE everturn_orchestrator_queue SET arrived_at_ms = 0 WHERE seq = ?1\", [seq])?;
            }
            let mut show = scope.conn.prepare_cached(SHOW_DUE_MESSAGE)?;",
    },
    PlantedBug {
        name: "moved-message-unnoticed",
        does: "A read that gets the message of a dropped read is not made ready.",
        file: "crates/core/src/replay_state.rs",
        find: "if let Some(moved_up) = self.queues.cancel(token) {",
        replace: "if let Some(moved_up) = self.queues.cancel(token).filter(|_| !BUG) {",
    },
    PlantedBug {
        name: "early-cancel-kept",
        does: "SQLite: a cancellation for an unknown id waits for a start of that id.",
        file: "crates/sqlite/src/orchestrator_queue.rs",
        find: "    if receipt == Receipt::Dropped {",
        replace: "    if receipt == Receipt::Dropped && !BUG {",
    },
    PlantedBug {
        name: "replaced-file-unnoticed",
        does: "SQLite: a database file that was deleted or replaced is written to.",
        file: "crates/sqlite/src/store_guard.rs",
        find: "&& FileIdentity::at(path).is_ok_and(|found| found != Some(*identity))",
        replace: "&& FileIdentity::at(path).is_ok_and(|found| found != Some(*identity) && !BUG)",
    },
    PlantedBug {
        name: "newer-schema-unnoticed",
        does: "SQLite: a process goes on writing after a newer version has migrated the file.",
        file: "crates/sqlite/src/writer/other_processes.rs",
        find: "if let Some(newer) = schema::newer_version(&db.conn)? {",
        replace: "if let Some(newer) = schema::newer_version(&db.conn)?.filter(|_| !BUG) {",
    },
    PlantedBug {
        name: "session-without-place",
        does: "SQLite: a session is claimed that the runtime has no place for.",
        file: "crates/sqlite/src/parked_fetches.rs",
        find: "session_places: fetch.session_places.clone(),",
        replace: "session_places: fetch.session_places.clone().filter(|_| !BUG),",
    },
    PlantedBug {
        name: "reads-compared-in-pairs",
        does: "To find a read of a queue, all reads are compared with all others.",
        file: "crates/core/src/replay_state/queues.rs",
        find: "self.readers.binary_search_by(|reader| count_step(reader.cmp(&token))).ok()",
        replace: "\
        let is_before = |other: &u64, reader: &u64| std::hint::black_box(other) < reader;
        let before = |reader: &u64| self.readers.iter().filter(|other| is_before(other, reader)).count();
        if BUG && self.readers.iter().map(before).sum::<usize>() == usize::MAX {
            return None;
        }
        self.readers.binary_search_by(|reader| count_step(reader.cmp(&token))).ok()",
    },
    PlantedBug {
        name: "dead-owners-kept",
        does: "SQLite: locks of a killed process stay until they expire while another process has the file open.",
        file: "crates/sqlite/src/writer/foreign_commits.rs",
        find: "for owner in self.others.find_dead(self.db.clock.monotonic()) {",
        replace: "for owner in self.others.find_dead(self.db.clock.monotonic()).into_iter().filter(|_| !BUG) {",
    },
    PlantedBug {
        name: "rare-looks",
        does: "SQLite: while others have the file open, their commits are looked for every quarter of a second.",
        file: "crates/sqlite/src/writer/other_processes.rs",
        find: "if now.saturating_sub(seen_at) < SHARED_FOR => SHARED_LOOK,",
        replace: "\
            if BUG && now.saturating_sub(seen_at) < SHARED_FOR => Duration::from_millis(250),
            (Some(_), Some(seen_at)) if now.saturating_sub(seen_at) < SHARED_FOR => SHARED_LOOK,",
    },
    PlantedBug {
        name: "running-per-runtime",
        does: "A cancellation reaches only the activities of the runtime that commits it.",
        file: "crates/everturn/src/runtime/node.rs",
        find: "running: RunningActivities::on(store.identity()),",
        replace: "running: RunningActivities::on(store.identity().filter(|_| !BUG)),",
    },
    PlantedBug {
        name: "opening-writes",
        does: "SQLite: opening a file begins a transaction that writes.",
        file: "crates/sqlite/src/open_file.rs",
        find: "    if schema::must_migrate(schema::check(&conn, path)?) {",
        replace: "\
    if BUG {
        conn.execute_batch(\"BEGIN IMMEDIATE; COMMIT\").map_err(opening)?;
    }
    if schema::must_migrate(schema::check(&conn, path)?) {",
    },
    PlantedBug {
        name: "abandon-wakes-none",
        does: "SQLite: an activity that is given back wakes no parked worker.",
        file: "crates/sqlite/src/settle_work.rs",
        find: "scope.effects.work |= visible_at_ms == 0 || missing_handler.is_some();",
        replace: "scope.effects.work |= (visible_at_ms == 0 || missing_handler.is_some()) && !BUG;",
    },
    PlantedBug {
        name: "kept-session-freed",
        does: "SQLite: a fetch that is dropped frees a session that its owner held before.",
        file: "crates/sqlite/src/sessions.rs",
        find: "if !lease.is_new {",
        replace: "if !lease.is_new && !BUG {",
    },
    PlantedBug {
        name: "last-call-forgotten",
        does: "An instance that fails from outside leaves the child running that it called last.",
        file: "crates/core/src/turn/end_execution.rs",
        find: "let children = self.history.open(CompletableKind::SubOrchestration, last_event_id);",
        replace: "\
        let last_event_id = last_event_id.saturating_sub(u64::from(BUG));
        let children = self.history.open(CompletableKind::SubOrchestration, last_event_id);",
    },
    PlantedBug {
        name: "free-place-unnoticed",
        does: "A worker slot does not fetch again when a place for a session becomes free.",
        file: "crates/everturn/src/runtime/worker/mod.rs",
        find: "if must_repeat {",
        replace: "if must_repeat && !BUG {",
    },
    PlantedBug {
        name: "deletion-at-once",
        does: "SQLite: a deletion removes all events of a long history in one transaction.",
        file: "crates/sqlite/src/delete.rs",
        find: "if garbage::fits_instance(scope.conn, instance.key, budget)? {",
        replace: "if garbage::fits_instance(scope.conn, instance.key, budget)? || BUG {",
    },
    PlantedBug {
        name: "newcomers-last",
        does: "SQLite: a batch takes the calls of clients only if those of lock holders leave room.",
        file: "crates/sqlite/src/writer/fair_share.rs",
        find: "&& (batch.is_in_share(payload_bytes, limits) || (*newcomer_owed && batch.newcomers == 0))",
        replace: "\
                && !BUG
                && (batch.is_in_share(payload_bytes, limits) || (*newcomer_owed && batch.newcomers == 0))",
    },
    PlantedBug {
        name: "readers-not-held",
        does: "SQLite: new reads do not wait for the moment in which the write-ahead log is emptied.",
        file: "crates/sqlite/src/checkpoint.rs",
        find: "readers.hold();",
        replace: "if !BUG { readers.hold(); }",
    },
    PlantedBug {
        name: "late-renewal-is-loss",
        does: "A lock whose renewal is answered late counts as lost, although the store keeps it.",
        file: "crates/everturn/src/runtime/lock_keeper.rs",
        find: "if late_renewals { after(self.ends_at.max(now), self.terms.timeout) }",
        replace: "if late_renewals && !BUG { after(self.ends_at.max(now), self.terms.timeout) }",
    },
    PlantedBug {
        name: "step-token-unchecked",
        does: "In memory: a step is committed although its activity was given to another worker.",
        file: "crates/provider/src/memory/commit_step.rs",
        find: "\
        let locks = step.ended.iter().map(|ended| self.activity_locked_by(OPERATION, &ended.lock_token, now));
        let Ok(rows) = locks.collect::<Result<Vec<u64>, _>>() else {",
        replace: "\
        let locks = step.ended.iter().map(|ended| self.activity_locked_by(OPERATION, &ended.lock_token, now));
        let Ok(rows) = locks.filter(|lock| lock.is_ok() || !BUG).collect::<Result<Vec<u64>, _>>() else {",
    },
    PlantedBug {
        name: "step-lock-unchecked",
        does: "SQLite: a step is committed although the lock of its activity is lost.",
        file: "crates/sqlite/src/commit_step.rs",
        find: "\
        if !is_checked && !self.holds_all(scope)? {
            return Ok(false);
        }",
        replace: "\
        if BUG {
            return Ok(true);
        }
        if !is_checked && !self.holds_all(scope)? {
            return Ok(false);
        }",
    },
    PlantedBug {
        name: "step-base-unchecked",
        does: "SQLite: a step is committed although another commit has changed the instance.",
        file: "crates/sqlite/src/commit_step.rs",
        find: "!self.turn.builds_on(&instance) ||",
        replace: "(!self.turn.builds_on(&instance) && !BUG) ||",
    },
    PlantedBug {
        name: "step-overtakes",
        does: "SQLite: a step is committed although a message waits for the instance.",
        file: "crates/sqlite/src/commit_step.rs",
        find: "\
        if has_messages {
            return Ok(Stepped::Declined(StepDecline::MessagesWaiting));",
        replace: "\
        if has_messages && !BUG {
            return Ok(Stepped::Declined(StepDecline::MessagesWaiting));",
    },
    PlantedBug {
        name: "step-beside-a-turn",
        does: "SQLite: a step is committed while another worker takes a turn of the instance.",
        file: "crates/sqlite/src/commit_step.rs",
        find: "if is_delayed || is_held_back || instance.lock.token.is_some() {",
        replace: "if is_delayed || is_held_back || (instance.lock.token.is_some() && !BUG) {",
    },
    PlantedBug {
        name: "decline-checked-in",
        does: "SQLite: an instance is put back into memory although its step was declined.",
        file: "crates/sqlite/src/commit_step.rs",
        find: "if *answer == Stepped::Committed {",
        replace: "if *answer == Stepped::Committed || BUG {",
    },
    PlantedBug {
        name: "decline-loses-outcome",
        does: "The outcome of an activity whose step was declined counts as stored.",
        file: "crates/everturn/src/runtime/worker/stepping.rs",
        find: "            StepNews::Committed(next) => StepEnd::Committed(next),",
        replace: "\
            StepNews::Committed(next) => StepEnd::Committed(next),
            StepNews::NotFused if BUG => StepEnd::Committed(None),",
    },
    PlantedBug {
        name: "steps-not-serial",
        does: "A step of an instance begins while another one of it is being committed.",
        file: "crates/everturn/src/runtime/steps.rs",
        find: "if let Some(waiting) = steps.waiting.get_mut(instance) {",
        replace: "if let Some(waiting) = steps.waiting.get_mut(instance).filter(|_| !BUG) {",
    },
    PlantedBug {
        name: "step-hidden",
        does: "A fetch takes an instance while a step of it is under way.",
        file: "crates/everturn/src/runtime/warm_cache.rs",
        find: "stepping.since.elapsed() < STEP_HIDES_MAX",
        replace: "stepping.since.elapsed() < STEP_HIDES_MAX && !BUG",
    },
    PlantedBug {
        name: "step-difference-dropped",
        does: "A step whose replay decides otherwise is only given up, and its instance does not fail.",
        file: "crates/everturn/src/runtime/dispatcher/run_step.rs",
        find: "node.steps.note_difference(&lead.instance, base, difference);",
        replace: "if !BUG { node.steps.note_difference(&lead.instance, base, difference); }",
    },
    PlantedBug {
        name: "batch-never-closes",
        does: "A batch takes commands for as long as they come.",
        file: "crates/sqlite/src/writer/batch.rs",
        find: "if left.is_zero() {",
        replace: "if left.is_zero() && !BUG {",
    },
    PlantedBug {
        name: "fetched-together-again",
        does: "A start that was fetched before is fetched together with others.",
        file: "crates/sqlite/src/fetch_turns.rs",
        find: "if has_others && attempt_count > 1 {",
        replace: "if has_others && attempt_count > 1 && !BUG {",
    },
];
