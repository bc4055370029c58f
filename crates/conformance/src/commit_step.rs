//! Fused steps: a turn is committed together with the activities whose outcomes it was taken on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_provider::TagFilter;
use everturn_provider::store::{
    EndedWork, Feature, FetchedWork, LentInstance, LockKind, LockRenewal, NextWork, Renewal, Settlement,
    Stamp, StepAnswer, StepCommit, StepDecline, TurnAbandon, TurnFetch, WarmView, WorkFetch,
};

use crate::events;
use crate::harness::{CaseHarness, LOCK, PAST_LOCK, expect_lock_lost, expect_permanent_error, secs, session};
use crate::image::image;
use crate::items::{
    activity, activity_completed, activity_id, activity_in_session, activity_tagged, signal, start, timer,
};
use crate::sample_turn::{SampleTurn, checking_in};

cases! { $ commit_step as commit_step_cases:
    a_store_that_does_not_fuse_declines_and_changes_nothing,
    a_step_writes_what_its_turn_decided_and_ends_its_activities,
    a_chain_of_steps_is_one_execution,
    a_step_can_end_the_instance,
    a_step_of_several_activities_ends_all_of_them,
    the_worker_goes_on_with_the_next_activity_of_the_step,
    an_older_activity_comes_before_that_of_the_step,
    an_activity_that_the_step_schedules_and_drops_is_given_to_no_worker,
    a_worker_gets_only_what_it_may_take,
    a_worker_that_takes_nothing_gets_nothing,
    what_a_worker_goes_on_with_is_locked_for_it_alone,
    an_ended_activity_is_gone_with_its_lock,
    a_step_on_another_base_is_declined,
    a_step_of_an_unknown_or_recreated_instance_is_declined,
    a_step_over_a_waiting_message_is_declined_and_the_message_can_be_fetched,
    a_step_over_a_due_timer_is_declined_and_one_over_a_later_timer_is_not,
    a_step_of_a_locked_instance_is_declined,
    a_step_of_a_delayed_instance_is_declined,
    a_step_with_a_lost_lock_is_declined,
    a_step_whose_activity_was_cancelled_is_declined,
    one_lost_lock_declines_the_whole_step,
    a_step_with_a_taken_event_id_is_refused,
    a_repeated_step_is_answered_as_committed_and_writes_nothing,
    check_in_is_called_for_a_committed_step_only,
    an_instance_with_a_step_under_way_is_passed_over,
    a_step_counts_as_activity_of_its_session,
}

/// Whether the store fuses steps. The cases are about stores that do.
fn fuses(h: &CaseHarness) -> bool {
    h.supports(Feature::FusedSteps)
}

/// A running instance at this stamp with these activities locked, oldest first.
async fn running(h: &CaseHarness, instance: &str, stamp: Stamp, activities: &[u64]) -> Vec<FetchedWork> {
    h.send(start(instance)).await;
    let fetched = h.fetched_turn().await;
    let first = activities.iter().fold(SampleTurn::beginning(instance, 1), |turn, id| {
        turn.event(*id, events::scheduled()).activity(activity(instance, *id))
    });
    h.commit_turn(&first.into_commit(&fetched.lock_token, None, stamp)).await.unwrap();
    let mut locked = Vec::new();
    for _ in activities {
        locked.push(h.fetched_work().await);
    }
    locked
}

fn taking(fetch: WorkFetch, random: u128) -> Option<NextWork> {
    Some(NextWork::new(Arc::new(fetch), random))
}

/// A worker that takes untagged activities.
fn any_next(random: u128) -> Option<NextWork> {
    taking(WorkFetch::new(LOCK, Duration::ZERO), random)
}

/// A step of one activity.
fn step(
    work: &FetchedWork,
    turn: SampleTurn,
    base: Stamp,
    stamp: Stamp,
    next: Option<NextWork>,
) -> StepCommit {
    let ended = vec![EndedWork::new(&work.lock_token, next)];
    StepCommit::new(work.item.instance(), ended, turn.into_commit("", Some(base), stamp))
}

