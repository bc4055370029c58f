//! Random programs.

use crate::program::{Action, Ending, Program, Racer, Step};
use crate::random::SeededRandom;

/// Fewest steps of a program that a client starts.
pub(crate) const STEPS_MIN: u64 = 12;
/// Most steps of a program that a client starts.
const STEPS_MAX: u64 = 16;
/// Programs within programs within programs go no deeper.
const DEPTH_MAX: u32 = 2;
/// How many kinds of action there are.
const KINDS: u64 = 31;

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

fn action(random: &mut SeededRandom, key: &str, depth: u32) -> Action {
    let may_nest = depth < DEPTH_MAX;
    match random.below(KINDS) {
        0 => Action::Fail,
        1 => Action::Retry { failures: random.below(4) as u32, attempts: random.between(1, 3) as u32 },
        2 => Action::TimeOut,
        3 | 4 => Action::Timer { ms: random.pick([0, 1, 7, 50, 333, 2_000]) },
        5 => Action::RaceWonByActivity,
        6 => Action::RaceLostByActivity,
        7 => Action::RaceLostBySignal,
        8 => Action::RaceLostByQueue,
        9 => Action::RaceLostByChild,
        10 | 11 => Action::FanOut { width: random.between(2, 6) as u32 },
        12 if may_nest => Action::Child { program: inner_program(random, key, depth) },
        13 if may_nest => Action::NamedChild { program: inner_program(random, key, depth) },
        14 if may_nest => {
            let programs = (0..2).map(|n| inner_program(random, &format!("{key}-{n}"), depth)).collect();
            Action::Children { programs }
        }
        15 if may_nest => Action::Detached { program: inner_program(random, key, depth) },
        16 => Action::Signal,
        17 | 18 => Action::Queue { messages: random.between(1, 3) as u32 },
        19 => Action::ContinueAsNew,
        20 => {
            let text = (!random.one_in(4)).then(|| format!("at {key}"));
            Action::Status { text }
        }
        21 => Action::KvSet { key: kv_key(random), value: format!("set by {key}") },
        22 => Action::KvGet { key: kv_key(random) },
        23 => match random.below(4) {
            0 => Action::KvClearAll,
            1 => Action::KvClear { key: kv_key(random) },
            2 => Action::KvGet { key: kv_key(random) },
            _ => Action::KvSet { key: kv_key(random), value: format!("set by {key}") },
        },
        24 => Action::Session { runs: random.between(1, 3) as u32 },
        25 => Action::Tagged,
        26 if random.one_in(2) => Action::DropActivity,
        26 => Action::DropChild,
        27 => Action::SystemCalls,
        28 | 29 => {
            let against = random.pick([Racer::Activity, Racer::Signal, Racer::Queue, Racer::Child]);
            Action::OpenRace { against, ms: random.pick([0, 5, 20, 100, 400]) }
        }
        _ => Action::Echo,
    }
}

fn kv_key(random: &mut SeededRandom) -> String {
    random.pick(["a", "b", "c"]).to_owned()
}
