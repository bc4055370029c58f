//! How every instance must end, whatever faults happen.

use std::collections::BTreeMap;

use everturn::RuntimeOptions;

use crate::names;
use crate::program::{Combinator, Ending, Program, ProgramAction, Step};

/// How an instance must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// The output, or the text of the failure.
    pub(crate) outcome: Result<String, String>,
    pub(crate) custom_status: Option<String>,
    pub(crate) kv: BTreeMap<String, String>,
}

/// How every instance must end whose name is known beforehand.
pub(crate) type Expectations = BTreeMap<String, Expectation>;

/// Adds how this program must end, started under this name; and everything that it starts.
pub(crate) fn expect(expectations: &mut Expectations, instance: &str, program: &Program) {
    let expectation = follow(expectations, instance, program);
    expectations.insert(instance.to_owned(), expectation);
}

fn follow(expectations: &mut Expectations, instance: &str, program: &Program) -> Expectation {
    let mut kv = BTreeMap::new();
    let mut custom_status = None;
    let mut log = Vec::new();
    for Step { key, action } in &program.steps {
        match action {
            ProgramAction::Status { text } => custom_status.clone_from(text),
            ProgramAction::KvSet { key, value } => {
                kv.insert(key.clone(), value.clone());
            }
            ProgramAction::KvClear { key } => {
                kv.remove(key);
            }
            ProgramAction::KvClearAll => kv.clear(),
            ProgramAction::DeadlyActivity => {
                // Its start is event 1.
                let outcome = Err(poisoned(&format!("activity {}#2", names::DEADLY)));
                return Expectation { outcome, custom_status, kv };
            }
            ProgramAction::DeadlyChild => {
                let child = names::instance(key, 0);
                let outcome = Err(poisoned(&format!("orchestration {child}")));
                let poisoned =
                    Expectation { outcome: outcome.clone(), custom_status: None, kv: BTreeMap::new() };
                expectations.insert(child, poisoned);
                return Expectation { outcome, custom_status, kv };
            }
            ProgramAction::KvGet { key: read } => {
                log.push(format!("{key}: {:?}", kv.get(read)));
                continue;
            }
            _ => {}
        }
        log.push(result_of(expectations, key, action));
    }
    let outcome = match program.ending {
        Ending::Complete => Ok(log.join("; ")),
        Ending::Fail => Err(format!("failed after {}", log.join("; "))),
        Ending::AwaitCancel => Err(canceled(names::CANCEL_REASON)),
        Ending::AwaitCancelWithChild => {
            cancelled_child(expectations, &names::instance(instance, 0), "parent canceled");
            Err(canceled(names::CANCEL_REASON))
        }
        // The client that starts such a program gives the reason of its cancellation.
        Ending::Forever => Err(String::new()),
    };
    Expectation { outcome, custom_status, kv }
}

