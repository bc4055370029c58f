//! Contract 02 §4: why something failed.

use everturn_core::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};

fn application(kind: AppErrorKind, message: &str, retryable: bool) -> ErrorDetails {
    ErrorDetails::Application { kind, message: message.into(), retryable }
}

fn poison(message_type: PoisonMessageType) -> ErrorDetails {
    ErrorDetails::Poison { attempt_count: 11, max_attempts: 10, message_type, message: "{}".into() }
}

fn configuration(resource: &str, message: Option<&str>) -> ErrorDetails {
    ErrorDetails::Configuration {
        kind: ConfigErrorKind::Nondeterminism,
        resource: resource.into(),
        message: message.map(Into::into),
    }
}

fn poisoned_activity() -> PoisonMessageType {
    PoisonMessageType::Activity {
        instance: "i".into(),
        execution_id: 1,
        activity_name: "A".into(),
        activity_id: 2,
    }
}

fn speaks(details: &ErrorDetails, category: &str, retryable: bool, display: &str) {
    assert_eq!(details.category(), category);
    assert_eq!(details.is_retryable(), retryable);
    assert_eq!(details.display_message(), display);
}

#[test]
fn infrastructure() {
    for retryable in [true, false] {
        let details = ErrorDetails::Infrastructure { operation: "op".into(), message: "m".into(), retryable };
        speaks(&details, "infrastructure", retryable, "infrastructure:op: m");
    }
}

#[test]
fn configuration_with_and_without_message() {
    speaks(&configuration("", Some("x")), "configuration", false, "nondeterministic: x");
    speaks(&configuration("res", None), "configuration", false, "nondeterministic in res");
}

#[test]
fn application_by_kind() {
    let cancelled = AppErrorKind::Cancelled { reason: "r".into() };
    speaks(&application(cancelled, "", false), "application", false, "canceled: r");
    speaks(
        &application(AppErrorKind::Panicked, "m", false),
        "application",
        false,
        "orchestration panicked: m",
    );
    speaks(&application(AppErrorKind::ActivityFailed, "m", true), "application", true, "m");
    speaks(&application(AppErrorKind::OrchestrationFailed, "m", false), "application", false, "m");
}

#[test]
fn poison_by_message_type() {
    let orchestration = PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 1 };
    speaks(&poison(orchestration), "poison", false, "poison: orchestration i exceeded 11 attempts (max 10)");
    speaks(
        &poison(poisoned_activity()),
        "poison",
        false,
        "poison: activity A#2 exceeded 11 attempts (max 10)",
    );
    let unreadable = PoisonMessageType::FailedDeserialization {
        instance: "i".into(),
        execution_id: 1,
        error: "bad".into(),
    };
    speaks(
        &poison(unreadable),
        "poison",
        false,
        "poison: orchestration i history deserialization failed after 11 attempts (max 10): bad",
    );
}

#[test]
fn json_is_that_of_the_contract() {
    let cases = [
        (
            ErrorDetails::activity_failed("boom"),
            r#"{"Application":{"kind":"ActivityFailed","message":"boom","retryable":false}}"#,
        ),
        (
            ErrorDetails::cancelled("r"),
            r#"{"Application":{"kind":{"Cancelled":{"reason":"r"}},"message":"","retryable":false}}"#,
        ),
        (
            ErrorDetails::Infrastructure { operation: "op".into(), message: "m".into(), retryable: true },
            r#"{"Infrastructure":{"operation":"op","message":"m","retryable":true}}"#,
        ),
        (
            ErrorDetails::nondeterminism("x"),
            r#"{"Configuration":{"kind":"Nondeterminism","resource":"","message":"x"}}"#,
        ),
        (
            poison(poisoned_activity()),
            r#"{"Poison":{"attempt_count":11,"max_attempts":10,"message_type":{"Activity":{"instance":"i","execution_id":1,"activity_name":"A","activity_id":2}},"message":"{}"}}"#,
        ),
    ];
    for (details, line) in cases {
        assert_eq!(serde_json::to_string(&details).unwrap(), line);
        assert_eq!(serde_json::from_str::<ErrorDetails>(line).unwrap(), details);
    }
}
