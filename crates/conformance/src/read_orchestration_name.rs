//! `read_orchestration_name`: which orchestration an instance runs.

use everturn_provider::store::OrchestrationName;

use crate::events;
use crate::harness::CaseHarness;
use crate::items::{NAME, VERSION, start};
use crate::sample_turn::SampleTurn;

cases! { $ read_orchestration_name as read_orchestration_name_cases:
    the_name_is_read_without_the_history,
    an_instance_has_no_name_before_its_first_commit,
    the_name_is_that_of_the_latest_execution,
}

async fn the_name_is_read_without_the_history(h: CaseHarness) {
    assert_eq!(h.read_orchestration_name("unknown").await.unwrap(), None);
    h.create("i").await;
    let expected = Some(OrchestrationName { name: NAME.to_owned(), version: VERSION.to_owned() });
    assert_eq!(h.read_orchestration_name("i").await.unwrap(), expected);
}

async fn an_instance_has_no_name_before_its_first_commit(h: CaseHarness) {
    h.send(start("i")).await;
    assert_eq!(h.read_orchestration_name("i").await.unwrap(), None);
    h.fetched_turn().await;
    assert_eq!(h.read_orchestration_name("i").await.unwrap(), None);
}

async fn the_name_is_that_of_the_latest_execution(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).continuing_as_new(2)).await;
    let next = SampleTurn::of("i", 2).event(1, events::started_as(NAME, "2.0.0")).named(NAME, "2.0.0");
    h.take_turn("i", next).await;
    let expected = Some(OrchestrationName { name: NAME.to_owned(), version: "2.0.0".to_owned() });
    assert_eq!(h.read_orchestration_name("i").await.unwrap(), expected);
}