/// The turn on the outcome of activity 2: it asks for activity 4.
fn going_on(instance: &str) -> SampleTurn {
    SampleTurn::of(instance, 1)
        .event(3, events::signalled("done"))
        .event(4, events::scheduled())
        .activity(activity(instance, 4))
}

fn committed(answer: StepAnswer) -> Vec<Option<FetchedWork>> {
    match answer {
        StepAnswer::Committed(next) => next,
        StepAnswer::Declined(reason) => panic!("the step was declined: {reason:?}"),
    }
}

/// The step is declined for this reason, and nothing changes.
async fn is_declined(h: &CaseHarness, step: &StepCommit, reason: StepDecline) {
    let before = image(h, &[&step.instance]).await;
    match h.commit_step(step).await.unwrap() {
        StepAnswer::Declined(why) => assert_eq!(why, reason),
        StepAnswer::Committed(_) => panic!("the step was committed"),
    }
    assert_eq!(image(h, &[&step.instance]).await, before);
}

/// The lock is still held: the outcome can go the ordinary way.
async fn can_be_settled(h: &CaseHarness, work: &FetchedWork) {
    let completion = activity_completed(work.item.instance(), activity_id(&work.item));
    h.settle_work(&Settlement::end(&work.lock_token, Some(completion.into()))).await.unwrap();
}

async fn a_store_that_does_not_fuse_declines_and_changes_nothing(h: CaseHarness) {
    if fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step, StepDecline::NotSupported).await;
    can_be_settled(&h, &work[0]).await;
}

async fn a_step_writes_what_its_turn_decided_and_ends_its_activities(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let turn = going_on("i")
        .event(5, events::custom_status(Some("half")))
        .event(6, events::kv_set("k", "v"))
        .message(signal("other", "hello"));
    h.create("other").await;
    committed(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), None)).await.unwrap());
    let history = h.history("i").await.unwrap();
    assert_eq!(history.iter().map(|event| event.event_id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let status = h.read_custom_status("i", 0).await.unwrap().unwrap();
    assert_eq!(status.text.as_deref(), Some("half"));
    assert_eq!(h.read_kv_value("i", "k").await.unwrap().as_deref(), Some("v"));
    assert_eq!(h.fetched_turn().await.item.messages, [signal("other", "hello")]);
    assert_eq!(h.fetched_work().await.item, activity("i", 4));
    assert!(h.next_work().await.is_none(), "activity 2 has ended");
    assert!(h.next_turn().await.is_none(), "no message of it is left");
    assert_eq!(
        h.read_execution(&everturn_provider::store::ExecutionRead::of("i", 1).with_stamp(true))
            .await
            .unwrap()
            .stamp,
        Some(Stamp(2))
    );
}

async fn a_chain_of_steps_is_one_execution(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let mut work = running(&h, "i", Stamp(1), &[2]).await.remove(0);
    for nth in 1..4 {
        let first_event_id = nth * 2 + 1;
        let turn = SampleTurn::of("i", 1)
            .event(first_event_id, events::signalled("done"))
            .event(first_event_id + 1, events::scheduled())
            .activity(activity("i", first_event_id + 1));
        let step = step(&work, turn, Stamp(nth), Stamp(nth + 1), any_next(u128::from(nth)));
        let next = committed(h.commit_step(&step).await.unwrap());
        work = next.into_iter().next().flatten().expect("the next activity");
    }
    let metrics = h.admin().get_system_metrics().await.unwrap();
    assert_eq!(
        (metrics.total_instances, metrics.running_instances, metrics.total_executions, metrics.total_events),
        (1, 1, 1, 8)
    );
    let turn = SampleTurn::of("i", 1).event(9, events::signalled("done")).completing(10, "end");
    committed(h.commit_step(&step(&work, turn, Stamp(4), Stamp(5), None)).await.unwrap());
    let metrics = h.admin().get_system_metrics().await.unwrap();
    assert_eq!((metrics.running_instances, metrics.completed_instances, metrics.total_executions), (0, 1, 1));
}

async fn a_step_can_end_the_instance(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let turn = SampleTurn::of("i", 1).event(3, events::signalled("done")).completing(4, "end");
    committed(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), any_next(1))).await.unwrap());
    assert!(h.read_status("i").await.unwrap().is_terminal());
    assert!(h.next_work().await.is_none());
}

