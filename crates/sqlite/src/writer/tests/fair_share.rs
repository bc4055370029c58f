//! Calls of lock holders come first, but a share of each batch belongs to newcomers: operations and fetches that need no
//! lock. Counted in batches; a batch of these tests holds 1 MiB.

use super::*;

/// Three of these fill a batch.
const LARGE: usize = 400_000;
/// Larger than the share of newcomers.
const OVERSIZE: usize = 2_000_000;

/// So many activities that workers hold.
fn held_work(writer: &mut Writer, count: u64) -> Vec<String> {
    let hold = |id| {
        drop(call(writer, activity(id, 10)));
        let mut held = work_fetch(writer, id);
        drive(writer);
        let mut answer = held.try_recv().unwrap().unwrap().unwrap();
        answer.guard.disarm();
        answer.work.token.clone()
    };
    (1..=count).map(hold).collect()
}

/// Ends an activity with a result of so many bytes.
fn acknowledge(writer: &mut Writer, token: &str, result_bytes: usize) -> Answer<()> {
    let completion = WorkItem::ActivityCompleted {
        instance: "a".to_owned(),
        execution_id: 1,
        id: 1,
        result: "x".repeat(result_bytes),
    };
    let settlement = Settlement::end(token, Some(completion.into()));
    let called = writer.db.now();
    call(writer, SettleWork::encode(&settlement, called).unwrap())
}

fn acknowledge_all(writer: &mut Writer, tokens: &[String], result_bytes: usize) -> Vec<Answer<()>> {
    tokens.iter().map(|token| acknowledge(writer, token, result_bytes)).collect()
}

/// A signal with so many bytes.
fn signal_of(data_bytes: usize) -> Submit {
    let data = "x".repeat(data_bytes);
    message(WorkItem::ExternalRaised { instance: "a".to_owned(), name: "go".to_owned(), data }, None)
}

fn renew(writer: &mut Writer, token: &str) -> Answer<everturn_provider::store::Renewed> {
    let lock = LockRenewal { kind: LockKind::WorkItem, token: token.to_owned(), extend_for: LOCK };
    let called = writer.db.now();
    call(writer, Renew { renewal: Renewal::of_locks(vec![lock]), called })
}

fn step(writer: &mut Writer) {
    assert_eq!(writer.step(&mut Script::default()), WriterStep::Done);
}

/// How many of the calls were answered since the last count.
fn answered<T>(answers: &mut Vec<Answer<T>>) -> usize {
    let before = answers.len();
    answers.retain_mut(|answer| match answer.try_recv() {
        Ok(outcome) => {
            outcome.map(drop).unwrap();
            false
        }
        Err(_) => true,
    });
    before - answers.len()
}

#[test]
fn a_submit_that_comes_while_large_acknowledgements_wait_is_in_the_next_batch() {
    let mut writer = writer(512);
    let tokens = held_work(&mut writer, 20);
    let mut acks = acknowledge_all(&mut writer, &tokens, LARGE);
    let mut sent = call(&mut writer, signal());
    step(&mut writer);
    sent.try_recv().expect("the submit is in the first batch").unwrap();
    assert_eq!(answered(&mut acks), 3, "the acknowledgements fill the rest of it");
}

#[test]
fn submits_that_come_while_many_acknowledgements_wait_have_a_quarter_of_each_batch() {
    let mut writer = writer(8);
    let tokens = held_work(&mut writer, 20);
    let mut acks = acknowledge_all(&mut writer, &tokens, 1);
    let mut sent: Vec<_> = (0..20).map(|_| call(&mut writer, signal())).collect();
    for _ in 0..3 {
        step(&mut writer);
        assert_eq!((answered(&mut acks), answered(&mut sent)), (6, 2));
    }
    step(&mut writer);
    assert_eq!((answered(&mut acks), answered(&mut sent)), (2, 6), "what one kind leaves, the other takes");
}

#[test]
fn acknowledgements_fill_a_batch_that_no_newcomer_waits_for() {
    let mut writer = writer(8);
    let tokens = held_work(&mut writer, 10);
    let mut acks = acknowledge_all(&mut writer, &tokens, 1);
    step(&mut writer);
    assert_eq!(answered(&mut acks), 8);
}

