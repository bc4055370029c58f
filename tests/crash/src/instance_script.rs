//! What the instances of a case do: a fixed set of small orchestrations.
//!
//! They are small on purpose: R3 fails every I/O call of a scenario, one after the other. Every activity run returns a
//! result of its own, so a history shows which run was recorded. Larger random programs run on the same disk in the
//! simulation (`simulated_store`).

use std::time::Duration;

use everturn::{BackoffStrategy, Either2, OrchestrationContext, OrchestrationRegistry, RetryPolicy};
use serde::{Deserialize, Serialize};

use everturn_simulation::SeededRandom;

/// What one instance does; the number is its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InstanceScript {
    /// Sequential activities.
    Chain(usize),
    /// Concurrent activities.
    Fan(usize),
    /// Timers and activities in turn.
    Timers(usize),
    /// An activity that fails every other time, with retries.
    Retry,
    /// A race of an activity and a timer; the loser is cancelled.
    Race,
    /// Waits for a signal.
    Signal,
    /// Reads this many messages of a queue.
    Queue(usize),
    /// Continues as new after each message of a queue.
    Eternal(usize),
    /// Waits until a client cancels it.
    Cancelled,
    /// Children.
    Parent(usize),
    /// Activities on one session.
    Session(usize),
    /// Activities with tags: each worker takes some of the tags.
    Tagged(usize),
    /// Detached instances, started in a turn that continues as new.
    Detached(usize),
    /// Sequential activities whose inputs are larger than a page. The second number marks these inputs. Never drawn.
    Bulk(usize, usize),
}

/// How often the mark of an instance is in its inputs: they fill two pages and a part of a third.
const MARKS: usize = 1_000;

/// The tags of activities.
pub const TAGS: [&str; 3] = ["red", "green", "blue"];

impl InstanceScript {
    /// A random script.
    pub fn draw(random: &mut SeededRandom) -> Self {
        let n = 2 + random.index(3);
        match random.modulo(13) {
            0 => Self::Chain(n),
            1 => Self::Fan(n),
            2 => Self::Timers(n),
            3 => Self::Retry,
            4 => Self::Race,
            5 => Self::Signal,
            6 => Self::Queue(n),
            7 => Self::Eternal(n),
            8 => Self::Cancelled,
            9 => Self::Parent(n),
            10 => Self::Session(n),
            11 => Self::Tagged(n),
            _ => Self::Detached(n),
        }
    }

    /// This many instances, each with a random script.
    pub fn draw_mixed(count: usize, random: &mut SeededRandom) -> Vec<(String, Self)> {
        (0..count).map(|index| (format!("i{index}"), Self::draw(random))).collect()
    }

