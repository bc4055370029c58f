//! The writing verbs, dropped at each await until they end: they happened whole or not at all.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::Event;
use everturn_provider::ProviderError;
use everturn_provider::management::{InstanceFilter, PruneOptions};
use everturn_provider::store::{LockKind, LockRenewal, Renewal, Stamp};

use crate::events;
use crate::harness::{CaseHarness, LOCK, PAST_LOCK};
use crate::items::{activity, activity_in_session, signal, start};
use crate::sample_turn::{SampleTurn, checking_in};
use crate::waiting::polled;

cases! { $ dropped_writes as dropped_writes_cases:
    a_dropped_commit_checks_in_if_it_happened,
    a_dropped_turn_abandon_refunds_once_or_not_at_all,
    a_dropped_work_abandon_refunds_once_or_not_at_all,
    a_dropped_renewal_leaves_the_lock_to_its_holder,
    a_dropped_renewal_of_many_leaves_the_locks_to_their_holder,
    a_dropped_session_renewal_extends_all_leases_or_none,
    a_dropped_session_sweep_removes_all_or_none,
    a_dropped_submission_sends_once_or_not_at_all,
    a_dropped_append_is_whole_or_nothing,
    a_dropped_delete_removes_all_or_nothing,
    a_dropped_prune_removes_all_or_nothing,
    a_dropped_bulk_delete_removes_all_or_nothing,
    a_dropped_bulk_prune_removes_all_or_nothing,
}

/// More polls than any write needs.
const POLLS_MAX: usize = 100;

/// Polls a call so often, drops it, and waits until whatever it began is decided. Returns whether it had ended.
async fn dropped<T: std::fmt::Debug>(
    h: &CaseHarness,
    polls: usize,
    call: impl Future<Output = Result<T, ProviderError>> + Send,
) -> bool {
    let mut call: Pin<Box<_>> = Box::pin(call);
    let answer = polled(&mut call, polls).await;
    drop(call);
    h.settle().await;
    answer.map(Result::unwrap).is_some()
}

/// Drops something before its first poll, then after one more poll each time, until it ended before it could be dropped.
async fn at_each_await(mut drop_after: impl AsyncFnMut(usize) -> bool) {
    for polls in 0..POLLS_MAX {
        if drop_after(polls).await {
            return;
        }
    }
    panic!("it does not end after {POLLS_MAX} polls");
}

async fn a_dropped_commit_checks_in_if_it_happened(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        h.create(&instance).await;
        h.send(signal(&instance, "go")).await;
        let fetched = h.fetched_turn().await;
        let check_ins = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&check_ins);
        let commit = SampleTurn::of(&instance, 1).event(2, events::scheduled()).into_commit(
            &fetched.lock_token,
            None,
            Stamp(7),
        );
        let commit = checking_in(commit, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let ended = dropped(&h, polls, h.commit_turn(&commit)).await;
        let happened = h.event_ids(&instance).await == [1, 2];
        assert!(happened || !ended, "what was answered has happened");
        let expected = usize::from(happened && h.keeps_instances_warm());
        assert_eq!(check_ins.load(Ordering::SeqCst), expected);
        if !happened {
            SampleTurn::of(&instance, 1).commit(&h, &fetched.lock_token).await.unwrap();
        }
        ended
    })
    .await;
}

async fn a_dropped_turn_abandon_refunds_once_or_not_at_all(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        h.send(start(&instance)).await;
        let first = h.fetched_turn().await;
        let ended = dropped(&h, polls, h.release_turn(&first.lock_token, None, true)).await;
        // Refused if the dropped one happened.
        let again = h.release_turn(&first.lock_token, None, true).await;
        assert!(again.is_err() || !ended, "what was answered has happened");
        let again = h.fetched_turn().await;
        assert_eq!((again.item.instance.as_str(), again.attempt_count), (&*instance, 1));
        SampleTurn::beginning(&instance, 1).commit(&h, &again.lock_token).await.unwrap();
        ended
    })
    .await;
}

async fn a_dropped_work_abandon_refunds_once_or_not_at_all(h: CaseHarness) {
    at_each_await(async |polls| {
        h.queue(activity("i", 7)).await;
        let first = h.fetched_work().await;
        let ended = dropped(&h, polls, h.release_work(&first.lock_token, None, true)).await;
        // Refused if the dropped one happened.
        let again = h.release_work(&first.lock_token, None, true).await;
        assert!(again.is_err() || !ended, "what was answered has happened");
        let again = h.fetched_work().await;
        assert_eq!(again.attempt_count, 1);
        h.end_work(&again.lock_token, None).await.unwrap();
        ended
    })
    .await;
}

