//! Programs from chance.

use crate::chance::Chance;
use crate::program::{Action, Ending, Program, Racer, Step};

/// Fewest steps of a program that a client starts.
pub(crate) const STEPS_MIN: u64 = 12;
/// Most steps of a program that a client starts.
const STEPS_MAX: u64 = 16;
/// Programs within programs within programs go no deeper.
const DEPTH_MAX: u32 = 2;
/// How many kinds of action there are.
const KINDS: u64 = 31;

/// A program for a client to start under this id.
pub(crate) fn root_program(chance: &mut Chance, id: &str) -> Program {
    let steps = chance.between(STEPS_MIN, STEPS_MAX);
    let ending = match chance.below(10) {
        0 => Ending::AwaitCancel,
        1 => Ending::AwaitCancelWithChild,
        2 => Ending::Fail,
        _ => Ending::Complete,
    };
    Program { steps: steps_of(chance, id, steps, 0), ending }
}

/// A program that another starts.
fn inner_program(chance: &mut Chance, key: &str, depth: u32) -> Program {
    let steps = chance.between(1, 3);
    let ending = if chance.one_in(4) { Ending::Fail } else { Ending::Complete };
    Program { steps: steps_of(chance, key, steps, depth + 1), ending }
}

fn steps_of(chance: &mut Chance, prefix: &str, count: u64, depth: u32) -> Vec<Step> {
    (0..count)
        .map(|position| {
            let key = format!("{prefix}.{position}");
            let action = action(chance, &key, depth);
            Step { key, action }
        })
        .collect()
}

fn action(chance: &mut Chance, key: &str, depth: u32) -> Action {
    let may_nest = depth < DEPTH_MAX;
    match chance.below(KINDS) {
        0 => Action::Fail,
        1 => Action::Retry { failures: chance.below(4) as u32, attempts: chance.between(1, 3) as u32 },
        2 => Action::TimeOut,
        3 | 4 => Action::Timer { ms: chance.pick([0, 1, 7, 50, 333, 2_000]) },
        5 => Action::RaceWonByActivity,
        6 => Action::RaceLostByActivity,
        7 => Action::RaceLostBySignal,
        8 => Action::RaceLostByQueue,
        9 => Action::RaceLostByChild,
        10 | 11 => Action::FanOut { width: chance.between(2, 6) as u32 },
        12 if may_nest => Action::Child { program: inner_program(chance, key, depth) },
        13 if may_nest => Action::NamedChild { program: inner_program(chance, key, depth) },
        14 if may_nest => {
            let programs = (0..2).map(|n| inner_program(chance, &format!("{key}-{n}"), depth)).collect();
            Action::Children { programs }
        }
        15 if may_nest => Action::Detached { program: inner_program(chance, key, depth) },
        16 => Action::Signal,
        17 | 18 => Action::Queue { messages: chance.between(1, 3) as u32 },
        19 => Action::ContinueAsNew,
        20 => {
            let text = (!chance.one_in(4)).then(|| format!("at {key}"));
            Action::Status { text }
        }
        21 => Action::KvSet { key: kv_key(chance), value: format!("set by {key}") },
        22 => Action::KvGet { key: kv_key(chance) },
        23 => match chance.below(4) {
            0 => Action::KvClearAll,
            1 => Action::KvClear { key: kv_key(chance) },
            2 => Action::KvGet { key: kv_key(chance) },
            _ => Action::KvSet { key: kv_key(chance), value: format!("set by {key}") },
        },
        24 => Action::Session { runs: chance.between(1, 3) as u32 },
        25 => Action::Tagged,
        26 if chance.one_in(2) => Action::DropActivity,
        26 => Action::DropChild,
        27 => Action::SystemCalls,
        28 | 29 => {
            let against = chance.pick([Racer::Activity, Racer::Signal, Racer::Queue, Racer::Child]);
            Action::OpenRace { against, ms: chance.pick([0, 5, 20, 100, 400]) }
        }
        _ => Action::Echo,
    }
}

fn kv_key(chance: &mut Chance) -> String {
    chance.pick(["a", "b", "c"]).to_owned()
}
