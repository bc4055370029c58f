//! The writing verbs, dropped after any number of polls: they happened whole or not at all.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_core::Event;
use everturn_provider::management::PruneOptions;
use everturn_provider::{ProviderError, Stamp};

use crate::events;
use crate::harness::{Harness, LOCK, lock_lost};
use crate::items::{activity, signal, start};
use crate::turn::{Turn, checking_in};
use crate::waiting::poll_once;

cases! { $ dropped_writes as dropped_writes_cases:
    a_dropped_commit_checks_in_if_it_happened,
    a_dropped_orchestration_abandon_refunds_once_or_not_at_all,
    a_dropped_work_abandon_refunds_once_or_not_at_all,
    a_dropped_renewal_leaves_the_lock_to_its_holder,
    a_dropped_enqueue_sends_once_or_not_at_all,
    a_dropped_append_is_whole_or_nothing,
    a_dropped_delete_removes_all_or_nothing,
    a_dropped_prune_removes_all_or_nothing,
}

/// So many polls are tried: more than any write needs.
const POLLS: u64 = 6;

/// Polls a call at most so often, drops it, and waits until whatever it began is decided. Returns its answer if it gave
/// one.
async fn dropped<T>(
    h: &Harness,
    polls: u64,
    call: impl Future<Output = Result<T, ProviderError>> + Send,
) -> Option<Result<T, ProviderError>> {
    let mut call: Pin<Box<_>> = Box::pin(call);
    let mut answer = None;
    for _ in 0..polls {
        answer = poll_once(&mut call).await;
        if answer.is_some() {
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(call);
    // A later write is answered after every earlier one is decided.
    lock_lost(h.renew_work_item_lock("never issued", LOCK).await);
    answer
}

async fn a_dropped_commit_checks_in_if_it_happened(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        h.create(&instance).await;
        h.send(signal(&instance, "go")).await;
        let fetched = h.fetched().await;
        let check_ins = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&check_ins);
        let commit =
            Turn::of(&instance, 1).event(2, events::scheduled()).commit(&fetched.token, None, Stamp(7));
        let commit = checking_in(commit, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        drop(dropped(&h, polls, h.commit_turn(&commit)).await);
        let happened = h.event_ids(&instance).await == [1, 2];
        let expected = usize::from(happened && h.factory().keeps_stamps());
        assert_eq!(check_ins.load(Ordering::SeqCst), expected);
        if !happened {
            Turn::of(&instance, 1).ack(&*h, &fetched.token).await.unwrap();
        }
    }
}

async fn a_dropped_orchestration_abandon_refunds_once_or_not_at_all(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        h.send(start(&instance)).await;
        let first = h.fetched().await;
        drop(dropped(&h, polls, h.abandon_orchestration_item(&first.token, None, true)).await);
        // Refused if the dropped one happened.
        drop(h.abandon_orchestration_item(&first.token, None, true).await);
        let again = h.fetched().await;
        assert_eq!((again.item.instance.as_str(), again.attempts), (&*instance, 1));
        Turn::beginning(&instance, 1).ack(&*h, &again.token).await.unwrap();
    }
}

async fn a_dropped_work_abandon_refunds_once_or_not_at_all(h: Harness) {
    for polls in 1..=POLLS {
        h.queue(activity("i", polls)).await;
        let first = h.fetched_work().await;
        drop(dropped(&h, polls, h.abandon_work_item(&first.token, None, true)).await);
        // Refused if the dropped one happened.
        drop(h.abandon_work_item(&first.token, None, true).await);
        let again = h.fetched_work().await;
        assert_eq!((again.id(), again.attempts), (polls, 1));
        h.ack_work_item(&again.token, None).await.unwrap();
    }
}

async fn a_dropped_renewal_leaves_the_lock_to_its_holder(h: Harness) {
    for polls in 1..=POLLS {
        h.queue(activity("i", polls)).await;
        h.send(start(&format!("i{polls}"))).await;
        let (work, turn) = (h.fetched_work().await, h.fetched().await);
        drop(dropped(&h, polls, h.renew_work_item_lock(&work.token, LOCK)).await);
        drop(dropped(&h, polls, h.renew_orchestration_item_lock(&turn.token, LOCK)).await);
        assert!(h.fetch_work().await.is_none());
        assert!(h.fetch().await.is_none());
        h.ack_work_item(&work.token, None).await.unwrap();
        Turn::beginning(&format!("i{polls}"), 1).ack(&*h, &turn.token).await.unwrap();
    }
}

async fn a_dropped_enqueue_sends_once_or_not_at_all(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        let answer = dropped(&h, polls, h.enqueue_for_orchestrator(start(&instance), None)).await;
        match h.fetch().await {
            Some(fetched) => {
                assert_eq!(fetched.item.messages, [start(&instance)]);
                Turn::beginning(&instance, 1).ack(&*h, &fetched.token).await.unwrap();
            }
            None => assert!(answer.is_none(), "what was acknowledged is there"),
        }
        let answer = dropped(&h, polls, h.enqueue_for_worker(activity("i", polls))).await;
        match h.drain_work().await.as_slice() {
            [] => assert!(answer.is_none(), "what was acknowledged is there"),
            sent => assert_eq!(sent, [polls]),
        }
    }
}

async fn a_dropped_append_is_whole_or_nothing(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        let event =
            |id| Event::stamped(id, instance.clone(), 1, None, 5, events::signalled(&format!("event {id}")));
        let append = h.append_with_execution(&instance, 1, (1..=3).map(event).collect());
        let answer = dropped(&h, polls, append).await;
        let ids = h.event_ids(&instance).await;
        assert!(ids == [1, 2, 3] || (ids.is_empty() && answer.is_none()), "{ids:?} after {answer:?}");
    }
}

async fn a_dropped_delete_removes_all_or_nothing(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        let turn = Turn::beginning(&instance, 1)
            .event(2, events::kv_set("k", "v"))
            .activity(activity(&instance, 2))
            .completing(3, "done");
        h.begin(&instance, turn).await;
        h.send(signal(&instance, "late")).await;
        let answer = dropped(&h, polls, h.admin().delete_instance(&instance, false)).await;
        let exists = h.admin().get_instance_info(&instance).await.is_ok();
        assert!(!exists || answer.is_none(), "what was acknowledged has happened");
        let (kept, key) = (h.event_ids(&instance).await.len(), h.get_kv_value(&instance, "k").await.unwrap());
        let rows = (h.messages_waiting().await, h.activities_waiting().await);
        let expected = if exists { (3, Some("v".to_owned()), (1, 1)) } else { (0, None, (0, 0)) };
        assert_eq!((kept, key, rows), expected);
        if exists {
            h.admin().delete_instance(&instance, false).await.unwrap();
        }
    }
}

async fn a_dropped_prune_removes_all_or_nothing(h: Harness) {
    for polls in 1..=POLLS {
        let instance = format!("i{polls}");
        h.create_with_executions(&instance, 4).await;
        let prune = h.admin().prune_executions(&instance, PruneOptions::default());
        let answer = dropped(&h, polls, prune).await;
        let left = h.admin().list_executions(&instance).await.unwrap();
        let read: Vec<usize> = [
            h.read_with_execution(&instance, 1).await.unwrap().len(),
            h.read_with_execution(&instance, 4).await.unwrap().len(),
        ]
        .into();
        let is_pruned = left == [4] && read == [0, 1];
        let is_whole = left == [1, 2, 3, 4] && read == [2, 1] && answer.is_none();
        assert!(is_pruned || is_whole, "{left:?} {read:?} after {answer:?}");
    }
}