async fn a_dropped_renewal_leaves_the_lock_to_its_holder(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        h.queue(activity("i", 7)).await;
        h.send(start(&instance)).await;
        let (work, turn) = (h.fetched_work().await, h.fetched_turn().await);
        let work_ended = dropped(&h, polls, h.renew_work(&work.lock_token, LOCK)).await;
        let turn_ended = dropped(&h, polls, h.renew_turn(&turn.lock_token, LOCK)).await;
        assert!(h.next_work().await.is_none());
        assert!(h.next_turn().await.is_none());
        h.end_work(&work.lock_token, None).await.unwrap();
        SampleTurn::beginning(&instance, 1).commit(&h, &turn.lock_token).await.unwrap();
        work_ended && turn_ended
    })
    .await;
}

async fn a_dropped_renewal_of_many_leaves_the_locks_to_their_holder(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        h.queue(activity("i", 7)).await;
        h.send(start(&instance)).await;
        let (work, turn) = (h.fetched_work().await, h.fetched_turn().await);
        let renewal = |kind, token: &str| LockRenewal { kind, token: token.to_owned(), extend_for: LOCK };
        let renewals = Renewal::of_locks(vec![
            renewal(LockKind::WorkItem, &work.lock_token),
            renewal(LockKind::Orchestration, &turn.lock_token),
        ]);
        let ended = dropped(&h, polls, async {
            h.renew(&renewals).await?.locks.into_iter().collect::<Result<(), _>>()
        })
        .await;
        assert!(h.next_work().await.is_none());
        assert!(h.next_turn().await.is_none());
        h.end_work(&work.lock_token, None).await.unwrap();
        SampleTurn::beginning(&instance, 1).commit(&h, &turn.lock_token).await.unwrap();
        ended
    })
    .await;
}

/// Two sessions of one owner whose activities are done; the lease is as long as the locks are.
async fn two_sessions(h: &CaseHarness, names: [&str; 2]) {
    for name in names {
        h.queue(activity_in_session("i", 7, name)).await;
    }
    for _ in names {
        let work = h.next_work_as("owner", LOCK).await.unwrap();
        h.end_work(&work.lock_token, None).await.unwrap();
    }
}

async fn a_dropped_session_renewal_extends_all_leases_or_none(h: CaseHarness) {
    at_each_await(async |polls| {
        let (first, second) = (format!("first {polls}"), format!("second {polls}"));
        two_sessions(&h, [&first, &second]).await;
        let ended = dropped(&h, polls, h.renew_sessions(&["owner"], 3 * LOCK, LOCK)).await;
        h.pass(PAST_LOCK);
        for name in [&first, &second] {
            h.queue(activity_in_session("i", 7, name)).await;
        }
        let mut claimed = Vec::new();
        while let Some(work) = h.next_work_as("other", LOCK).await {
            claimed.push(work);
        }
        let expected: &[usize] = if ended { &[0] } else { &[0, 2] };
        assert!(expected.contains(&claimed.len()), "{} of 2 leases were extended", 2 - claimed.len());
        while let Some(work) = h.next_work_as("owner", LOCK).await {
            claimed.push(work);
        }
        assert_eq!(claimed.len(), 2);
        for work in claimed {
            h.end_work(&work.lock_token, None).await.unwrap();
        }
        h.pass(4 * LOCK);
        ended
    })
    .await;
}

async fn a_dropped_session_sweep_removes_all_or_none(h: CaseHarness) {
    at_each_await(async |polls| {
        two_sessions(&h, ["first", "second"]).await;
        h.pass(PAST_LOCK);
        let ended = dropped(&h, polls, h.sweep_sessions(LOCK)).await;
        let left = h.sweep_sessions(LOCK).await.unwrap();
        assert!(left == 0 || (left == 2 && !ended), "{left} of 2 sessions were left");
        ended
    })
    .await;
}

