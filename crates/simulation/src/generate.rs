//! Random programs.

use crate::program::{Combinator, Ending, Program, ProgramAction, Racer, Step};
use crate::random::SeededRandom;

/// Fewest steps of a program that a client starts.
pub(crate) const STEPS_MIN: u64 = 12;
/// Most steps of a program that a client starts.
const STEPS_MAX: u64 = 16;
/// The deepest nesting of programs.
const DEPTH_MAX: u32 = 2;
/// How many kinds of action there are.
const KINDS: u64 = 33;

/// A program for a client to start under this id.
pub(crate) fn root_program(random: &mut SeededRandom, id: &str) -> Program {
    let steps = random.between(STEPS_MIN, STEPS_MAX);
    let ending = match random.below(10) {
        0 => Ending::AwaitCancel,
        1 => Ending::AwaitCancelWithChild,
        2 => Ending::Fail,
        _ => Ending::Complete,
    };
    Program { steps: steps_of(random, id, steps, 0), ending }
}

/// A step that is added to a program, and where.
pub(crate) fn added_step(random: &mut SeededRandom, id: &str, program: &Program) -> (usize, Step) {
    let action = match random.below(4) {
        0 => ProgramAction::LeaveStranger { at_once: true },
        1 => ProgramAction::LeaveStranger { at_once: false },
        _ => ProgramAction::Large { kib: random.pick([2, 20, 300]) },
    };
    let place = random.between(0, program.steps.len() as u64) as usize;
    (place, Step { key: format!("{id}.added"), action })
}

/// A program that another starts.
fn inner_program(random: &mut SeededRandom, key: &str, depth: u32) -> Program {
    let steps = random.between(1, 3);
    let ending = if random.one_in(4) { Ending::Fail } else { Ending::Complete };
    Program { steps: steps_of(random, key, steps, depth + 1), ending }
}

fn steps_of(random: &mut SeededRandom, prefix: &str, count: u64, depth: u32) -> Vec<Step> {
    (0..count)
        .map(|position| {
            let key = format!("{prefix}.{position}");
            let action = action(random, &key, depth);
            Step { key, action }
        })
        .collect()
}

fn action(random: &mut SeededRandom, key: &str, depth: u32) -> ProgramAction {
    let may_nest = depth < DEPTH_MAX;
    match random.below(KINDS) {
        0 => ProgramAction::Fail,
        1 => ProgramAction::Retry { failures: random.below(4) as u32, attempts: random.between(1, 3) as u32 },
        2 => ProgramAction::TimeOut,
        3 | 4 => ProgramAction::Timer { ms: random.pick([0, 1, 7, 50, 333, 2_000]) },
        5 => ProgramAction::RaceWonByActivity,
        6 => ProgramAction::RaceLostByActivity,
        7 => ProgramAction::RaceLostBySignal,
        8 => ProgramAction::RaceLostByQueue,
        9 => ProgramAction::RaceLostByChild,
        10 | 11 => ProgramAction::FanOut { width: random.between(2, 6) as u32 },
        12 if may_nest => ProgramAction::Child { program: inner_program(random, key, depth) },
        13 if may_nest => ProgramAction::NamedChild { program: inner_program(random, key, depth) },
        14 if may_nest => {
            let programs = (0..2).map(|n| inner_program(random, &format!("{key}-{n}"), depth)).collect();
            ProgramAction::Children { programs }
        }
        15 if may_nest => ProgramAction::Detached { program: inner_program(random, key, depth) },
        16 => ProgramAction::Signal,
        17 | 18 => ProgramAction::Queue { messages: random.between(1, 3) as u32 },
        19 => ProgramAction::ContinueAsNew,
        20 => {
            let text = (!random.one_in(4)).then(|| format!("at {key}"));
            ProgramAction::Status { text }
        }
        21 => ProgramAction::KvSet { key: kv_key(random), value: format!("set by {key}") },
        22 => ProgramAction::KvGet { key: kv_key(random) },
        23 => match random.below(4) {
            0 => ProgramAction::KvClearAll,
            1 => ProgramAction::KvClear { key: kv_key(random) },
            2 => ProgramAction::KvGet { key: kv_key(random) },
            _ => ProgramAction::KvSet { key: kv_key(random), value: format!("set by {key}") },
        },
        24 => ProgramAction::Session { runs: random.between(1, 3) as u32 },
        25 => ProgramAction::Tagged,
        26 if random.one_in(2) => ProgramAction::DropActivity,
        26 => ProgramAction::DropChild,
        27 => ProgramAction::SystemCalls,
        28 | 29 => {
            let against = random.pick([Racer::Activity, Racer::Signal, Racer::Queue, Racer::Child]);
            ProgramAction::OpenRace { against, ms: random.pick([0, 5, 20, 100, 400]) }
        }
        30 | 31 => {
            let by = random.pick([
                Combinator::JoinAll,
                Combinator::Unordered,
                Combinator::Buffered,
                Combinator::SelectAll,
                Combinator::TokioJoin,
                Combinator::Channel,
                Combinator::Retries,
                Combinator::GivenUpRead,
            ]);
            ProgramAction::Combined { by, width: random.between(2, 6) as u32 }
        }
        _ => ProgramAction::Echo,
    }
}

fn kv_key(random: &mut SeededRandom) -> String {
    random.pick(["a", "b", "c"]).to_owned()
}
