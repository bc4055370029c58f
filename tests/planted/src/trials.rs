//! Which proof must catch which bug.

/// A package whose integration tests are proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestPackage {
    /// Its name.
    pub name: &'static str,
    /// Its folder in the workspace.
    pub folder: &'static str,
}

/// A proof as it is run here: few cases, enough to meet the bugs that it must catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofRun {
    /// Its number in `GUARANTEES.md`.
    pub id: &'static str,
    /// Where it is.
    pub package: TestPackage,
    /// A text that the names of its tests contain.
    pub tests: &'static str,
    /// The number of cases, in the unit that the proof counts; 1 if it counts nothing.
    pub cases: u64,
}

/// A bug, and the proof that must catch it.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// The name of the bug.
    pub bug: &'static str,
    /// The guarantee that it breaks.
    pub breaks: &'static str,
    /// The proof that must fail.
    pub proof: ProofRun,
    /// The proof fails because of this bug if it prints one of these.
    pub prints: &'static [&'static str],
}

const SIMULATION: TestPackage = TestPackage { name: "everturn-simulation", folder: "crates/simulation" };
const CRASH: TestPackage = TestPackage { name: "everturn-crash-tests", folder: "tests/crash" };
const SQLITE: TestPackage = TestPackage { name: "everturn-sqlite", folder: "crates/sqlite" };
const CORE: TestPackage = TestPackage { name: "everturn-core", folder: "crates/core" };
const RUNTIME: TestPackage = TestPackage { name: "everturn", folder: "crates/everturn" };

const FAULTS: ProofRun =
    ProofRun { id: "R1", package: SIMULATION, tests: "r1_no_promise_breaks_under_faults", cases: 100 };
const CLOCKS: ProofRun = ProofRun {
    id: "R8",
    package: SIMULATION,
    tests: "r8_no_timer_is_early_or_lost_whatever_the_clocks_say",
    cases: 20,
};
const PROGRAMS: ProofRun =
    ProofRun { id: "R13", package: SIMULATION, tests: "r13_random_programs_end_as_predicted", cases: 60 };
const LONG_ACTIVITIES: ProofRun =
    ProofRun { id: "G5", package: SIMULATION, tests: "long_activities::", cases: 1 };
const POWER_CUTS: ProofRun =
    ProofRun { id: "R2", package: CRASH, tests: "r2_nothing_accepted_is_lost_by_a_power_cut", cases: 200 };
const POWER_CUTS_ON_THREADS: ProofRun = ProofRun {
    id: "R2",
    package: CRASH,
    tests: "r2_nothing_accepted_is_lost_with_the_writer_on_its_thread",
    cases: 200,
};
const IO_FAULTS: ProofRun =
    ProofRun { id: "R3", package: CRASH, tests: "r3_every_call_may_fail_once_and_for_good", cases: 300 };
const ZOMBIES: ProofRun = ProofRun {
    id: "R6",
    package: CRASH,
    tests: "r6_a_process_stopped_past_its_locks_cannot_commit",
    cases: 8,
};
const KILLS: ProofRun = ProofRun {
    id: "R4",
    package: CRASH,
    tests: "r4_nothing_is_lost_or_recorded_twice_when_processes_are_killed",
    cases: 300,
};
const LITTLE_ROOM: ProofRun =
    ProofRun { id: "R9", package: CRASH, tests: "r9_a_little_room_is_enough_to_go_on", cases: 6 };
const UNREADABLE_PAGES: ProofRun = ProofRun {
    id: "R3",
    package: CRASH,
    tests: "r3_pages_that_cannot_be_read_hold_up_no_other_instance",
    cases: 1,
};
const FAULTS_ON_SQLITE: ProofRun =
    ProofRun { id: "R1", package: CRASH, tests: "r1_no_promise_breaks_under_faults_on_sqlite", cases: 60 };
