//! What every instance must come to, whatever goes wrong on the way.

use std::collections::BTreeMap;

use crate::names;
use crate::plan::POISONOUS_ATTEMPTS;
use crate::program::{Action, Ending, Program, Step};

/// What must be true of an instance at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// The output, or the failure in words.
    pub(crate) outcome: Result<String, String>,
    pub(crate) custom_status: Option<String>,
    pub(crate) kv: BTreeMap<String, String>,
}

/// Every instance whose name is known beforehand, and what must become of it.
pub(crate) type Expectations = BTreeMap<String, Expectation>;

/// Adds what this program, started under this name, must come to; and whatever it starts.
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
            Action::Status { text } => custom_status.clone_from(text),
            Action::KvSet { key, value } => {
                kv.insert(key.clone(), value.clone());
            }
            Action::KvClear { key } => {
                kv.remove(key);
            }
            Action::KvClearAll => kv.clear(),
            Action::DeadlyActivity => {
                // Its start is event 1.
                let outcome = Err(poisoned(&format!("activity {}#2", names::DEADLY)));
                return Expectation { outcome, custom_status, kv };
            }
            Action::DeadlyChild => {
                let child = names::instance(key, 0);
                let outcome = Err(poisoned(&format!("orchestration {child}")));
                let poisoned =
                    Expectation { outcome: outcome.clone(), custom_status: None, kv: BTreeMap::new() };
                expectations.insert(child, poisoned);
                return Expectation { outcome, custom_status, kv };
            }
            Action::KvGet { key: read } => {
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
fn result_of(expectations: &mut Expectations, key: &str, action: &Action) -> String {
    match action {
        Action::Fail => error(key),
        Action::Retry { failures, attempts } if failures < attempts => flaky_success(key, *failures),
        Action::Retry { attempts, .. } => error(&flaky_failure(key, attempts.saturating_sub(1))),
        Action::TimeOut => error("timeout: activity timed out"),
        Action::RaceLostByActivity | Action::RaceLostBySignal | Action::RaceLostByQueue => {
            format!("{key}: true")
        }
        Action::RaceLostByChild => {
            cancelled_child(expectations, &names::instance(key, 0), DROPPED);
            format!("{key}: true")
        }
        Action::DropChild => {
            cancelled_child(expectations, &names::instance(key, 0), DROPPED);
            key.to_owned()
        }
        Action::FanOut { width } => {
            let each = (0..*width).map(|n| {
                let input = format!("{key}#{n}");
                if n % 3 == 2 { error(&input) } else { input }
            });
            each.collect::<Vec<_>>().join(",")
        }
        Action::Child { program } => told(follow(expectations, key, program).outcome),
        Action::NamedChild { .. } | Action::Children { .. } => {
            let each = action.programs().into_iter().enumerate().map(|(n, program)| {
                let child = names::instance(key, n);
                expect(expectations, &child, program);
                let outcome = expectations.get(&child).map(|expectation| expectation.outcome.clone());
                told(outcome.unwrap_or_else(|| Err("no expectation".to_owned())))
            });
            each.collect::<Vec<_>>().join(",")
        }
        Action::Detached { program } => {
            expect(expectations, &names::instance(key, 0), program);
            key.to_owned()
        }
        Action::Signal => names::signal_data(&names::signal(key)),
        Action::Queue { messages } => format!("{key}: {messages} read"),
        Action::Session { runs } => {
            vec![format!("session of {key}"); usize::try_from(*runs).unwrap_or_default()].join(",")
        }
        Action::Tagged => names::TAG.to_owned(),
        Action::SystemCalls => format!("{key}: Ok(36) true"),
        Action::Echo
        | Action::DeadlyActivity
        | Action::DeadlyChild
        | Action::Timer { .. }
        | Action::RaceWonByActivity
        | Action::OpenRace { .. }
        | Action::ContinueAsNew
        | Action::Status { .. }
        | Action::KvSet { .. }
        | Action::KvGet { .. }
        | Action::KvClear { .. }
        | Action::KvClearAll
        | Action::DropActivity => key.to_owned(),
    }
}

const DROPPED: &str = "parent dropped sub-orchestration future";

/// What a flaky activity returns at last.
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

/// What becomes of what kills every node that runs it: the attempt after the last is not made.
fn poisoned(what: &str) -> String {
    let attempts = POISONOUS_ATTEMPTS + 1;
    format!("poison: {what} exceeded {attempts} attempts (max {POISONOUS_ATTEMPTS})")
}

fn canceled(reason: &str) -> String {
    format!("canceled: {reason}")
}

fn error(text: &str) -> String {
    format!("error({text})")
}

fn told(outcome: Result<String, String>) -> String {
    match outcome {
        Ok(text) => text,
        Err(text) => error(&text),
    }
}