/// What a step gives.
fn result_of(expectations: &mut Expectations, key: &str, action: &ProgramAction) -> String {
    match action {
        ProgramAction::Fail => error(key),
        ProgramAction::Retry { failures, attempts } if failures < attempts => flaky_success(key, *failures),
        ProgramAction::Retry { attempts, .. } => error(&flaky_failure(key, attempts.saturating_sub(1))),
        ProgramAction::TimeOut => error("timeout: activity timed out"),
        ProgramAction::RaceLostByActivity
        | ProgramAction::RaceLostBySignal
        | ProgramAction::RaceLostByQueue => {
            format!("{key}: true")
        }
        ProgramAction::RaceLostByChild => {
            cancelled_child(expectations, &names::instance(key, 0), DROPPED);
            format!("{key}: true")
        }
        ProgramAction::DropChild => {
            cancelled_child(expectations, &names::instance(key, 0), DROPPED);
            key.to_owned()
        }
        ProgramAction::LeaveStranger { .. } => {
            expect(expectations, &names::instance(key, 0), &Program::stranger(key));
            key.to_owned()
        }
        ProgramAction::Large { kib } => format!("{key}: {kib} KiB"),
        ProgramAction::FanOut { width } => fanned_out(key, *width).join(","),
        ProgramAction::Combined { by, width } => combined(key, *by, *width),
        ProgramAction::Child { program } => result_text(follow(expectations, key, program).outcome),
        ProgramAction::NamedChild { .. } | ProgramAction::Children { .. } => {
            let each = action.programs().into_iter().enumerate().map(|(n, program)| {
                let child = names::instance(key, n);
                expect(expectations, &child, program);
                let outcome = expectations.get(&child).map(|expectation| expectation.outcome.clone());
                result_text(outcome.unwrap_or_else(|| Err("no expectation".to_owned())))
            });
            each.collect::<Vec<_>>().join(",")
        }
        ProgramAction::Detached { program } => {
            expect(expectations, &names::instance(key, 0), program);
            key.to_owned()
        }
        ProgramAction::Signal => names::signal_data(&names::signal(key)),
        ProgramAction::Queue { messages } => format!("{key}: {messages} read"),
        ProgramAction::Session { runs } => {
            vec![format!("session of {key}"); usize::try_from(*runs).unwrap_or_default()].join(",")
        }
        ProgramAction::Tagged => names::TAG.to_owned(),
        ProgramAction::SystemCalls => format!("{key}: Ok(36) true"),
        ProgramAction::Echo
        | ProgramAction::DeadlyActivity
        | ProgramAction::DeadlyChild
        | ProgramAction::Timer { .. }
        | ProgramAction::RaceWonByActivity
        | ProgramAction::OpenRace { .. }
        | ProgramAction::ContinueAsNew
        | ProgramAction::Status { .. }
        | ProgramAction::KvSet { .. }
        | ProgramAction::KvGet { .. }
        | ProgramAction::KvClear { .. }
        | ProgramAction::KvClearAll
        | ProgramAction::DropActivity => key.to_owned(),
    }
}

/// What activities side by side give; every third fails.
fn fanned_out(key: &str, width: u32) -> Vec<String> {
    let each = (0..width).map(|n| {
        let input = format!("{key}#{n}");
        if n % 3 == 2 { error(&input) } else { input }
    });
    each.collect()
}

/// What a combinator gives: in the order of the calls, or sorted if only history knows the order.
fn combined(key: &str, by: Combinator, width: u32) -> String {
    match by {
        Combinator::JoinAll
        | Combinator::Unordered
        | Combinator::Buffered
        | Combinator::SelectAll
        | Combinator::TokioJoin
        | Combinator::Channel => fanned_out(key, width).join(","),
        Combinator::Retries => {
            let each = (0..width).map(|n| flaky_success(&format!("{key}#{n}"), n % 2));
            each.collect::<Vec<_>>().join(",")
        }
        Combinator::GivenUpRead => format!("{key}: 0 {key}"),
    }
}

const DROPPED: &str = "parent dropped sub-orchestration future";

/// What a flaky activity returns when it succeeds.
pub(crate) fn flaky_success(key: &str, failures: u32) -> String {
    format!("{key} after {failures} failures")
}

/// What a flaky activity fails with.
pub(crate) fn flaky_failure(key: &str, attempt: u32) -> String {
    format!("{key} failed in attempt {attempt}")
}

fn cancelled_child(expectations: &mut Expectations, child: &str, reason: &str) {
    let expectation =
        Expectation { outcome: Err(canceled(reason)), custom_status: None, kv: BTreeMap::new() };
    expectations.insert(child.to_owned(), expectation);
}

/// How an activity or turn ends that kills every node that runs it: the attempt after the last one is not made.
fn poisoned(what: &str) -> String {
    let max_attempts = RuntimeOptions::default().max_attempts;
    format!("poison: {what} exceeded {} attempts (max {max_attempts})", max_attempts + 1)
}

fn canceled(reason: &str) -> String {
    format!("canceled: {reason}")
}

fn error(text: &str) -> String {
    format!("error({text})")
}

fn result_text(outcome: Result<String, String>) -> String {
    match outcome {
        Ok(text) => text,
        Err(text) => error(&text),
    }
}