const FENCING: ProofRun = ProofRun { id: "R7", package: SQLITE, tests: "in_batches::tokens::", cases: 1 };
const CLOCK_JUMPS: ProofRun = ProofRun { id: "G4", package: SQLITE, tests: "clock_jumps::", cases: 1 };
const WAKING: ProofRun = ProofRun { id: "G5", package: SQLITE, tests: "waking::", cases: 1 };
const DAMAGE: ProofRun =
    ProofRun { id: "R10", package: SQLITE, tests: "damage_sweep::everturn_instances", cases: 1 };

const SECOND_PROCESS: ProofRun = ProofRun {
    id: "R6",
    package: CRASH,
    tests: "r6_a_second_process_is_served_and_woken_in_milliseconds",
    cases: 40,
};

/// Some tests of a package that count nothing.
const fn some_of(id: &'static str, package: TestPackage, tests: &'static str) -> ProofRun {
    ProofRun { id, package, tests, cases: 1 }
}

const LONG_OUTAGES: ProofRun = some_of(
    "G5",
    RUNTIME,
    "on_memory_in_paused_time::verbs_that_fail_together_with_the_renewals_poison_nothing",
);
const OUTAGES_OF_TWO: ProofRun = some_of(
    "G5",
    RUNTIME,
    "on_memory_in_paused_time::attempts_that_cannot_be_taken_back_do_not_count_whichever_runtime_fetches_next",
);
const HELD_PLACES: ProofRun = some_of(
    "G5",
    RUNTIME,
    "on_memory_in_paused_time::a_turn_that_cannot_be_committed_for_hours_leaves_its_place_to_others",
);
const OUTAGES: ProofRun = some_of("G5", RUNTIME, "an_outcome_that_cannot_be_stored_for_two_seconds");
const STRANGERS: ProofRun =
    some_of("G5", RUNTIME, "on_memory::a_dropped_call_leaves_a_root_with_its_id_running");
const CANCELLATION: ProofRun = some_of("G5", RUNTIME, "another_runtime_of_the_same_process_learns_at_once");
const MOVED_MESSAGES: ProofRun = some_of("G3", CORE, "message_of_a_read_that_a_poll_drops_goes_to");
const MANY_READS: ProofRun = some_of("G5", CORE, "joined_reads_cost_no_more_than_a_few_times");
const DELAYS: ProofRun =
    some_of("G3", SQLITE, "in_batches::abandon_turn::what_is_sent_during_the_delay_waits");
const ARRIVAL: ProofRun =
    some_of("G3", SQLITE, "in_batches::arrival_order::an_answer_in_time_comes_before_its_deadline");
const EARLY_CANCELS: ProofRun =
    some_of("G1", SQLITE, "in_batches::unknown_instance::a_cancellation_without_a_start_is_dropped");
const REPLACED_FILE: ProofRun =
    some_of("G1", SQLITE, "replaced_file::nothing_is_accepted_after_the_file_was_deleted");
const NEWER_SCHEMA: ProofRun =
    some_of("G1", SQLITE, "newer_schema::a_process_that_has_it_open_writes_nothing_more");
const SESSION_PLACES: ProofRun =
    some_of("G5", SQLITE, "in_batches::session_places::without_a_place_no_session_is_claimed");
const DEAD_OWNERS: ProofRun =
    some_of("G5", SQLITE, "stale_locks::locks_of_a_killed_process_are_free_within_a_second");
const OPENING: ProofRun = some_of("G5", SQLITE, "opening::opening_waits_for_no_writer");
const FREE_PLACES: ProofRun =
    some_of("G5", RUNTIME, "on_memory_in_paused_time::a_session_place_that_becomes_free_is_taken_at_once");
const DROPPED_FETCH: ProofRun =
    some_of("G5", SQLITE, "in_batches::dropped_futures::a_session_that_its_owner_held_before");
const LAST_CALL: ProofRun =
    some_of("G2", CORE, "failure_from_outside_cancels_a_child_whose_call_is_the_last_event");
const WAKE_UPS: ProofRun = some_of("G5", SQLITE, "in_batches::work_wake_ups::an_abandoned_activity");
const LONG_DELETIONS: ProofRun =
    some_of("G5", SQLITE, "bulk_delete::a_long_history_is_gone_at_once_and_its_rows_are_removed_in_slices");
