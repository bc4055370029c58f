use std::time::Duration;

use everturn_provider::store::LockKind;

use super::super::unfinished_work::UnfinishedWork;
use super::*;

fn ended(activity_id: u64) -> Arc<EndedActivity> {
    Arc::new(EndedActivity {
        execution_id: 1,
        activity_id,
        completion: WorkItem::ActivityCompleted {
            instance: "i".into(),
            execution_id: 1,
            id: activity_id,
            result: String::new(),
        },
        lock_token: format!("token-{activity_id}"),
        next: None,
    })
}

fn leads(steps: &Steps, activity_id: u64) -> StepLead {
    match steps.enter("i", &ended(activity_id)) {
        Entered::Leads(lead) => lead,
        _ => panic!("activity {activity_id} does not lead"),
    }
}

fn waits(steps: &Steps, activity_id: u64) -> oneshot::Receiver<StepNews> {
    match steps.enter("i", &ended(activity_id)) {
        Entered::Waits(news) => news,
        _ => panic!("activity {activity_id} does not wait"),
    }
}

fn taken() -> Box<TakenWork> {
    let item = WorkItem::ActivityExecute {
        instance: "i".into(),
        execution_id: 1,
        id: 4,
        name: "Next".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    let lock_timeout = Duration::from_secs(30);
    let under_way = UnfinishedWork::default().begin(LockKind::WorkItem, "token-4", lock_timeout);
    Box::new(TakenWork { work: FetchedWork::new(item, "token-4".into(), lock_timeout, 1), under_way })
}

fn ids(waiting: &VecDeque<WaitingActivity>) -> Vec<u64> {
    waiting.iter().map(|waiting| waiting.ended.activity_id).collect()
}

#[test]
fn the_first_leads_the_others_wait_and_the_first_of_them_leads_next() {
    let steps = Steps::default();
    let lead = leads(&steps, 1);
    let (mut second, _third) = (waits(&steps, 2), waits(&steps, 3));
    assert!(second.try_recv().is_err(), "the leader is not done");
    drop(lead);
    let Ok(StepNews::Lead(lead)) = second.try_recv() else { panic!("the second leads") };
    assert_eq!(ids(&lead.take_waiting()), [3], "the leader itself does not wait any more");
}

#[test]
fn when_the_last_leader_is_gone_the_next_to_end_leads() {
    let steps = Steps::default();
    drop(leads(&steps, 1));
    drop(leads(&steps, 2));
    assert!(steps.inner().waiting.is_empty());
}

#[test]
fn workers_that_are_gone_are_passed_over() {
    let steps = Steps::default();
    let lead = leads(&steps, 1);
    drop(waits(&steps, 2));
    let mut third = waits(&steps, 3);
    drop(lead);
    assert!(matches!(third.try_recv(), Ok(StepNews::Lead(_))));
}

#[test]
fn instances_do_not_wait_for_each_other() {
    let steps = Steps::default();
    let _lead = leads(&steps, 1);
    assert!(matches!(steps.enter("other", &ended(1)), Entered::Leads(_)));
}

#[test]
fn after_a_decline_eight_outcomes_go_the_ordinary_way() {
    let steps = Steps::default();
    steps.note_declined("i");
    for _ in 0..ORDINARY_AFTER_DECLINE {
        assert!(matches!(steps.enter("i", &ended(1)), Entered::NotFused));
    }
    drop(leads(&steps, 1));
}

#[test]
fn a_difference_is_told_once_and_only_of_its_base() {
    let steps = Steps::default();
    let difference = ErrorDetails::nondeterminism("x");
    steps.note_difference("i", Stamp(1), difference.clone());
    assert_eq!(steps.take_difference("other", Stamp(1)), None);
    assert_eq!(steps.take_difference("i", Stamp(1)), Some(difference.clone()));
    assert_eq!(steps.take_difference("i", Stamp(1)), None);
    steps.note_difference("i", Stamp(1), difference);
    assert_eq!(steps.take_difference("i", Stamp(2)), None, "the history has moved on");
}

#[test]
fn declined_steps_are_remembered_of_many_instances_but_not_of_any_number() {
    let steps = Steps::default();
    (0..DECLINED_MAX).for_each(|instance| steps.note_declined(&instance.to_string()));
    assert_eq!(steps.inner().declined.len(), DECLINED_MAX, "all of them are remembered");
    steps.note_declined("one more");
    assert_eq!(steps.inner().declined.len(), 1, "the others are forgotten: their steps are tried again");
}

#[test]
fn differences_are_remembered_of_many_instances_but_not_of_any_number() {
    let steps = Steps::default();
    let note = |instance: &str| steps.note_difference(instance, Stamp(1), ErrorDetails::nondeterminism("x"));
    (0..DECLINED_MAX).for_each(|instance| note(&instance.to_string()));
    assert_eq!(steps.inner().differences.len(), DECLINED_MAX, "all of them are remembered");
    note("one more");
    assert_eq!(
        steps.inner().differences.len(),
        1,
        "the others are forgotten: their turns are compared again"
    );
}

#[test]
fn what_a_step_took_for_a_worker_that_waits_no_longer_comes_back() {
    let steps = Steps::default();
    let lead = leads(&steps, 1);
    let (waits, gone) = (waits(&steps, 2), waits(&steps, 3));
    drop(gone);
    let mut told = lead.take_waiting().into_iter().map(|waiting| waiting.tell_committed(Some(taken())));
    assert!(told.next().unwrap().is_none(), "its worker goes on with it");
    assert!(told.next().unwrap().is_some(), "no worker goes on with it");
    drop(waits);
}