    /// The orchestration that the instance runs.
    pub fn orchestration(self) -> &'static str {
        match self {
            Self::Chain(_) => "chain",
            Self::Fan(_) => "fan",
            Self::Timers(_) => "timers",
            Self::Retry => "retry",
            Self::Race => "race",
            Self::Signal => "signal",
            Self::Queue(_) => "queue",
            Self::Eternal(_) => "eternal",
            Self::Cancelled => "cancelled",
            Self::Parent(_) => "parent",
            Self::Session(_) => "session",
            Self::Tagged(_) => "tagged",
            Self::Detached(_) => "detached",
            Self::Bulk(..) => "bulk",
        }
    }

    /// Its size.
    pub fn size(self) -> usize {
        match self {
            Self::Chain(n)
            | Self::Fan(n)
            | Self::Timers(n)
            | Self::Queue(n)
            | Self::Eternal(n)
            | Self::Parent(n)
            | Self::Session(n)
            | Self::Tagged(n)
            | Self::Detached(n)
            | Self::Bulk(n, _) => n,
            Self::Retry | Self::Race | Self::Signal | Self::Cancelled => 1,
        }
    }

    /// The input of its first execution.
    pub fn input(self) -> String {
        match self {
            Self::Bulk(n, mark) => format!("{n} {}", format!("{};", Self::mark(mark)).repeat(MARKS)),
            other => format!("{}", other.size()),
        }
    }

    /// The text that is all over the inputs of a bulky instance, and can be its name too.
    pub fn mark(mark: usize) -> String {
        format!("bulk{mark:04}")
    }

    /// The queue messages that it needs.
    pub fn messages(self) -> Vec<String> {
        match self {
            Self::Queue(n) | Self::Eternal(n) => (0..n).map(|index| format!("m{index}")).collect(),
            _ => Vec::new(),
        }
    }

    /// Its custom status at the end.
    pub fn custom_status(self) -> Option<String> {
        match self {
            Self::Signal => Some("waiting".to_owned()),
            Self::Eternal(n) => Some(n.to_string()),
            _ => None,
        }
    }

    /// A key and its value at the end.
    pub fn key(self) -> Option<(&'static str, String)> {
        match self {
            Self::Chain(n) => Some(("steps", n.to_string())),
            Self::Eternal(n) => Some(("seen", n.to_string())),
            _ => None,
        }
    }

    /// What is wrong with an output, if anything. The output lists the results of all steps.
    pub fn judge(self, output: &str) -> Option<String> {
        let parts: Vec<&str> = output.split(' ').map(|part| part.split('#').next().unwrap_or(part)).collect();
        let steps = |n: usize| (0..n).map(|index| format!("s{index}")).collect::<Vec<_>>();
        let expected = match self {
            Self::Chain(n)
            | Self::Fan(n)
            | Self::Timers(n)
            | Self::Session(n)
            | Self::Tagged(n)
            | Self::Bulk(n, _) => steps(n),
            Self::Retry => vec!["flaky".to_owned()],
            Self::Race if parts == ["late"] => return None,
            Self::Race => vec!["slow".to_owned()],
            Self::Signal => vec!["go".to_owned(), "s0".to_owned()],
            Self::Queue(_) => self.messages(),
            // The messages, then the key and the custom status that the earlier executions left.
            Self::Eternal(n) => [self.messages(), vec![n.to_string(); 2]].concat(),
            Self::Detached(_) => steps(1),
            Self::Cancelled => return Some(format!("{output} instead of a cancellation")),
            Self::Parent(n) => (0..n).map(|_| "s0".to_owned()).collect(),
        };
        (parts != expected).then(|| format!("{output} instead of {}", expected.join(" ")))
    }
}

type ScriptResult = Result<String, String>;

/// The orchestrations of all scripts.
pub fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("chain", chain)
        .register("fan", fan)
        .register("timers", timers)
        .register("retry", retry)
        .register("race", race)
        .register("signal", signal)
        .register("queue", queue)
        .register("eternal", eternal)
        .register("cancelled", cancelled)
        .register("parent", parent)
        .register("child", child)
        .register("waiting", waiting)
        .register("session", session)
        .register("tagged", tagged)
        .register("detached", detached)
        .register("bulk", bulk)
        .build()
}

fn size(input: &str) -> usize {
    input.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1)
}

async fn chain(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let mut results = Vec::new();
    for index in 0..size(&input) {
        results.push(ctx.schedule_activity("work", format!("s{index}")).await?);
        ctx.set_kv_value("step", index.to_string());
    }
    ctx.clear_kv_value("step");
    ctx.set_kv_value("steps", size(&input).to_string());
    Ok(results.join(" "))
}

/// Keeps the step and the run of each result, not the large input.
async fn bulk(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let (_, filling) = input.split_once(' ').ok_or("there is no filling")?;
    let mut results = Vec::new();
    for index in 0..size(&input) {
        let result = ctx.schedule_activity("work", format!("s{index} {filling}")).await?;
        let run = result.rsplit_once('#').map_or("", |(_, run)| run);
        results.push(format!("s{index}#{run}"));
    }
    Ok(results.join(" "))
}

async fn fan(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let works = (0..size(&input)).map(|index| ctx.schedule_activity("work", format!("s{index}"))).collect();
    let results: Result<Vec<String>, String> = ctx.join(works).await.into_iter().collect();
    Ok(results?.join(" "))
}