const LARGE_RESULTS: ProofRun =
    some_of("G5", SQLITE, "group_commit::a_start_does_not_wait_behind_many_large_results");
const LONG_READS: ProofRun =
    some_of("G5", SQLITE, "log_growth::the_log_stays_short_while_long_reads_overlap");
const LATE_RENEWALS: ProofRun =
    some_of("G5", RUNTIME, "on_memory_in_paused_time::an_activity_whose_renewals_are_only_late_runs_once");
const STEP_LOCKS: ProofRun =
    some_of("G4", SQLITE, "in_batches::commit_step::a_step_with_a_lost_lock_is_declined");
const STEP_OF_LOCKED: ProofRun =
    some_of("G4", SQLITE, "in_batches::commit_step::a_step_of_a_locked_instance_is_declined");
const STEP_BASES: ProofRun =
    some_of("G4", SQLITE, "in_batches::commit_step::a_step_on_another_base_is_declined");
const STEP_MESSAGES: ProofRun =
    some_of("G3", SQLITE, "in_batches::commit_step::a_step_over_a_waiting_message_is_declined");
const STEP_CHECK_INS: ProofRun =
    some_of("G3", SQLITE, "in_batches::commit_step::check_in_is_called_for_a_committed_step_only");
const JOINT_STEPS: ProofRun =
    some_of("G5", RUNTIME, "fused_steps::outcomes_that_come_during_a_step_share_the_next_turn");
const STEPS_AND_MESSAGES: ProofRun =
    some_of("G5", RUNTIME, "fused_steps::a_message_that_comes_during_a_step_waits_for_it");
const COMPARED_STEPS: ProofRun = some_of(
    "G3",
    RUNTIME,
    "fused_steps::code_that_decides_otherwise_in_a_step_than_in_its_replay_fails_its_instance",
);

const OPEN_BATCHES: ProofRun =
    some_of("G5", SQLITE, "group_commit::a_call_is_answered_while_others_keep_coming");
const FETCHED_TOGETHER: ProofRun =
    some_of("G5", SQLITE, "in_batches::fetch_turns::an_instance_that_was_fetched_before_comes_alone");

const ENDS_OTHERWISE: &str = "should have come to";
const ACTIVITY_LOST: &str = "was neither answered nor withdrawn";
const GONE: &str = "was accepted and is gone";

const fn trial(
    bug: &'static str,
    breaks: &'static str,
    proof: ProofRun,
    prints: &'static [&'static str],
) -> Trial {
    Trial { bug, breaks, proof, prints }
}

