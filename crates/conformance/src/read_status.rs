//! `read_status`: the status of an instance as of its last committed turn.

use everturn_core::{ErrorDetails, OrchestrationStatus};

use crate::events;
use crate::harness::{CaseHarness, expect_error};
use crate::items::start;
use crate::sample_turn::SampleTurn;

cases! { $ read_status as read_status_cases:
    an_unknown_instance_is_not_found,
    a_running_instance_shows_its_custom_status,
    a_completed_instance_shows_its_output,
    a_failed_instance_shows_its_details,
    the_latest_execution_decides,
    between_continue_as_new_and_its_successor_it_runs,
    a_damaged_end_is_an_error_not_a_status,
    a_deleted_instance_is_not_found,
}

async fn an_unknown_instance_is_not_found(h: CaseHarness) {
    assert_eq!(h.read_status("unknown").await.unwrap(), OrchestrationStatus::NotFound);
    h.send(start("i")).await;
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
    h.fetched_turn().await;
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
}

async fn a_running_instance_shows_its_custom_status(h: CaseHarness) {
    h.create("i").await;
    let expected = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
    h.turn("i", SampleTurn::of("i", 1).event(2, events::custom_status(Some("half way")))).await;
    let expected =
        OrchestrationStatus::Running { custom_status: Some("half way".to_owned()), custom_status_version: 1 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn a_completed_instance_shows_its_output(h: CaseHarness) {
    h.begin(
        "i",
        SampleTurn::beginning("i", 1).event(2, events::custom_status(Some("end"))).completing(3, "out"),
    )
    .await;
    let expected = OrchestrationStatus::Completed {
        output: "out".to_owned(),
        custom_status: Some("end".to_owned()),
        custom_status_version: 1,
    };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn a_failed_instance_shows_its_details(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).failing(2, "boom")).await;
    let expected = OrchestrationStatus::Failed {
        details: ErrorDetails::orchestration_failed("boom"),
        custom_status: None,
        custom_status_version: 0,
    };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
}

async fn the_latest_execution_decides(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    let expected = OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 };
    assert_eq!(h.read_status("i").await.unwrap(), expected);
    h.turn("i", SampleTurn::of("i", 3).completing(2, "third")).await;
    let status = h.read_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "third"));
}

async fn between_continue_as_new_and_its_successor_it_runs(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    assert!(matches!(h.read_status("i").await.unwrap(), OrchestrationStatus::Running { .. }));
}

async fn a_damaged_end_is_an_error_not_a_status(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).failing(2, "boom")).await;
    h.damage_event("i", 1, 2).await;
    expect_error(h.read_status("i").await);
}

async fn a_deleted_instance_is_not_found(h: CaseHarness) {
    h.create_completed("i").await;
    h.admin().delete_instance("i", false).await.unwrap();
    assert_eq!(h.read_status("i").await.unwrap(), OrchestrationStatus::NotFound);
}
