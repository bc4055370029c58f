//! `ErrorDetails`: category, display text, JSON, and cutting to the payload limit.

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
fn json_has_its_documented_form() {
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

#[test]
fn every_text_can_be_cut_to_the_payload_limit() {
    let long = || "x".repeat(3_000);
    let is_cut = |text: &str| text.len() == 2_000 && text.ends_with("x … (cut, 3000 bytes in all)");
    let infrastructure =
        ErrorDetails::Infrastructure { operation: "op".into(), message: long(), retryable: true };
    let cut = infrastructure.cut_to(2_000);
    assert!(matches!(&cut, ErrorDetails::Infrastructure { message, .. } if is_cut(message)), "{cut:?}");
    let cut = configuration("", Some(&long())).cut_to(2_000);
    assert!(matches!(&cut, ErrorDetails::Configuration { message: Some(message), .. } if is_cut(message)));
    let cut = application(AppErrorKind::Cancelled { reason: long() }, &long(), false).cut_to(2_000);
    assert!(
        matches!(&cut, ErrorDetails::Application { kind: AppErrorKind::Cancelled { reason }, message, .. }
        if is_cut(reason) && is_cut(message))
    );
    let unreadable =
        PoisonMessageType::FailedDeserialization { instance: "i".into(), execution_id: 1, error: long() };
    let cut = poison(unreadable).cut_to(2_000);
    assert!(
        matches!(&cut, ErrorDetails::Poison { message_type: PoisonMessageType::FailedDeserialization { error, .. }, .. }
        if is_cut(error))
    );
    for short in [configuration("r", None), poison(poisoned_activity())] {
        assert_eq!(short.clone().cut_to(0), short);
    }
}