async fn a_dropped_submission_sends_once_or_not_at_all(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        let sent = dropped(&h, polls, h.enqueue(start(&instance), None)).await;
        match h.next_turn().await {
            Some(fetched) => {
                assert_eq!(fetched.item.messages, [start(&instance)]);
                SampleTurn::beginning(&instance, 1).commit(&h, &fetched.lock_token).await.unwrap();
            }
            None => assert!(!sent, "what was answered is there"),
        }
        let queued = dropped(&h, polls, h.enqueue_work(activity("i", 7))).await;
        match h.drain_work().await.as_slice() {
            [] => assert!(!queued, "what was answered is there"),
            sent => assert_eq!(sent, [7]),
        }
        sent && queued
    })
    .await;
}

async fn a_dropped_append_is_whole_or_nothing(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        let event =
            |id| Event::stamped(id, instance.clone(), 1, None, 5, events::signalled(&format!("event {id}")));
        let append = h.append_events(&instance, 1, (1..=3).map(event).collect());
        let ended = dropped(&h, polls, append).await;
        let ids = h.event_ids(&instance).await;
        assert!(ids == [1, 2, 3] || (ids.is_empty() && !ended), "{ids:?}");
        ended
    })
    .await;
}

/// Makes a completed instance with a row in each queue.
async fn complete_with_rows(h: &CaseHarness, instance: &str) {
    let turn = SampleTurn::beginning(instance, 1)
        .event(2, events::kv_set("k", "v"))
        .activity(activity(instance, 2))
        .completing(3, "done");
    h.begin(instance, turn).await;
    h.send(signal(instance, "late")).await;
}

/// Whether the instance is there, whole; if not, nothing of it is.
async fn is_whole(h: &CaseHarness, instance: &str) -> bool {
    let exists = h.admin().get_instance_info(instance).await.is_ok();
    let (kept, key) = (h.event_ids(instance).await.len(), h.read_kv_value(instance, "k").await.unwrap());
    let rows = (h.messages_waiting().await, h.activities_waiting().await);
    let expected = if exists { (3, Some("v".to_owned()), (1, 1)) } else { (0, None, (0, 0)) };
    assert_eq!((kept, key, rows), expected);
    exists
}

async fn a_dropped_delete_removes_all_or_nothing(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        complete_with_rows(&h, &instance).await;
        let ended = dropped(&h, polls, h.admin().delete_instance(&instance, false)).await;
        if is_whole(&h, &instance).await {
            assert!(!ended, "what was answered has happened");
            h.admin().delete_instance(&instance, false).await.unwrap();
        }
        ended
    })
    .await;
}

async fn a_dropped_bulk_delete_removes_all_or_nothing(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        complete_with_rows(&h, &instance).await;
        let ended = dropped(&h, polls, h.admin().delete_instance_bulk(InstanceFilter::default())).await;
        if is_whole(&h, &instance).await {
            assert!(!ended, "what was answered has happened");
            h.admin().delete_instance(&instance, false).await.unwrap();
        }
        ended
    })
    .await;
}

/// Whether an instance of four executions has them all; if not, only the last one is left.
async fn has_all_executions(h: &CaseHarness, instance: &str) -> bool {
    let left = h.admin().list_executions(instance).await.unwrap();
    let read =
        [h.history_of(instance, 1).await.unwrap().len(), h.history_of(instance, 4).await.unwrap().len()];
    assert!(
        (left == [1, 2, 3, 4] && read == [2, 1]) || (left == [4] && read == [0, 1]),
        "{left:?} {read:?} of {instance}"
    );
    left.len() > 1
}

async fn a_dropped_prune_removes_all_or_nothing(h: CaseHarness) {
    at_each_await(async |polls| {
        let instance = format!("i{polls}");
        h.create_with_executions(&instance, 4).await;
        let ended = dropped(&h, polls, h.admin().prune_executions(&instance, PruneOptions::default())).await;
        assert!(!(has_all_executions(&h, &instance).await && ended), "what was answered has happened");
        ended
    })
    .await;
}

async fn a_dropped_bulk_prune_removes_all_or_nothing(h: CaseHarness) {
    at_each_await(async |polls| {
        let (first, second) = (format!("first {polls}"), format!("second {polls}"));
        h.create_with_executions(&first, 4).await;
        h.create_with_executions(&second, 4).await;
        let prune = h.admin().prune_executions_bulk(InstanceFilter::default(), PruneOptions::default());
        let ended = dropped(&h, polls, prune).await;
        let left = (has_all_executions(&h, &first).await, has_all_executions(&h, &second).await);
        assert!(left == (false, false) || (left == (true, true) && !ended), "{left:?}");
        ended
    })
    .await;
}