async fn a_step_of_several_activities_ends_all_of_them(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2, 3]).await;
    let ended = work.iter().zip(1..).map(|(work, random)| EndedWork::new(&work.lock_token, any_next(random)));
    let turn = SampleTurn::of("i", 1).event(4, events::signalled("both")).activity(activity("i", 5));
    let step = StepCommit::new("i", ended.collect(), turn.into_commit("", Some(Stamp(1)), Stamp(2)));
    let next = committed(h.commit_step(&step).await.unwrap());
    assert_eq!(next.len(), 2, "one place for each worker");
    let given: Vec<u64> = next.iter().flatten().map(|work| activity_id(&work.item)).collect();
    assert_eq!(given, [5]);
    for work in &work {
        expect_lock_lost(h.settle_work(&Settlement::end(&work.lock_token, None)).await);
    }
}

async fn the_worker_goes_on_with_the_next_activity_of_the_step(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let next = committed(
        h.commit_step(&step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1))).await.unwrap(),
    );
    let next = next.into_iter().next().flatten().expect("the next activity");
    assert_eq!((&next.item, next.attempt_count), (&activity("i", 4), 1));
    assert!(!next.lock_left.is_zero() && next.lock_left <= LOCK);
    let turn = SampleTurn::of("i", 1).event(5, events::signalled("done")).completing(6, "end");
    committed(h.commit_step(&step(&next, turn, Stamp(2), Stamp(3), None)).await.unwrap());
    assert_eq!(h.history("i").await.unwrap().len(), 6);
}

async fn an_older_activity_comes_before_that_of_the_step(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.begin("older", SampleTurn::beginning("older", 1).activity(activity("older", 2))).await;
    let next = committed(
        h.commit_step(&step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1))).await.unwrap(),
    );
    assert_eq!(next[0].as_ref().map(|work| &work.item), Some(&activity("older", 2)));
    assert_eq!(h.fetched_work().await.item, activity("i", 4));
}

async fn an_activity_that_the_step_schedules_and_drops_is_given_to_no_worker(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let turn = going_on("i").event(5, events::scheduled()).activity(activity("i", 5)).cancelling(4);
    let next =
        committed(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), any_next(1))).await.unwrap());
    assert_eq!(next[0].as_ref().map(|work| &work.item), Some(&activity("i", 5)));
    assert!(h.next_work().await.is_none(), "activity 4 never runs");
}

async fn a_worker_gets_only_what_it_may_take(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let turn = SampleTurn::of("i", 1)
        .event(3, events::signalled("done"))
        .activity(activity_tagged("i", 4, "gpu"))
        .activity(activity_in_session("i", 5, "s"));
    let next =
        committed(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), any_next(1))).await.unwrap());
    assert!(next[0].is_none(), "it takes neither tags nor sessions");
    let gpu = TagFilter::tags(["gpu"]);
    assert_eq!(h.next_work_tagged(&gpu).await.map(|work| work.item), Some(activity_tagged("i", 4, "gpu")));
}

async fn a_worker_that_takes_nothing_gets_nothing(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let next =
        committed(h.commit_step(&step(&work[0], going_on("i"), Stamp(1), Stamp(2), None)).await.unwrap());
    assert!(next[0].is_none());
    assert_eq!(h.fetched_work().await.item, activity("i", 4));
}

async fn what_a_worker_goes_on_with_is_locked_for_it_alone(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let next = committed(
        h.commit_step(&step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1))).await.unwrap(),
    );
    let next = next.into_iter().next().flatten().expect("the next activity");
    assert!(h.next_work().await.is_none());
    let lock = LockRenewal { kind: LockKind::WorkItem, token: next.lock_token.clone(), extend_for: LOCK };
    assert!(h.renew(&Renewal::of_locks(vec![lock])).await.unwrap().locks[0].is_ok());
    h.pass(PAST_LOCK);
    let again = h.fetched_work().await;
    assert_eq!((&again.item, again.attempt_count), (&next.item, 2), "the first fetch counted");
    expect_lock_lost(h.settle_work(&Settlement::end(&next.lock_token, None)).await);
}

