//! `admin`: listing and inspecting instances.

use everturn_core::WorkItem;

use crate::events;
use crate::harness::{CaseHarness, expect_permanent_error, secs};
use crate::items::{NAME, VERSION, activity, queue_message, signal};
use crate::sample_turn::SampleTurn;

cases! { $ admin as admin_cases:
    all_created_instances_are_listed_newest_first,
    equal_times_are_listed_by_id,
    the_status_filter_works,
    the_status_is_that_of_the_current_execution,
    executions_are_listed_ascending,
    an_unknown_instance_has_execution_one_and_lists_none,
    instance_info_tells_all,
    execution_info_tells_all,
    info_of_something_unknown_says_not_found,
    the_instance_is_updated_by_its_turns,
    totals_grow_with_instances_and_events,
    queue_depths_count_what_is_not_locked,
    queue_depths_do_not_count_timers_of_ended_executions,
    only_direct_children_are_listed_by_id,
    the_parent_of_a_root_a_child_and_an_unknown_instance,
    a_tree_is_listed_root_first,
    a_tree_of_one_node,
}

async fn all_created_instances_are_listed_newest_first(h: CaseHarness) {
    for instance in ["b", "c", "a"] {
        h.create(instance).await;
        h.pass(secs(1));
    }
    h.turn("b", SampleTurn::of("b", 1).event(2, events::scheduled())).await;
    assert_eq!(h.admin().list_instances().await.unwrap(), ["a", "c", "b"]);
    assert_eq!(h.admin().list_instances_by_status("Running").await.unwrap(), ["a", "c", "b"]);
}

async fn equal_times_are_listed_by_id(h: CaseHarness) {
    for instance in ["b", "c", "a"] {
        h.create(instance).await;
    }
    h.pass(secs(1));
    h.create("z").await;
    assert_eq!(h.admin().list_instances().await.unwrap(), ["z", "a", "b", "c"]);
    assert_eq!(h.admin().list_instances_by_status("Running").await.unwrap(), ["z", "a", "b", "c"]);
}

async fn the_status_filter_works(h: CaseHarness) {
    h.create("running").await;
    h.create_completed("completed").await;
    h.begin("failed", SampleTurn::beginning("failed", 1).failing(2, "boom")).await;
    h.begin("continued", SampleTurn::beginning("continued", 1).continuing_as_new(2)).await;
    let admin = h.admin();
    assert_eq!(admin.list_instances_by_status("Running").await.unwrap(), ["running"]);
    assert_eq!(admin.list_instances_by_status("Completed").await.unwrap(), ["completed"]);
    assert_eq!(admin.list_instances_by_status("Failed").await.unwrap(), ["failed"]);
    assert_eq!(admin.list_instances_by_status("ContinuedAsNew").await.unwrap(), ["continued"]);
    assert!(admin.list_instances_by_status("Nonsense").await.unwrap().is_empty());
}

async fn the_status_is_that_of_the_current_execution(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    assert_eq!(h.admin().list_instances_by_status("Running").await.unwrap(), ["i"]);
    assert!(h.admin().list_instances_by_status("ContinuedAsNew").await.unwrap().is_empty());
}

async fn executions_are_listed_ascending(h: CaseHarness) {
    h.create_with_executions("i", 12).await;
    assert_eq!(h.admin().list_executions("i").await.unwrap(), (1..=12).collect::<Vec<_>>());
}

async fn an_unknown_instance_has_execution_one_and_lists_none(h: CaseHarness) {
    assert_eq!(h.admin().latest_execution_id("unknown").await.unwrap(), 1);
    assert!(h.admin().list_executions("unknown").await.unwrap().is_empty());
    assert!(h.admin().list_children("unknown").await.unwrap().is_empty());
}

async fn instance_info_tells_all(h: CaseHarness) {
    h.create("parent").await;
    let created = h.now_ms();
    h.create_completed_child("i", "parent").await;
    let info = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!(info.instance_id, "i");
    assert_eq!(info.orchestration_name, NAME);
    assert_eq!(info.orchestration_version, VERSION);
    assert_eq!(info.current_execution_id, 1);
    assert_eq!(info.status, "Completed");
    assert_eq!(info.output.as_deref(), Some("done"));
    assert_eq!(info.created_at, created);
    assert_eq!(info.parent_instance_id.as_deref(), Some("parent"));
}

async fn execution_info_tells_all(h: CaseHarness) {
    h.create_with_executions("i", 2).await;
    let info = h.admin().get_execution_info("i", 1).await.unwrap();
    assert_eq!((info.execution_id, info.status.as_str(), info.event_count), (1, "ContinuedAsNew", 2));
    assert_eq!(info.output.as_deref(), Some("next"));
    assert!(info.completed_at.is_some());
    let info = h.admin().get_execution_info("i", 2).await.unwrap();
    assert_eq!((info.execution_id, info.status.as_str(), info.event_count), (2, "Running", 1));
    assert_eq!((info.output, info.completed_at), (None, None));
}

async fn info_of_something_unknown_says_not_found(h: CaseHarness) {
    h.create("i").await;
    let admin = h.admin();
    for error in [
        expect_permanent_error(admin.get_instance_info("unknown").await),
        expect_permanent_error(admin.get_execution_info("unknown", 1).await),
        expect_permanent_error(admin.get_execution_info("i", 2).await),
    ] {
        assert!(error.to_string().to_lowercase().contains("not found"), "{error}");
    }
}

