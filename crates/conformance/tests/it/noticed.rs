//! Which case notices which fault.

use std::panic::catch_unwind;

use everturn_conformance::{
    abandon_turn, arrival_order, capability_filter, commit_step, commit_turn, damage, delete,
    dropped_futures, fetch_turns, fetch_work, kv_executions, long_poll, missing_handlers, model, notes,
    poison, prune, read_custom_status, read_execution, renew, run, session_places, sessions, settle_work,
    submit, tags, tokens, warm, watch,
};

use crate::faulty::{FaultyFactory, StoreFault};

/// The case passes on the sound store and fails on the faulty one.
macro_rules! noticed {
    ($($test:ident: $fault:ident by $verb:ident::$case:ident;)*) => {
        $(
            #[test]
            fn $test() {
                run(FaultyFactory::new(StoreFault::None), $verb::listed::$case);
                let failed = catch_unwind(|| run(FaultyFactory::new(StoreFault::$fault), $verb::listed::$case)).is_err();
                assert!(failed, "{:?} went unnoticed", StoreFault::$fault);
            }
        )*
    };
}

// The twelve faults that every suite for providers must notice.
noticed! {
    no_token_check_on_commit: CommitTakesAnyToken by commit_turn::a_wrong_token_is_refused_and_the_lock_stays;
    expiry_ignored: ExpiryIsIgnored by commit_turn::a_commit_after_expiry_is_refused;
    expiry_of_activities_ignored: ExpiryIsIgnored
        by settle_work::after_expiry_it_is_refused_even_without_a_new_fetch;
    late_message_deleted: LateMessagesAreDeleted by commit_turn::only_the_fetched_messages_are_removed;
    delayed_message_visible_early: DelayedMessagesAreVisibleEarly
        by submit::a_delayed_message_is_visible_after_its_delay;
    attempt_not_counted: AttemptsAreNotCounted by poison::each_abandon_and_refetch_adds_one;
    cancelled_row_kept: CancelledRowsAreKept by commit_turn::listed_activities_disappear_and_others_stay;
    completion_enqueued_though_the_row_is_gone: CompletionIsEnqueuedThoughTheRowIsGone
        by settle_work::after_cancellation_it_is_refused;
    order_reversed: MessagesComeInReverse by fetch_turns::all_visible_messages_come_in_insertion_order;
    session_stolen: SessionsAreStolen by sessions::the_first_fetch_claims_and_others_get_none;
    filter_applied_after_the_lock: FilterIsAppliedAfterTheLock
        by capability_filter::an_older_incompatible_instance_is_passed_over_and_stays_unlocked;
    prune_deletes_the_current_execution: PruneDeletesTheCurrentExecution
        by prune::the_current_execution_is_never_removed;
    delete_leaves_queue_rows: DeleteLeavesQueueRows by delete::queue_rows_are_counted_and_removed;
}