async fn an_ended_activity_is_gone_with_its_lock(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    committed(h.commit_step(&step(&work[0], going_on("i"), Stamp(1), Stamp(2), None)).await.unwrap());
    let completion = activity_completed("i", 2);
    expect_lock_lost(h.settle_work(&Settlement::end(&work[0].lock_token, Some(completion.into()))).await);
    assert!(h.next_turn().await.is_none(), "its outcome is not delivered twice");
}

async fn a_step_on_another_base_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, events::signalled("go"))).await;
    let late = SampleTurn::of("i", 1).event(4, events::signalled("done"));
    let step = step(&work[0], late, Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step, StepDecline::HistoryMoved).await;
    can_be_settled(&h, &work[0]).await;
}

async fn a_step_of_an_unknown_or_recreated_instance_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.admin().delete_instance("i", true).await.unwrap();
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1));
    let declined = h.commit_step(&step).await.unwrap();
    assert!(matches!(declined, StepAnswer::Declined(StepDecline::HistoryMoved)), "{declined:?}");
    h.create("i").await;
    is_declined(&h, &step, StepDecline::HistoryMoved).await;
}

async fn a_step_over_a_waiting_message_is_declined_and_the_message_can_be_fetched(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.send(signal("i", "first")).await;
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step, StepDecline::MessagesWaiting).await;
    can_be_settled(&h, &work[0]).await;
    assert_eq!(h.fetched_turn().await.item.messages, [signal("i", "first"), activity_completed("i", 2)]);
}

async fn a_step_over_a_due_timer_is_declined_and_one_over_a_later_timer_is_not(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let due_ms = h.now_ms() + 5_000;
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    let first = SampleTurn::beginning("i", 1).activity(activity("i", 2)).message(timer("i", 3, due_ms));
    h.commit_turn(&first.into_commit(&fetched.lock_token, None, Stamp(1))).await.unwrap();
    let work = h.fetched_work().await;
    let next =
        committed(h.commit_step(&step(&work, going_on("i"), Stamp(1), Stamp(2), any_next(1))).await.unwrap());
    let next = next.into_iter().next().flatten().expect("the next activity");
    h.pass(secs(5));
    let turn = SampleTurn::of("i", 1).event(5, events::signalled("done"));
    let late = step(&next, turn, Stamp(2), Stamp(3), None);
    let declined = h.commit_step(&late).await.unwrap();
    assert!(matches!(declined, StepAnswer::Declined(StepDecline::MessagesWaiting)), "{declined:?}");
    assert_eq!(h.fetched_turn().await.item.messages, [timer("i", 3, due_ms)]);
}

async fn a_step_of_a_locked_instance_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.send(signal("i", "go")).await;
    let _locked = h.fetched_turn().await;
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step, StepDecline::Locked).await;
    can_be_settled(&h, &work[0]).await;
}

async fn a_step_of_a_delayed_instance_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.send(signal("i", "go")).await;
    let locked = h.fetched_turn().await;
    h.abandon_turn(&TurnAbandon::new(&locked.lock_token).with_delay(Some(secs(2)))).await.unwrap();
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step, StepDecline::Locked).await;
}

async fn a_step_with_a_lost_lock_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    h.pass(PAST_LOCK);
    let step_of = |work| step(work, going_on("i"), Stamp(1), Stamp(2), any_next(1));
    is_declined(&h, &step_of(&work[0]), StepDecline::WorkGone).await;
    let again = h.fetched_work().await;
    is_declined(&h, &step_of(&work[0]), StepDecline::WorkGone).await;
    committed(h.commit_step(&step_of(&again)).await.unwrap());
}

async fn a_step_whose_activity_was_cancelled_is_declined(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2, 3]).await;
    let turn = SampleTurn::of("i", 1).event(4, events::signalled("done")).cancelling(3);
    committed(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), None)).await.unwrap());
    let late = SampleTurn::of("i", 1).event(5, events::signalled("done"));
    is_declined(&h, &step(&work[1], late, Stamp(2), Stamp(3), None), StepDecline::WorkGone).await;
}

