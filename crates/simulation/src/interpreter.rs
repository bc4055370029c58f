//! The orchestration that runs any program.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn::{BackoffStrategy, Either2, OrchestrationContext, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::combinators::combine;
use crate::names;
use crate::program::{Combinator, Ending, Program, ProgramAction, Racer, Step};

/// A timer that never wins: longer than all jumps of a run's clocks together.
pub(crate) const FAR: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// A timer that wins against what never ends.
const SHORT: Duration = Duration::from_millis(80);
/// How long an activity may take that never ends.
const TIME_OUT: Duration = Duration::from_millis(300);
/// How long a failed activity waits for its next attempt.
pub(crate) const BACKOFF: Duration = Duration::from_millis(20);

/// The input of an execution: a program, and how far earlier executions came.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub(crate) program: Program,
    next: usize,
    /// The results of earlier steps.
    log: Vec<String>,
}

impl Stage {
    pub(crate) fn of(program: Program) -> Self {
        Self { program, next: 0, log: Vec::new() }
    }

    /// As the input of an orchestration.
    pub(crate) fn encode(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn decode(input: &str) -> Result<Self, String> {
        serde_json::from_str(input).map_err(|error| format!("not a program: {error}"))
    }
}

/// Runs the program in the input to its end.
pub(crate) async fn run(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let Stage { program, next, mut log } = Stage::decode(&input)?;
    for (position, step) in program.steps.iter().enumerate().skip(next) {
        if step.action == ProgramAction::ContinueAsNew {
            log.push(step.key.clone());
            let rest = Stage { next: position + 1, log, program: program.clone() };
            return ctx.continue_as_new(rest.encode()).await;
        }
        log.push(take(&ctx, step).await);
    }
    let instance = ctx.instance_id();
    match program.ending {
        Ending::Complete => Ok(log.join("; ")),
        Ending::Fail => Err(format!("failed after {}", log.join("; "))),
        Ending::AwaitCancel => Ok(ctx.schedule_wait(names::cancel(&instance)).await),
        Ending::AwaitCancelWithChild => {
            let child = names::instance(&instance, 0);
            let waiter = Program {
                steps: vec![Step { key: names::cancel(&instance), action: ProgramAction::Signal }],
                ending: Ending::Complete,
            };
            ctx.schedule_sub_orchestration_with_id(names::ORCHESTRATION, child, Stage::of(waiter).encode())
                .await
        }
        Ending::Forever => Ok(ctx.schedule_wait(names::never(&instance)).await),
    }
}

/// How long the timers of a program take, without those of programs that it starts.
pub(crate) fn timers_of(program: &Program) -> BTreeSet<Duration> {
    let mut timers = BTreeSet::new();
    for Step { action, .. } in &program.steps {
        match action {
            ProgramAction::Timer { ms } | ProgramAction::OpenRace { ms, .. } => {
                timers.extend([Duration::from_millis(*ms)])
            }
            ProgramAction::RaceWonByActivity => timers.extend([FAR]),
            ProgramAction::RaceLostByActivity
            | ProgramAction::RaceLostBySignal
            | ProgramAction::RaceLostByQueue => {
                timers.extend([SHORT]);
            }
            ProgramAction::RaceLostByChild | ProgramAction::LeaveStranger { .. } => {
                timers.extend([SHORT, Duration::ZERO]);
            }
            ProgramAction::DropChild => timers.extend([Duration::ZERO]),
            ProgramAction::Retry { .. } | ProgramAction::Combined { by: Combinator::Retries, .. } => {
                timers.extend([BACKOFF]);
            }
            ProgramAction::TimeOut => timers.extend([TIME_OUT]),
            _ => {}
        }
    }
    timers
}

/// Runs one step; returns its result as text.
async fn take(ctx: &OrchestrationContext, Step { key, action }: &Step) -> String {
    match action {
        ProgramAction::Echo => result_text(ctx.schedule_activity(names::ECHO, key).await),
        ProgramAction::Fail => result_text(ctx.schedule_activity(names::FAIL, key).await),
        ProgramAction::Retry { failures, attempts } => {
            let backoff = BackoffStrategy::Fixed { delay: BACKOFF };
            let policy = RetryPolicy::new(*attempts).with_backoff(backoff);
            result_text(
                ctx.schedule_activity_with_retry(names::FLAKY, format!("{key} {failures}"), policy).await,
            )
        }
        ProgramAction::TimeOut => {
            let policy = RetryPolicy::new(3).with_timeout(TIME_OUT);
            result_text(ctx.schedule_activity_with_retry(names::ENDLESS, key, policy).await)
        }
        ProgramAction::Timer { ms } => {
            ctx.schedule_timer(Duration::from_millis(*ms)).await;
            key.clone()
        }
        ProgramAction::RaceWonByActivity => {
            let activity = ctx.schedule_activity(names::ECHO, key);
            match ctx.select2(activity, ctx.schedule_timer(FAR)).await {
                Either2::First(result) => result_text(result),
                Either2::Second(()) => format!("{key}: the far timer won"),
            }
        }
        ProgramAction::RaceLostByActivity
        | ProgramAction::RaceLostBySignal
        | ProgramAction::RaceLostByQueue
        | ProgramAction::RaceLostByChild => lose(ctx, key, action).await,
        ProgramAction::OpenRace { against, ms } => race(ctx, key, *against, Duration::from_millis(*ms)).await,
        ProgramAction::FanOut { width } => {
            let each = (0..*width).map(|n| {
                let activity = if n % 3 == 2 { names::FAIL } else { names::ECHO };
                ctx.schedule_activity(activity, format!("{key}#{n}"))
            });
            let results = ctx.join(each.collect()).await;
            results.into_iter().map(result_text).collect::<Vec<_>>().join(",")
        }
        ProgramAction::Combined { by, width } => combine(ctx, key, *by, *width).await,
        ProgramAction::Child { .. }
        | ProgramAction::NamedChild { .. }
        | ProgramAction::Children { .. }
        | ProgramAction::Detached { .. }
        | ProgramAction::DropChild => start(ctx, key, action).await,
        ProgramAction::Signal => ctx.schedule_wait(signal_name(key)).await,
        ProgramAction::Queue { messages } => read(ctx, key, *messages).await,
        ProgramAction::LeaveStranger { at_once } => leave_stranger(ctx, key, *at_once).await,
        ProgramAction::Large { kib } => echo_large(ctx, key, *kib).await,
        // The loop around the steps does this.
        ProgramAction::ContinueAsNew => key.clone(),
        ProgramAction::Session { runs } => run_in_session(ctx, key, *runs).await,
        ProgramAction::Tagged => {
            result_text(ctx.schedule_activity(names::TAGGED, key).with_tag(names::TAG).await)
        }
        ProgramAction::DropActivity => {
            drop(ctx.schedule_activity(names::FAIL, key));
            key.clone()
        }
        ProgramAction::DeadlyActivity => result_text(ctx.schedule_activity(names::DEADLY, key).await),
        ProgramAction::DeadlyChild => {
            let child = names::instance(key, 0);
            result_text(ctx.schedule_sub_orchestration_with_id(names::DEADLY, child, key).await)
        }
        ProgramAction::SystemCalls => {
            let guid = ctx.new_guid().await.map(|guid| guid.len());
            let time = ctx.utc_now().await.is_ok();
            format!("{key}: {guid:?} {time}")
        }
        ProgramAction::Status { .. }
        | ProgramAction::KvSet { .. }
        | ProgramAction::KvGet { .. }
        | ProgramAction::KvClear { .. }
        | ProgramAction::KvClearAll => keep(ctx, key, action),
    }
}

/// An activity with a large input and the same as its result.
async fn echo_large(ctx: &OrchestrationContext, key: &str, kib: u32) -> String {
    let input = "x".repeat(kib as usize * 1_024);
    match ctx.schedule_activity(names::ECHO, input.as_str()).await {
        Ok(result) if result == input => format!("{key}: {kib} KiB"),
        other => format!("{key}: {} bytes came back", result_text(other).len()),
    }
}

/// The signal that a step waits for; a key may be the signal's name itself.
fn signal_name(key: &str) -> String {
    match names::wish(key) {
        names::Wish::Nothing => names::signal(key),
        _ => key.to_owned(),
    }
}

/// Something that never ends against a timer.
async fn lose(ctx: &OrchestrationContext, key: &str, action: &ProgramAction) -> String {
    let timer = ctx.schedule_timer(SHORT);
    let timer_won = match action {
        ProgramAction::RaceLostBySignal => {
            ctx.select2(ctx.schedule_wait(names::never(key)), timer).await.is_second()
        }
        ProgramAction::RaceLostByQueue => {
            ctx.select2(ctx.dequeue_event(names::never(key)), timer).await.is_second()
        }
        ProgramAction::RaceLostByChild => {
            let input = Stage::of(Program::forever()).encode();
            let child = names::instance(key, 0);
            let child = ctx.schedule_sub_orchestration_with_id(names::ORCHESTRATION, child, input);
            let timer_won = ctx.select2(child, timer).await.is_second();
            // A child dropped in the turn that continues as new would be left running.
            ctx.schedule_timer(Duration::ZERO).await;
            timer_won
        }
        _ => ctx.select2(ctx.schedule_activity(names::ENDLESS, key), timer).await.is_second(),
    };
    format!("{key}: {timer_won}")
}

/// Something that may end before a timer or after it; the result does not depend on that.
async fn race(ctx: &OrchestrationContext, key: &str, against: Racer, wait: Duration) -> String {
    let timer = ctx.schedule_timer(wait);
    match against {
        Racer::Activity => drop(ctx.select2(ctx.schedule_activity(names::ECHO, key), timer).await),
        Racer::Signal => drop(ctx.select2(ctx.schedule_wait(names::casual(key)), timer).await),
        Racer::Queue => {
            if ctx.select2(ctx.dequeue_event(key), timer).await.is_second() {
                ctx.dequeue_event(key).await;
            }
        }
        Racer::Child => {
            let steps = vec![Step { key: format!("{key}.0"), action: ProgramAction::Echo }];
            let input = Stage::of(Program { steps, ending: Ending::Complete }).encode();
            drop(ctx.select2(ctx.schedule_sub_orchestration(names::ORCHESTRATION, input), timer).await);
        }
    }
    key.to_owned()
}

/// Other orchestrations.
async fn start(ctx: &OrchestrationContext, key: &str, action: &ProgramAction) -> String {
    let inputs: Vec<String> =
        action.programs().into_iter().map(|program| Stage::of(program.clone()).encode()).collect();
    let named = |(n, input): (usize, String)| {
        ctx.schedule_sub_orchestration_with_id(names::ORCHESTRATION, names::instance(key, n), input)
    };
    match action {
        ProgramAction::Child { .. } => {
            let each = inputs.into_iter().map(|i| ctx.schedule_sub_orchestration(names::ORCHESTRATION, i));
            let results = ctx.join(each.collect()).await;
            results.into_iter().map(result_text).collect()
        }
        ProgramAction::NamedChild { .. } | ProgramAction::Children { .. } => {
            let results = ctx.join(inputs.into_iter().enumerate().map(named).collect()).await;
            results.into_iter().map(result_text).collect::<Vec<_>>().join(",")
        }
        ProgramAction::DropChild => {
            drop(named((0, Stage::of(Program::forever()).encode())));
            // A child asked for in a turn that ends the execution would not even be started.
            ctx.schedule_timer(Duration::ZERO).await;
            key.to_owned()
        }
        _ => {
            for (n, input) in inputs.into_iter().enumerate() {
                ctx.schedule_orchestration(names::ORCHESTRATION, names::instance(key, n), input);
            }
            key.to_owned()
        }
    }
}

/// Reads messages numbered from 0. A message may have been sent twice, so what was read before is skipped.
async fn read(ctx: &OrchestrationContext, key: &str, messages: u32) -> String {
    let mut expected = 0;
    while expected < messages {
        let message = ctx.dequeue_event(key).await;
        match message.parse::<u32>() {
            Ok(number) if number < expected => {}
            Ok(number) if number == expected => expected += 1,
            _ => return format!("{key}: '{message}' came where {expected} was due"),
        }
    }
    format!("{key}: {expected} read")
}

/// Activities of one session, one after the other.
async fn run_in_session(ctx: &OrchestrationContext, key: &str, runs: u32) -> String {
    let mut results = Vec::new();
    for _ in 0..runs {
        let session = format!("session of {key}");
        results.push(result_text(ctx.schedule_activity_on_session(names::SESSION, key, session).await));
    }
    results.join(",")
}

/// Starts a detached instance, then calls a child under its id and drops that call.
async fn leave_stranger(ctx: &OrchestrationContext, key: &str, at_once: bool) -> String {
    let (stranger, input) = (names::instance(key, 0), Stage::of(Program::stranger(key)).encode());
    ctx.schedule_orchestration(names::ORCHESTRATION, stranger.as_str(), input.as_str());
    // Its start is stored with this turn, that of the child with the next.
    ctx.schedule_timer(Duration::ZERO).await;
    let child = ctx.schedule_sub_orchestration_with_id(names::ORCHESTRATION, stranger, input);
    if at_once {
        drop(child);
    } else {
        drop(ctx.select2(child, ctx.schedule_timer(SHORT)).await);
    }
    ctx.schedule_timer(Duration::ZERO).await;
    key.to_owned()
}

/// Custom status and key-value store.
fn keep(ctx: &OrchestrationContext, key: &str, action: &ProgramAction) -> String {
    match action {
        ProgramAction::Status { text: Some(text) } => ctx.set_custom_status(text),
        ProgramAction::Status { text: None } => ctx.reset_custom_status(),
        ProgramAction::KvSet { key, value } => ctx.set_kv_value(key, value),
        ProgramAction::KvGet { key: read } => return format!("{key}: {:?}", ctx.get_kv_value(read)),
        ProgramAction::KvClear { key } => ctx.clear_kv_value(key),
        ProgramAction::KvClearAll => ctx.clear_all_kv_values(),
        _ => {}
    }
    key.to_owned()
}

/// A result as text.
pub(crate) fn result_text(result: Result<String, String>) -> String {
    match result {
        Ok(text) => text,
        Err(text) => format!("error({text})"),
    }
}
