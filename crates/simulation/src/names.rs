//! Names of the orchestration, the activities, and what a step uses.

/// The one orchestration, which runs any program.
pub(crate) const ORCHESTRATION: &str = "program";
/// Returns its input.
pub(crate) const ECHO: &str = "echo";
/// Fails with its input.
pub(crate) const FAIL: &str = "fail";
/// Fails as often as its input says.
pub(crate) const FLAKY: &str = "flaky";
/// Ends only when it is cancelled.
pub(crate) const ENDLESS: &str = "endless";
/// Returns its session.
pub(crate) const SESSION: &str = "session";
/// Returns its tag.
pub(crate) const TAGGED: &str = "tagged";
/// Kills its node whenever it runs; an orchestration and an activity.
pub(crate) const DEADLY: &str = "deadly";
/// The tag that not every node serves.
pub(crate) const TAG: &str = "gpu";

/// Signals of this kind are sent as soon as an instance waits for them.
const SIGNAL: &str = "signal:";
/// So are these, but it does not matter whether they arrive in time.
const CASUAL: &str = "casual:";
/// A wait for such a signal makes a client cancel the instance named in it.
const CANCEL: &str = "cancel:";
/// Signals of this kind are never sent.
const NEVER: &str = "never:";

/// The reason of every cancellation by a client.
pub(crate) const CANCEL_REASON: &str = "the simulation says so";

/// Whether a client cancels this root before any client starts it.
pub(crate) fn is_cancelled_early(root: &str) -> bool {
    root.ends_with(['5', '9'])
}

/// What a wait asks clients to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish<'a> {
    Signal,
    Cancel { instance: &'a str },
    Nothing,
}

pub(crate) fn signal(key: &str) -> String {
    format!("{SIGNAL}{key}")
}

pub(crate) fn casual(key: &str) -> String {
    format!("{CASUAL}{key}")
}

/// Whether it does not matter if this signal arrives too late.
pub(crate) fn is_casual(signal: &str) -> bool {
    signal.starts_with(CASUAL)
}

pub(crate) fn cancel(instance: &str) -> String {
    format!("{CANCEL}{instance}")
}

pub(crate) fn never(key: &str) -> String {
    format!("{NEVER}{key}")
}

/// What a wait for a signal of this name asks for.
pub(crate) fn wish(signal: &str) -> Wish<'_> {
    if signal.starts_with(SIGNAL) || is_casual(signal) {
        Wish::Signal
    } else if let Some(instance) = signal.strip_prefix(CANCEL) {
        Wish::Cancel { instance }
    } else {
        Wish::Nothing
    }
}

/// The payload of a signal.
pub(crate) fn signal_data(name: &str) -> String {
    format!("data of {name}")
}

/// The instance a step starts under a name of its own.
pub(crate) fn instance(key: &str, index: usize) -> String {
    format!("{key}/{index}")
}