async fn one_lost_lock_declines_the_whole_step(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2, 3]).await;
    let abandon = Settlement::abandon(&work[1].lock_token, None, true);
    h.settle_work(&abandon).await.unwrap();
    let ended = work.iter().map(|work| EndedWork::new(&work.lock_token, None)).collect();
    let turn = SampleTurn::of("i", 1).event(4, events::signalled("both"));
    let step = StepCommit::new("i", ended, turn.into_commit("", Some(Stamp(1)), Stamp(2)));
    is_declined(&h, &step, StepDecline::WorkGone).await;
    can_be_settled(&h, &work[0]).await;
}

async fn a_step_with_a_taken_event_id_is_refused(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let before = image(&h, &["i"]).await;
    let turn = SampleTurn::of("i", 1).event(2, events::signalled("done"));
    expect_permanent_error(h.commit_step(&step(&work[0], turn, Stamp(1), Stamp(2), None)).await);
    assert_eq!(image(&h, &["i"]).await, before);
    can_be_settled(&h, &work[0]).await;
}

async fn a_repeated_step_is_answered_as_committed_and_writes_nothing(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let step = step(&work[0], going_on("i"), Stamp(1), Stamp(2), None);
    committed(h.commit_step(&step).await.unwrap());
    let before = image(&h, &["i"]).await;
    committed(h.commit_step(&step).await.unwrap());
    assert_eq!(image(&h, &["i"]).await, before);
}

async fn check_in_is_called_for_a_committed_step_only(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    let work = running(&h, "i", Stamp(1), &[2]).await;
    let calls = Arc::<AtomicUsize>::default();
    let with_check_in = |mut step: StepCommit| {
        let calls = Arc::clone(&calls);
        step.turn = checking_in(step.turn, move || {
            calls.fetch_add(1, Ordering::SeqCst);
        });
        step
    };
    let declined = with_check_in(step(&work[0], going_on("i"), Stamp(9), Stamp(2), None));
    is_declined(&h, &declined, StepDecline::HistoryMoved).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let good = with_check_in(step(&work[0], going_on("i"), Stamp(1), Stamp(2), None));
    committed(h.commit_step(&good).await.unwrap());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    committed(h.commit_step(&good).await.unwrap());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the repeated call commits nothing");
}

/// A runtime that takes a step of one instance.
struct Stepping(&'static str);

impl WarmView for Stepping {
    fn lend(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> Option<LentInstance> {
        None
    }

    fn is_stepping(&self, instance: &str) -> bool {
        instance == self.0
    }
}

async fn an_instance_with_a_step_under_way_is_passed_over(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    h.create("stepping").await;
    h.create("other").await;
    h.send(signal("stepping", "go")).await;
    h.send(signal("other", "go")).await;
    let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_warm(Arc::new(Stepping("stepping")));
    assert_eq!(h.fetch_turn(&fetch).await.unwrap().map(|turn| turn.item.instance).as_deref(), Some("other"));
    assert!(h.fetch_turn(&fetch).await.unwrap().is_none());
    assert_eq!(h.fetched_turn().await.item.instance, "stepping", "no other runtime takes a step of it");
}

async fn a_step_counts_as_activity_of_its_session(h: CaseHarness) {
    if !fuses(&h) {
        return;
    }
    h.send(start("i")).await;
    let fetched = h.fetched_turn().await;
    let first = SampleTurn::beginning("i", 1).activity(activity_in_session("i", 2, "s"));
    h.commit_turn(&first.into_commit(&fetched.lock_token, None, Stamp(1))).await.unwrap();
    let fetch = WorkFetch::new(LOCK, Duration::ZERO).with_session(session("owner", LOCK));
    let work = h.fetch_one_work(&fetch).await.unwrap().expect("the activity of the session");
    let turn =
        SampleTurn::of("i", 1).event(3, events::signalled("done")).activity(activity_in_session("i", 4, "s"));
    let next = taking(fetch, 1);
    let next = committed(h.commit_step(&step(&work, turn, Stamp(1), Stamp(2), next)).await.unwrap());
    assert_eq!(next[0].as_ref().map(|work| activity_id(&work.item)), Some(4), "it keeps the session");
}
