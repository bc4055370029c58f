//! Log lines of an orchestration and of the turn engine.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use everturn_core::OrchestrationContext;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::harness::{Harness, activity_completed, signal};

/// Keeps every line: level, target and fields.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<LogLine>>>);

#[derive(Clone, Debug, Default, PartialEq)]
struct LogLine {
    level: String,
    target: String,
    fields: Vec<(String, String)>,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine {
            level: event.metadata().level().to_string(),
            target: event.metadata().target().to_owned(),
            fields: Vec::new(),
        };
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl LogLines {
    fn during(act: impl FnOnce()) -> Vec<LogLine> {
        let lines = Self::default();
        tracing::subscriber::with_default(lines.clone(), act);
        lines.0.lock().unwrap().clone()
    }
}

impl LogLine {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

#[test]
fn lines_carry_identity_and_level() {
    let lines = LogLines::during(|| {
        Harness::new(|ctx, _| async move {
            ctx.trace_info("one");
            ctx.trace_warn("two");
            ctx.trace_error("three");
            ctx.trace_debug("four");
            Ok(String::new())
        })
        .turn([]);
    });
    let seen: Vec<_> =
        lines.iter().map(|line| (line.level.as_str(), line.field("message").unwrap())).collect();
    assert_eq!(seen, [("INFO", "one"), ("WARN", "two"), ("ERROR", "three"), ("DEBUG", "four")]);
    for line in &lines {
        assert_eq!(line.target, "everturn::orchestration");
        assert_eq!(line.field("instance_id"), Some("order"));
        assert_eq!(line.field("execution_id"), Some("1"));
        assert_eq!(line.field("orchestration_name"), Some("Ship"));
        assert_eq!(line.field("orchestration_version"), Some("1.2.0"));
        assert_eq!(line.field("activity_name"), None);
    }
}

#[test]
fn level_is_case_insensitive_and_unknown_levels_go_to_trace() {
    let lines = LogLines::during(|| {
        Harness::new(|ctx, _| async move {
            ctx.trace("wArN", "a");
            ctx.trace("info", "b");
            ctx.trace("ERROR", "c");
            ctx.trace("Debug", "d");
            ctx.trace("Whisper", "e");
            Ok(String::new())
        })
        .turn([]);
    });
    let levels: Vec<_> = lines.iter().map(|line| line.level.as_str()).collect();
    assert_eq!(levels, ["WARN", "INFO", "ERROR", "DEBUG", "TRACE"]);
    assert_eq!(lines[4].field("level"), Some("Whisper"));
    assert_eq!(lines[0].field("level"), None);
}

#[test]
fn nothing_is_written_while_replaying() {
    let code = |ctx: OrchestrationContext, _| async move {
        ctx.trace_info("before");
        ctx.schedule_activity("A", "").await?;
        ctx.trace_info("between");
        ctx.schedule_activity("B", "").await?;
        ctx.trace_info("after");
        Ok(String::new())
    };
    let mut harness = Harness::new(code).cold_only();
    let messages = |lines: Vec<LogLine>| -> Vec<String> {
        lines.iter().map(|line| line.field("message").unwrap().to_owned()).collect()
    };
    assert_eq!(messages(LogLines::during(|| drop(harness.turn([])))), ["before"]);
    assert_eq!(messages(LogLines::during(|| drop(harness.turn([activity_completed(2, "")])))), ["between"]);
    assert_eq!(messages(LogLines::during(|| drop(harness.turn([activity_completed(4, "")])))), ["after"]);
}

#[test]
fn retry_warns_once_about_a_failed_attempt() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity_with_retry("A", "", everturn_core::RetryPolicy::new(2)).await
    })
    .cold_only();
    harness.turn([]);
    let lines = LogLines::during(|| drop(harness.turn([crate::harness::activity_failed(2, "boom")])));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].level, "WARN");
    assert!(lines[0].field("message").unwrap().contains("boom"));
    assert!(LogLines::during(|| drop(harness.turn([crate::harness::timer_fired(4)]))).is_empty());
}

#[test]
fn lost_signal_and_stale_completion_are_warned_about() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) }).cold_only();
    harness.turn([]);
    let lines = LogLines::during(|| drop(harness.turn([signal("other", "")])));
    assert_eq!((lines.len(), lines[0].level.as_str()), (1, "WARN"));
    let stale = crate::harness::to_execution(9, activity_completed(2, ""));
    let lines = LogLines::during(|| drop(harness.turn([stale])));
    assert_eq!((lines.len(), lines[0].level.as_str()), (1, "WARN"));
}