async fn the_instance_is_updated_by_its_turns(h: CaseHarness) {
    h.create("i").await;
    let created = h.admin().get_instance_info("i").await.unwrap();
    h.pass(secs(5));
    h.turn("i", SampleTurn::of("i", 1).completing(2, "ok")).await;
    let updated = h.admin().get_instance_info("i").await.unwrap();
    assert_eq!(updated.created_at, created.created_at);
    assert_eq!(updated.updated_at, created.created_at + 5_000);
}

async fn totals_grow_with_instances_and_events(h: CaseHarness) {
    let empty = h.admin().get_system_metrics().await.unwrap();
    assert_eq!((empty.total_instances, empty.total_executions, empty.total_events), (0, 0, 0));
    h.create("running").await;
    h.create_completed("completed").await;
    h.begin("failed", SampleTurn::beginning("failed", 1).failing(2, "boom")).await;
    h.create_with_executions("twice", 2).await;
    let metrics = h.admin().get_system_metrics().await.unwrap();
    assert_eq!(metrics.total_instances, 4);
    assert_eq!(metrics.total_executions, 5);
    assert_eq!(metrics.running_instances, 2);
    assert_eq!(metrics.completed_instances, 1);
    assert_eq!(metrics.failed_instances, 1);
    assert_eq!(metrics.total_events, 1 + 2 + 2 + 3);
}

async fn queue_depths_count_what_is_not_locked(h: CaseHarness) {
    h.create("i").await;
    h.send(signal("i", "a")).await;
    h.send(queue_message("i", "b")).await;
    h.send_later(signal("i", "later"), secs(10)).await;
    h.queue(activity("i", 1)).await;
    h.queue(activity("i", 2)).await;
    let depths = h.admin().get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (3, 2, 0));
    h.fetched_turn().await;
    h.fetched_work().await;
    let depths = h.admin().get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (1, 1, 0));
}

async fn queue_depths_do_not_count_timers_of_ended_executions(h: CaseHarness) {
    let messages = async || h.admin().get_queue_depths().await.unwrap().orchestrator_queue;
    let timer = |execution_id| WorkItem::TimerFired {
        instance: "i".to_owned(),
        execution_id,
        id: 2,
        fire_at_ms: h.now_ms() + 60_000,
    };
    h.begin("i", SampleTurn::beginning("i", 1).message(timer(1))).await;
    assert_eq!(messages().await, 1, "the execution waits for its timer");
    h.turn("i", SampleTurn::of("i", 1).continuing_as_new(2)).await;
    assert_eq!(messages().await, 1, "the start of the successor, and no timer");
    h.take_turn("i", SampleTurn::beginning("i", 2).message(timer(2))).await;
    assert_eq!(messages().await, 1, "the timer of the successor");
    h.turn("i", SampleTurn::of("i", 2).completing(2, "done")).await;
    assert_eq!(messages().await, 0, "nothing waits for a timer any more");
    h.pass(secs(61));
    assert_eq!(messages().await, 2, "they are due: a fetch takes them out of the queue");
}

async fn only_direct_children_are_listed_by_id(h: CaseHarness) {
    h.create("root").await;
    h.create_child("child b", "root").await;
    h.pass(secs(1));
    h.create_child("child a", "root").await;
    h.create_child("grandchild", "child a").await;
    assert_eq!(h.admin().list_children("root").await.unwrap(), ["child a", "child b"]);
    assert_eq!(h.admin().list_children("child a").await.unwrap(), ["grandchild"]);
    assert!(h.admin().list_children("grandchild").await.unwrap().is_empty());
}

async fn the_parent_of_a_root_a_child_and_an_unknown_instance(h: CaseHarness) {
    h.create("root").await;
    h.create_child("child", "root").await;
    assert_eq!(h.admin().get_parent_id("root").await.unwrap(), None);
    assert_eq!(h.admin().get_parent_id("child").await.unwrap().as_deref(), Some("root"));
    expect_permanent_error(h.admin().get_parent_id("unknown").await);
}

async fn a_tree_is_listed_root_first(h: CaseHarness) {
    h.create("root").await;
    for (child, parent) in [("b", "root"), ("a", "root"), ("a1", "a"), ("a2", "a"), ("a21", "a2")] {
        h.create_child(child, parent).await;
    }
    h.create("stranger").await;
    let tree = h.admin().get_instance_tree("root").await.unwrap();
    assert_eq!(tree.root_id, "root");
    assert_eq!(tree.all_ids.first().map(String::as_str), Some("root"));
    let mut ids = tree.all_ids.clone();
    ids.sort();
    assert_eq!(ids, ["a", "a1", "a2", "a21", "b", "root"]);
    assert_eq!(tree.size(), 6);
    assert!(!tree.is_root_only());
}

async fn a_tree_of_one_node(h: CaseHarness) {
    h.create("single").await;
    for instance in ["single", "unknown"] {
        let tree = h.admin().get_instance_tree(instance).await.unwrap();
        assert_eq!((tree.root_id.as_str(), tree.all_ids.as_slice()), (instance, &[instance.to_owned()][..]));
        assert!(tree.is_root_only());
    }
}
