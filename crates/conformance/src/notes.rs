//! Notes stay with their message, from the call that sends it to the fetch that delivers it.

use everturn_provider::store::{Feature, MessageNotes, NewMessage, ParentLink, Submission};

use crate::harness::CaseHarness;
use crate::items::{cancel, signal, start};
use crate::sample_turn::SampleTurn;

cases! { $ notes as notes_cases:
    notes_of_a_turns_message_come_with_that_message,
    notes_of_a_submitted_message_come_with_that_message,
    notes_stay_with_a_message_that_is_fetched_again,
    notes_survive_a_restart,
}

/// The notes of a parent's cancellation.
fn sent_by(parent: &str) -> MessageNotes {
    let call = ParentLink { instance: parent.to_owned(), execution_id: 3, schedule_id: 7 };
    MessageNotes::of_parents_cancel(call)
}

/// Whether the store keeps notes; if not, the engine sends none.
fn keeps_notes(h: &CaseHarness) -> bool {
    h.supports(Feature::MessageNotes)
}

/// Commits a turn of `i` that cancels the instance `c`.
async fn cancel_child(h: &CaseHarness) {
    h.create("c").await;
    h.create("i").await;
    h.send(signal("i", "go")).await;
    let fetched = h.fetched_turn().await;
    let mut commit = SampleTurn::of("i", 1).into_request(&fetched.lock_token);
    commit.orchestrator_items = vec![
        signal("c", "before").into(),
        NewMessage::from(cancel("c")).with_notes(sent_by("i")),
        signal("c", "after").into(),
    ];
    h.commit_turn(&commit).await.unwrap();
}

/// The instance `c` is next, and only its second message has notes.
async fn expect_notes(h: &CaseHarness) -> String {
    let fetched = h.fetched_turn().await;
    assert_eq!(fetched.item.messages, [signal("c", "before"), cancel("c"), signal("c", "after")]);
    let none = MessageNotes::default();
    assert_eq!(fetched.notes, [none.clone(), sent_by("i"), none], "each message has its own notes");
    fetched.lock_token
}

async fn notes_of_a_turns_message_come_with_that_message(h: CaseHarness) {
    if !keeps_notes(&h) {
        return;
    }
    cancel_child(&h).await;
    expect_notes(&h).await;
}

async fn notes_of_a_submitted_message_come_with_that_message(h: CaseHarness) {
    h.send(start("c")).await;
    if keeps_notes(&h) {
        h.submit(&Submission::of(NewMessage::from(cancel("c")).with_notes(sent_by("p")))).await.unwrap();
        assert_eq!(h.fetched_turn().await.notes, [MessageNotes::default(), sent_by("p")]);
    } else {
        assert_eq!(h.fetched_turn().await.notes, [], "the adapter has no notes");
    }
}

async fn notes_stay_with_a_message_that_is_fetched_again(h: CaseHarness) {
    if !keeps_notes(&h) {
        return;
    }
    cancel_child(&h).await;
    let token = expect_notes(&h).await;
    h.release_turn(&token, None, true).await.unwrap();
    expect_notes(&h).await;
}

async fn notes_survive_a_restart(h: CaseHarness) {
    if !keeps_notes(&h) {
        return;
    }
    cancel_child(&h).await;
    if let Some(h) = h.reopened().await {
        expect_notes(&h).await;
    }
}
