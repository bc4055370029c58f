//! Which case notices which fault.

use std::panic::catch_unwind;

use everturn_conformance::{
    abandon_orchestration_item, ack_orchestration_item, capability_filter, custom_status, damage,
    dropped_futures, enqueue_for_orchestrator, fetch_orchestration_item, kv_executions, locks, long_poll,
    poison, read, run, sessions, tags, tokens, warm, watch,
};

use crate::faulty::{Fault, FaultyFactory};

/// The case passes on the sound provider and fails on the faulty one.
macro_rules! noticed {
    ($($test:ident: $fault:ident by $verb:ident::$case:ident;)*) => {
        $(
            #[test]
            fn $test() {
                run(FaultyFactory::new(Fault::None), $verb::listed::$case);
                let failed = catch_unwind(|| run(FaultyFactory::new(Fault::$fault), $verb::listed::$case)).is_err();
                assert!(failed, "{:?} went unnoticed", Fault::$fault);
            }
        )*
    };
}

noticed! {
    cancelled_activities_that_stay: CancelledActivitiesStay
        by ack_orchestration_item::fifty_activities_are_cancelled_in_one_ack;
    lost_messages: OrchestratorItemsAreLost by ack_orchestration_item::events_activities_and_messages_all_land;
    a_status_not_stored: StatusIsNotStored
        by ack_orchestration_item::every_status_is_stored_with_output_and_time;
    an_ignored_delay: DelayOfAbandonIsIgnored
        by abandon_orchestration_item::with_a_delay_it_is_not_fetchable_before;
    an_ignored_refund: RefundIsIgnored by poison::refunds_stop_at_zero;
    a_message_too_early: DelayOfEnqueueIsIgnored
        by enqueue_for_orchestrator::a_delayed_message_is_visible_after_its_delay;
    an_ignored_filter: FilterIsIgnored by capability_filter::both_bounds_are_inclusive;
    an_ignored_session: SessionIsIgnored by sessions::the_owner_gets_the_following_activities_in_order;
    ignored_tags: TagsAreIgnored by tags::default_only_takes_untagged_activities;
    accepted_unknown_tokens: UnknownTokensAreAccepted by tokens::a_token_that_was_never_issued_is_refused;
    renewals_that_always_succeed: RenewalsAlwaysSucceed by tokens::an_expired_token_is_refused;
    swapped_renewal_answers: RenewalAnswersAreSwapped by locks::many_locks_are_renewed_in_one_call;
    fetches_that_do_not_wait: FetchesDoNotWait by long_poll::an_empty_work_fetch_waits_its_poll_timeout;
    uncounted_attempts: AttemptsAreNotCounted by poison::a_batch_reports_the_highest_count;
    a_shortened_history: HistoryIsShortened by fetch_orchestration_item::the_full_history_comes_with_every_fetch;
    an_error_for_a_broken_history: BrokenHistoryIsAnError
        by damage::a_broken_history_comes_with_an_error_under_lock;
    a_snapshot_with_live_keys: SnapshotIsTheMergedView
        by kv_executions::the_snapshot_has_no_keys_of_the_unfinished_execution;
    a_status_told_twice: LastSeenVersionIsIgnored by custom_status::it_is_told_only_if_the_version_is_greater;
    a_damaged_history_read_as_empty: DamagedHistoryReadsAsEmpty
        by read::a_damaged_event_is_an_error_not_a_shorter_list;
    an_ignored_base: BaseIsIgnored by warm::a_commit_on_another_base_is_refused_and_changes_nothing;
    a_forgotten_check_in: CheckInIsForgotten by warm::check_in_is_called_once_before_the_answer;
    watches_that_never_wake: WatchesNeverWake by watch::a_change_before_the_wait_is_not_missed;
    work_lost_with_a_dropped_fetch: DroppedFetchesKeepTheirWork
        by dropped_futures::many_dropped_fetches_lose_nothing;
}