// Further faults.
noticed! {
    cancelled_activities_that_stay: CancelledRowsAreKept
        by commit_turn::fifty_activities_are_cancelled_in_one_commit;
    lost_messages: OrchestratorItemsAreLost by commit_turn::events_activities_and_messages_all_land;
    lost_notes: NotesAreLost by notes::notes_of_a_turns_message_come_with_that_message;
    a_status_not_stored: StatusIsNotStored
        by commit_turn::every_status_is_stored_with_output_and_time;
    an_ignored_delay: DelayOfAbandonIsIgnored
        by abandon_turn::with_a_delay_it_is_not_fetchable_before;
    timers_after_all_other_messages: TimersComeLast
        by arrival_order::an_answer_that_is_late_comes_after_its_deadline;
    ignored_handlers: HandlersAreIgnored
        by missing_handlers::a_runtime_without_the_handler_waits_for_the_delay;
    ignored_handlers_of_a_worker: HandlersAreIgnored
        by missing_handlers::a_worker_without_the_handler_waits_for_the_delay;
    a_missing_handler_that_delays_all: MissingHandlersDelayAll
        by missing_handlers::an_instance_is_ready_for_a_runtime_with_the_handler;
    an_ignored_refund: RefundIsIgnored by poison::refunds_stop_at_zero;
    an_ignored_filter: FilterIsIgnored by capability_filter::both_bounds_are_inclusive;
    an_ignored_session: SessionIsIgnored by sessions::the_owner_gets_the_following_activities_in_order;
    ignored_session_places: SessionPlacesAreIgnored by session_places::without_a_place_no_session_is_claimed;
    ignored_tags: TagsAreIgnored by tags::default_only_takes_untagged_activities;
    accepted_unknown_tokens: UnknownTokensAreAccepted by tokens::a_token_that_was_never_issued_is_refused;
    renewals_that_always_succeed: RenewalsAlwaysSucceed by tokens::an_expired_token_is_refused;
    swapped_renewal_answers: RenewalAnswersAreSwapped by renew::many_locks_are_renewed_in_one_call;
    fetches_that_do_not_wait: FetchesDoNotWait by long_poll::an_empty_work_fetch_waits_its_poll_timeout;
    uncounted_attempts: AttemptsAreNotCounted by poison::a_batch_reports_the_highest_count;
    a_shortened_history: HistoryIsShortened by fetch_turns::the_full_history_comes_with_every_fetch;
    an_error_for_a_broken_history: BrokenHistoryIsAnError
        by damage::a_broken_history_comes_with_an_error_under_lock;
    a_snapshot_with_live_keys: SnapshotIsTheMergedView
        by kv_executions::the_snapshot_has_no_keys_of_the_unfinished_execution;
    a_status_returned_twice: LastSeenVersionIsIgnored by read_custom_status::it_is_returned_only_if_the_version_is_greater;
    a_damaged_history_read_as_empty: DamagedHistoryReadsAsEmpty
        by read_execution::a_damaged_event_is_an_error_not_a_shorter_list;
    an_ignored_base: BaseIsIgnored by warm::a_commit_on_another_base_is_refused_and_changes_nothing;
    a_forgotten_check_in: CheckInIsForgotten by warm::check_in_is_called_once_before_the_answer;
    watches_that_never_wake: WatchesNeverWake by watch::a_change_before_the_wait_is_not_missed;
    work_lost_with_a_dropped_fetch: DroppedFetchesKeepTheirWork
        by dropped_futures::many_dropped_fetches_lose_nothing;
    more_turns_than_asked_for: MoreTurnsComeThanWereAskedFor
        by fetch_turns::never_more_instances_come_than_were_asked_for;
    more_work_than_asked_for: MoreWorkComesThanWasAskedFor
        by fetch_work::never_more_activities_come_than_were_asked_for;
    a_lock_with_nothing_left: LockLeftIsZero
        by fetch_turns::lock_left_is_at_most_the_lock_timeout_and_not_zero;
    a_torn_submission: SubmissionsAreTorn by submit::one_refused_message_refuses_the_whole_submission;
    a_start_of_a_taken_id_reported_as_created: EveryStartIsReportedAsCreated
        by submit::the_first_start_of_an_id_creates_it_and_later_ones_find_it_existing;
    forgotten_sessions_of_a_renewal: SessionsOfARenewalAreForgotten
        by renew::locks_and_sessions_are_renewed_together;
    a_step_counted_as_an_execution: StepsCountAsExecutions by commit_step::a_chain_of_steps_is_one_execution;
    an_activity_that_a_step_cancels_and_that_stays: CancelledRowsAreKept
        by commit_step::an_activity_that_the_step_schedules_and_drops_is_given_to_no_worker;
}

/// The model test notices faults, too, and prints the few operations that show them.
macro_rules! noticed_by_the_model {
    ($($test:ident: $fault:ident;)*) => {
        $(
            #[test]
            fn $test() {
                let proof = model::proof(env!("CARGO_PKG_NAME"), stringify!($test), 200);
                let panic = catch_unwind(|| model::run(&proof, || FaultyFactory::new(StoreFault::$fault))).unwrap_err();
                let text = panic.downcast_ref::<String>().expect("a text");
                assert!(text.contains("EVERTURN_PROOF_SEED="), "{text}");
                let code = text.lines().skip_while(|line| *line != "vec![").skip(1);
                let operations = code.take_while(|line| line.starts_with(' ')).count();
                assert!((1..=12).contains(&operations), "it was shrunk to a small case: {text}");
            }
        )*
    };
}

noticed_by_the_model! {
    the_model_notices_an_order_reversed: MessagesComeInReverse;
    the_model_notices_a_late_message_deleted: LateMessagesAreDeleted;
    the_model_notices_a_session_stolen: SessionsAreStolen;
    the_model_notices_timers_that_come_last: TimersComeLast;
    the_model_notices_ignored_handlers: HandlersAreIgnored;
    the_model_notices_a_missing_handler_that_delays_all: MissingHandlersDelayAll;
    the_model_notices_a_cancelled_row_kept: CancelledRowsAreKept;
    the_model_notices_lost_notes: NotesAreLost;
}

#[test]
fn the_model_accepts_a_sound_store() {
    let proof = model::proof(env!("CARGO_PKG_NAME"), "the_model_accepts_a_sound_store", 200);
    model::run(&proof, || FaultyFactory::new(StoreFault::None));
}