/// All trials; those that take long, with the bug or without, come first. Some bugs are tried with a second proof that must
/// catch them, too.
pub const TRIALS: &[Trial] = &[
    trial("no-expiry-check", "G4: no ended lock commits", FAULTS_ON_SQLITE, &["G4: "]),
    trial("lost-batch-answered", "G1: Ok is a promise", FAULTS_ON_SQLITE, &["G1: ", "G2: ", "has not ended"]),
    trial("stale-warm-cache", "G3: memory is what is stored", FAULTS_ON_SQLITE, &[ENDS_OTHERWISE]),
    trial(
        "running-per-runtime",
        "G5: a cancellation is heard",
        CANCELLATION,
        &["it was heard after", "timed out waiting until"],
    ),
    trial(
        "unreadable-row-blocks",
        "G7: damage stops its own instance and no other",
        UNREADABLE_PAGES,
        &["Stuck(", "the other instances took"],
    ),
    trial(
        "rare-looks",
        "G5: a parked fetch is woken",
        SECOND_PROCESS,
        &["0 cases served in time", "0 cases woken in time"],
    ),
    trial("damage-blocks-others", "G7: damage stops its own instance only", DAMAGE, &["names no instance"]),
    trial(
        "activity-before-commit",
        "G3: no activity runs for a turn that did not commit",
        POWER_CUTS_ON_THREADS,
        &["ran, and no committed turn scheduled it"],
    ),
    trial("timer-early", "G6: no timer is early", CLOCKS, &["G6: timer"]),
    trial("unread-dropped", "G1: no accepted message is lost", PROGRAMS, &["has not ended"]),
    trial("one-poll-a-turn", "G3: replay is live", PROGRAMS, &[ENDS_OTHERWISE]),
    trial("dropped-not-withdrawn", "G2: a turn is committed whole", FAULTS, &["has not ended"]),
    trial("stale-warm-cache", "G3: memory is what is stored", FAULTS, &[ENDS_OTHERWISE]),
    trial("renewal-error-is-loss", "G5: an activity is not lost", LONG_ACTIVITIES, &[ACTIVITY_LOST]),
    trial("storage-error-fails", "G5: storage errors fail no orchestration", FAULTS, &[ENDS_OTHERWISE]),
    trial(
        "withdrawn-before-commit",
        "G2: nothing is visible before it is durable",
        LONG_ACTIVITIES,
        &[ACTIVITY_LOST],
    ),
    trial("run-out-acked", "G5: an activity is not lost", LONG_ACTIVITIES, &[ACTIVITY_LOST]),
    trial("newcomers-acked", "G1: no accepted message is lost", FAULTS, &["has not ended", "G1: "]),
    trial("no-token-check", "G4: only the holder commits", FENCING, &["took a token it must refuse"]),
    trial("no-expiry-check", "G4: no ended lock commits", ZOMBIES, &["accepted late: "]),
    trial(
        "renewal-resurrects",
        "G4: no ended lock comes back",
        FENCING,
        &["RenewTurn took a token it must refuse"],
    ),
    trial("wall-clock-locks", "G4: no jump of a clock takes a lock", CLOCK_JUMPS, &["lock expired"]),
    trial(
        "weaker-sync",
        "G1: what was accepted survives a power cut",
        POWER_CUTS,
        &[GONE, "was seen to end with"],
    ),
    trial(
        "split-commit",
        "G2: a turn is committed whole",
        POWER_CUTS,
        &["is in 0 places", "is at None, and has Some(", "events are counted"],
    ),
    trial("answered-before-commit", "G1: Ok is a promise", POWER_CUTS, &[GONE]),
    trial(
        "lost-batch-answered",
        "G1: Ok is a promise",
        IO_FAULTS,
        &[GONE, "Stuck(", "something was accepted by a disk that takes nothing"],
    ),
    trial("outcome-unchecked", "G4: only the holder commits", ZOMBIES, &["accepted late: activity"]),
    trial("lost-wake-up", "G5: a parked fetch is woken", WAKING, &["woke no parked fetch"]),
    trial("no-room-made", "G5: work goes on after a full disk", LITTLE_ROOM, &["Stuck("]),
    trial("split-commit", "G2: a turn is committed whole", KILLS, &["is in 0 places", "events are counted"]),
    trial(
        "outage-is-an-attempt",
        "G5: no outage ends in poison",
        LONG_OUTAGES,
        &["should have completed: Failed"],
    ),
    trial(
        "outcome-stored-once",
        "G5: no outage repeats an activity",
        OUTAGES,
        &["should have completed: Failed", "the activity ran again although its lock was held"],
    ),
    trial(
        "outage-counts-elsewhere",
        "G5: no outage ends in poison",
        OUTAGES_OF_TWO,
        &["should have completed: Failed"],
    ),
    trial(
        "retried-for-ever",
        "G7: damage stops its own instance only",
        HELD_PLACES,
        &["its lock should be abandoned from time to time"],
    ),
    trial(
        "stranger-cancelled",
        "G5: a parent cancels only its children",
        STRANGERS,
        &["victim did not complete"],
    ),
    trial("delay-hides-rows", "G3: messages keep their order", DELAYS, &["h.next_turn().await.is_none()"]),
    trial(
        "arrival-overwritten",
        "G3: messages keep their order",
        ARRIVAL,
        &["`fetched_messages(&h).await` should be"],
    ),
    trial("moved-message-unnoticed", "G3: a message is delivered", MOVED_MESSAGES, &["moved"]),
    trial(
        "early-cancel-kept",
        "G1: a start is not lost",
        EARLY_CANCELS,
        &["`h.messages_waiting().await` should be 1"],
    ),
    trial(
        "replaced-file-unnoticed",
        "G1: Ok is a promise",
        REPLACED_FILE,
        &["a start that would be lost is accepted"],
    ),
    trial(
        "newer-schema-unnoticed",
        "G1: Ok is a promise",
        NEWER_SCHEMA,
        &["called `Result::unwrap_err()` on an `Ok`"],
    ),
    trial(
        "session-without-place",
        "G5: no session is pinned to a runtime that cannot serve it",
        SESSION_PLACES,
        &["CountedPlaces::new(0).next_work(&h, \"a\").await.is_none()"],
    ),
    trial("reads-compared-in-pairs", "G5: a turn costs what it decides", MANY_READS, &["times as long as"]),
    trial(
        "dead-owners-kept",
        "G5: the rest goes on after a kill",
        DEAD_OWNERS,
        &["turn, activity, activity in a session"],
    ),
    trial("opening-writes", "G5: opening waits for no writer", OPENING, &["opening waits for no writer"]),
    trial(
        "abandon-wakes-none",
        "G5: a parked fetch is woken",
        WAKE_UPS,
        &["should have woken the parked fetch"],
    ),
    trial(
        "kept-session-freed",
        "G5: a session stays with its owner",
        DROPPED_FETCH,
        &["the lease is from before the dropped fetch"],
    ),
    trial(
        "last-call-forgotten",
        "G2: a turn is committed whole",
        LAST_CALL,
        &["cancel order::sub::2: parent failed"],
    ),
    trial(
        "free-place-unnoticed",
        "G5: a parked fetch is woken",
        FREE_PLACES,
        &["a place was free, but the next activity waited"],
    ),
    trial("readers-not-held", "G5: the log stays short", LONG_READS, &["the log grew to"]),
    trial(
        "deletion-at-once",
        "G5: a large deletion does not hold up other calls",
        LONG_DELETIONS,
        &["most rows are left for later"],
    ),
    trial(
        "newcomers-last",
        "G5: a client does not wait for all workers",
        LARGE_RESULTS,
        &["behind the large results"],
    ),
    trial(
        "late-renewal-is-loss",
        "G5: a lock that is kept is used",
        LATE_RENEWALS,
        &["on an `Err` value: Timeout"],
    ),
    trial("step-token-unchecked", "G4: only the holder commits", FAULTS, &["G4: commit_step", "G3: "]),
    trial("step-beside-a-turn", "G4: only the holder commits", STEP_OF_LOCKED, &["`why` should be Locked"]),
    trial(
        "decline-loses-outcome",
        "G5: an activity does not run again",
        STEPS_AND_MESSAGES,
        &["it waits no longer than that", "the outcome of a declined step is stored"],
    ),
    trial("step-lock-unchecked", "G4: no ended lock commits", STEP_LOCKS, &["the step was committed"]),
    trial("step-base-unchecked", "G4: memory is what is stored", STEP_BASES, &["the step was committed"]),
    trial("step-overtakes", "G3: messages keep their order", STEP_MESSAGES, &["the step was committed"]),
    trial(
        "decline-checked-in",
        "G3: memory is what is stored",
        STEP_CHECK_INS,
        &["`calls.load(Ordering::SeqCst)` should be 0"],
    ),
    trial(
        "steps-not-serial",
        "G5: turns of an instance are serial",
        JOINT_STEPS,
        &["the others share the next step"],
    ),
    trial(
        "step-hidden",
        "G5: a step is not disturbed",
        STEPS_AND_MESSAGES,
        &["the message waits for the step"],
    ),
    trial("step-difference-dropped", "G3: replay is live", COMPARED_STEPS, &["did not fail"]),
    trial("batch-never-closes", "G5: a call is answered", OPEN_BATCHES, &["came into one batch"]),
    trial(
        "fetched-together-again",
        "G5: a turn that ends its process does not poison others",
        FETCHED_TOGETHER,
        &["turns come with one at attempt"],
    ),
];