#[test]
fn a_fetch_that_comes_while_large_acknowledgements_wait_is_served_in_the_next_batch() {
    let mut writer = writer(512);
    let tokens = held_work(&mut writer, 20);
    drop(call(&mut writer, activity(99, 10)));
    drive(&mut writer);
    let _acks = acknowledge_all(&mut writer, &tokens, LARGE);
    let mut fetched = work_fetch(&mut writer, 99);
    step(&mut writer);
    assert!(fetched.try_recv().expect("the fetch is served in the first batch").unwrap().is_some());
}

#[test]
fn a_stream_of_submits_starves_neither_acknowledgements_nor_renewals() {
    let mut writer = writer(8);
    let tokens = held_work(&mut writer, 13);
    let mut sent: Vec<_> = (0..40).map(|_| call(&mut writer, signal())).collect();
    let mut acks = acknowledge_all(&mut writer, &tokens[..12], 1);
    let mut renewed = renew(&mut writer, &tokens[12]);
    for expected in [5, 6, 1] {
        sent.extend((0..8).map(|_| call(&mut writer, signal())));
        step(&mut writer);
        assert_eq!(answered(&mut acks), expected);
        if expected == 5 {
            assert!(renewed.try_recv().expect("the renewal is in the first batch").is_ok());
        }
    }
}

#[test]
fn a_stream_of_acknowledgements_starves_no_large_submit() {
    let mut writer = writer(512);
    let tokens = held_work(&mut writer, 20);
    let mut acks = acknowledge_all(&mut writer, &tokens, LARGE);
    let mut sent: Vec<_> = (0..2).map(|_| call(&mut writer, signal_of(OVERSIZE))).collect();
    let batches: Vec<_> = (0..4)
        .map(|_| {
            step(&mut writer);
            (answered(&mut acks), answered(&mut sent))
        })
        .collect();
    assert_eq!(batches, [(3, 0), (0, 1), (3, 0), (0, 1)], "each batch holds what fits, by turns");
}

#[test]
fn with_one_operation_in_a_batch_acknowledgements_and_submits_take_turns() {
    let mut writer = writer(1);
    let tokens = held_work(&mut writer, 6);
    let mut acks = acknowledge_all(&mut writer, &tokens, 1);
    let mut sent: Vec<_> = (0..6).map(|_| call(&mut writer, signal())).collect();
    let batches: Vec<_> = (0..4)
        .map(|_| {
            step(&mut writer);
            (answered(&mut acks), answered(&mut sent))
        })
        .collect();
    assert_eq!(batches, [(1, 0), (0, 1), (1, 0), (0, 1)]);
}

#[test]
fn a_stream_of_fetches_starves_no_renewal() {
    let mut writer = writer(1);
    let tokens = held_work(&mut writer, 1);
    for id in 10..30 {
        drop(call(&mut writer, activity(id, 10)));
    }
    drive(&mut writer);
    let mut fetches: Vec<_> = (10..30).map(|id| work_fetch(&mut writer, id)).collect();
    drop(call(&mut writer, activity(99, 10)));
    step(&mut writer);
    let mut renewed = renew(&mut writer, &tokens[0]);
    let mut served = || fetches.iter_mut().filter_map(|fetch| fetch.try_recv().ok()).count();
    assert_eq!(served(), 0, "the operation took the whole batch");
    step(&mut writer);
    assert_eq!(served(), 1, "the second batch begins with a fetch");
    step(&mut writer);
    assert!(renewed.try_recv().expect("the third one begins with an operation").is_ok());
}

#[test]
fn a_stream_of_submits_starves_no_fetch_of_a_turn() {
    let mut writer = writer(2);
    let mut sent: Vec<_> =
        ["a", "b", "c", "d", "e"].iter().map(|id| call(&mut writer, start_of(id, None))).collect();
    let mut fetched = turn_fetch(&mut writer, 1, None);
    step(&mut writer);
    assert!(answered(&mut sent) == 2 && fetched.try_recv().is_err(), "the submits took the whole batch");
    step(&mut writer);
    assert!(fetched.try_recv().expect("the second batch begins with the fetch").unwrap().is_some());
    assert_eq!(answered(&mut sent), 1, "and leaves half of itself to submits");
}