async fn timers(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let mut results = Vec::new();
    for index in 0..size(&input) {
        ctx.schedule_timer(Duration::from_millis(7)).await;
        results.push(ctx.schedule_activity("work", format!("s{index}")).await?);
    }
    Ok(results.join(" "))
}

async fn retry(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    let policy =
        RetryPolicy::new(50).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(3) });
    ctx.schedule_activity_with_retry("flaky", "flaky", policy).await
}

async fn race(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    let slow = ctx.schedule_activity("work", "slow");
    match ctx.select2(slow, ctx.schedule_timer(Duration::from_millis(6))).await {
        Either2::First(result) => result,
        Either2::Second(()) => Ok("late".to_owned()),
    }
}

async fn signal(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    let go = ctx.schedule_wait("go");
    ctx.set_custom_status("waiting");
    let go = go.await;
    let result = ctx.schedule_activity("work", "s0").await?;
    Ok(format!("{go} {result}"))
}

/// Reads until it has enough different messages, in the order of sending: a message that was sent twice counts once.
async fn queue(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let mut messages = Vec::new();
    while messages.len() < size(&input) {
        let message = ctx.dequeue_event("q").await;
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    Ok(messages.join(" "))
}

/// The input is the number of messages to read, then the messages so far. Unread messages are carried to the next
/// execution.
async fn eternal(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let seen: Vec<&str> = input.split(' ').skip(1).collect();
    if seen.len() >= size(&input) {
        let (kept, status) = (ctx.get_kv_value("seen"), ctx.get_custom_status());
        return Ok(format!("{} {} {}", seen.join(" "), kept.unwrap_or_default(), status.unwrap_or_default()));
    }
    let message = ctx.dequeue_event("q").await;
    ctx.schedule_activity("work", "s0").await?;
    if seen.contains(&message.as_str()) {
        return ctx.continue_as_new(input).await;
    }
    ctx.set_kv_value("seen", (seen.len() + 1).to_string());
    ctx.set_custom_status((seen.len() + 1).to_string());
    ctx.continue_as_new(format!("{input} {message}")).await
}

/// Waits for an activity and a child that never end.
async fn cancelled(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    let never = ctx.schedule_activity("endless", "endless");
    let child = ctx.schedule_sub_orchestration("waiting", "1");
    match ctx.select2(never, child).await {
        Either2::First(result) | Either2::Second(result) => result,
    }
}

async fn waiting(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    Ok(ctx.schedule_wait("never").await)
}

async fn session(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let id = ctx.instance_id();
    let step = |index: usize| ctx.schedule_activity_on_session("work", format!("s{index}"), id.as_str());
    let first = step(0).await?;
    let others: Result<Vec<String>, String> =
        ctx.join((1..size(&input)).map(step).collect()).await.into_iter().collect();
    Ok([vec![first], others?].concat().join(" "))
}

async fn tagged(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let step =
        |index: usize| ctx.schedule_activity("work", format!("s{index}")).with_tag(TAGS[index % TAGS.len()]);
    let results: Result<Vec<String>, String> =
        ctx.join((0..size(&input)).map(step).collect()).await.into_iter().collect();
    Ok(results?.join(" "))
}

async fn detached(ctx: OrchestrationContext, input: String) -> ScriptResult {
    if input.contains(' ') {
        return ctx.schedule_activity("work", "s0").await;
    }
    if ctx.instance_id().chars().any(char::is_control) {
        // Damaged: an id that is made of it would be refused with a panic.
        return Err("its id cannot be part of another".to_owned());
    }
    for index in 0..size(&input) {
        ctx.schedule_orchestration("child", format!("{}-{index}", ctx.instance_id()), "1");
    }
    ctx.continue_as_new(format!("{input} begun")).await
}

async fn parent(ctx: OrchestrationContext, input: String) -> ScriptResult {
    let children = (0..size(&input)).map(|_| ctx.schedule_sub_orchestration("child", "1")).collect();
    let results: Result<Vec<String>, String> = ctx.join(children).await.into_iter().collect();
    Ok(results?.join(" "))
}

async fn child(ctx: OrchestrationContext, _input: String) -> ScriptResult {
    ctx.schedule_activity("work", "s0").await
}
