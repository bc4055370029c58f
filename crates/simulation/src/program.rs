//! Programs: what a simulated orchestration does, as data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A simulated orchestration: steps one after the other, then an ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends.
    pub ending: Ending,
}

/// One step. Its key is unique in the whole world: everything that the step uses is named after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The key.
    pub key: String,
    /// What is done.
    pub action: ProgramAction,
}

/// What a step does. The result of each is known, whatever faults happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramAction {
    /// An activity that returns its input.
    Echo,
    /// An activity that fails.
    Fail,
    /// An activity that fails so often before it succeeds, tried so often.
    Retry {
        /// How often it fails.
        failures: u32,
        /// How often it is tried.
        attempts: u32,
    },
    /// An activity that never ends, with a timeout.
    TimeOut,
    /// A timer.
    Timer {
        /// How long.
        ms: u64,
    },
    /// An activity against a timer that is far away: the activity wins.
    RaceWonByActivity,
    /// An activity that never ends against a timer: the timer wins and the activity is cancelled.
    RaceLostByActivity,
    /// A signal that never comes against a timer.
    RaceLostBySignal,
    /// A queue that stays empty against a timer.
    RaceLostByQueue,
    /// A child that waits for ever against a timer: it is cancelled.
    RaceLostByChild,
    /// Something that may come before a timer or after it: whichever wins, the rest is the same.
    OpenRace {
        /// What is raced against the timer.
        against: Racer,
        /// How long the timer takes.
        ms: u64,
    },
    /// Activities side by side; every third fails.
    FanOut {
        /// How many.
        width: u32,
    },
    /// Several calls at once, waited for by something that relies on wakers.
    Combined {
        /// What waits for them.
        by: Combinator,
        /// How many calls.
        width: u32,
    },
    /// A child with a name of the engine's choice.
    Child {
        /// What it does.
        program: Program,
    },
    /// A child with a name of its own.
    NamedChild {
        /// What it does.
        program: Program,
    },
    /// Two children side by side.
    Children {
        /// What each of them does.
        programs: Vec<Program>,
    },
    /// A separate orchestration that is not awaited.
    Detached {
        /// What it does.
        program: Program,
    },
    /// A signal.
    Signal,
    /// Messages of a queue, each read once, in order.
    Queue {
        /// How many.
        messages: u32,
    },
    /// The rest is done by the next execution.
    ContinueAsNew,
    /// The custom status is set, or cleared.
    Status {
        /// To this.
        text: Option<String>,
    },
    /// A key is set.
    KvSet {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// A key is read.
    KvGet {
        /// The key.
        key: String,
    },
    /// A key is cleared.
    KvClear {
        /// The key.
        key: String,
    },
    /// All keys are cleared.
    KvClearAll,
    /// Activities of one session, one after the other.
    Session {
        /// How many.
        runs: u32,
    },
    /// An activity that only some nodes take.
    Tagged,
    /// An activity that is asked for and dropped at once: it must never run.
    DropActivity,
    /// A child that is asked for and dropped at once.
    DropChild,
    /// An activity that kills its node whenever it runs; the first step of its program, and the last.
    DeadlyActivity,
    /// A child that kills its node whenever it runs; the last step of its program.
    DeadlyChild,
    /// The engine's own calls: a random id and the time.
    SystemCalls,
    /// A child call under the id of an instance that runs and is no child; the call is dropped. The stranger runs on.
    LeaveStranger {
        /// Whether it is dropped at once, or when a timer wins against it.
        at_once: bool,
    },
    /// An activity with a large input and a result as large.
    Large {
        /// How large.
        kib: u32,
    },
}

/// What waits for several calls at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Combinator {
    /// `join_all` of a thousand futures, most of them ready.
    JoinAll,
    /// `FuturesUnordered`.
    Unordered,
    /// `buffer_unordered`, two at once.
    Buffered,
    /// `select_all`, until none is left.
    SelectAll,
    /// `tokio::join!` of two branches, each with one call after the other.
    TokioJoin,
    /// A channel from a branch that makes one call after the other to a branch that is polled first.
    Channel,
    /// Retried calls that are made before the first of them is awaited.
    Retries,
    /// Two reads of a queue; a branch gives the first one up in a poll in which the second was polled already.
    GivenUpRead,
}

/// What is raced against a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Racer {
    /// An activity.
    Activity,
    /// A signal, which is sent as soon as it is waited for.
    Signal,
    /// The message of a queue; if the timer wins it is read afterwards.
    Queue,
    /// A child.
    Child,
}

/// How a program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It returns the results of its steps.
    Complete,
    /// It fails.
    Fail,
    /// It waits until a client cancels it.
    AwaitCancel,
    /// It waits for a child that waits, until a client cancels it.
    AwaitCancelWithChild,
    /// It waits for ever; no client acts on it.
    Forever,
}

impl Program {
    /// A program that only waits, for ever.
    pub(crate) fn forever() -> Self {
        Self { steps: Vec::new(), ending: Ending::Forever }
    }

    /// What the stranger of a step does.
    pub(crate) fn stranger(key: &str) -> Self {
        let step = |n: u32, action| Step { key: format!("{key}.{n}"), action };
        let steps = vec![step(0, ProgramAction::Timer { ms: 333 }), step(1, ProgramAction::Echo)];
        Self { steps, ending: Ending::Complete }
    }

    /// All steps, those of children included.
    pub fn steps_in_all(&self) -> usize {
        self.steps
            .iter()
            .map(|step| {
                1 + step.action.programs().iter().map(|program| program.steps_in_all()).sum::<usize>()
            })
            .sum()
    }
}

impl ProgramAction {
    /// The programs this action runs.
    pub(crate) fn programs(&self) -> Vec<&Program> {
        match self {
            Self::Child { program } | Self::NamedChild { program } | Self::Detached { program } => {
                vec![program]
            }
            Self::Children { programs } => programs.iter().collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 2)
    }
}

impl Program {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        for Step { key, action } in &self.steps {
            let programs = action.programs();
            if programs.is_empty() {
                writeln!(f, "{indent}{key}: {action:?}")?;
                continue;
            }
            let kind = match action {
                ProgramAction::Child { .. } => "Child",
                ProgramAction::NamedChild { .. } => "NamedChild",
                ProgramAction::Children { .. } => "Children",
                _ => "Detached",
            };
            for program in programs {
                writeln!(f, "{indent}{key}: {kind}")?;
                program.write(f, depth + 1)?;
            }
        }
        writeln!(f, "{indent}then {:?}", self.ending)
    }
}
