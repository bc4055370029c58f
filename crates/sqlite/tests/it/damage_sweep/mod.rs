//! Every stored column, damaged in every way: nothing panics, the other instances do not notice, and whoever asks for
//! the damaged instance is told.
#![allow(clippy::print_stdout, reason = "the tally and the seed are for whoever reads the test's output")]

mod columns;
mod inhabited_store;
mod life_goes_on;
mod random_damage;

use std::collections::{BTreeMap, BTreeSet};

use columns::{Applied, Column, Damage, Stored};
use life_goes_on::{Held, Ward};
use tokio::task::JoinSet;

/// What a damage came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The value was not there to be damaged.
    Nothing,
    /// The file format has no such value.
    Impossible,
    /// The instance was parked, and says why.
    Parked,
    /// The instance was told that its activity failed.
    Told,
    /// The instance goes on, and its record and its status say what is wrong.
    Reported,
    /// The value is one that could have been stored, and is obeyed: the instance goes on.
    Harmless,
    /// The instance goes on without something that was sent to it, and nothing says so.
    Lost,
    /// The instance has no more turns, and nothing says why but the log.
    Stalled,
}

/// When the damage happens.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Nobody works on the instance.
    Idle,
    /// Its turn and its activities are under way.
    Held,
}

/// What a stored value becomes; `None` if it stays.
type Change = Box<dyn Fn(&Stored) -> Option<Stored> + Send + Sync>;

async fn case(column: &Column, when: When, change: &Change) -> (Applied, Outcome) {
    let mut ward = Ward::admit().await;
    let held = match when {
        When::Idle => Held::default(),
        When::Held => ward.hold().await,
    };
    let applied = columns::apply(&ward.store.path(), column, change);
    match applied {
        Applied::Nothing => return (applied, Outcome::Nothing),
        Applied::Impossible => return (applied, Outcome::Impossible),
        Applied::Written | Applied::Forced => {}
    }
    ward.live(held, applied).await;
    let outcome = if ward.parked.is_some() {
        Outcome::Parked
    } else if ward.damaged_was_told() {
        Outcome::Told
    } else if ward.damage_is_told() {
        Outcome::Reported
    } else if ward.damaged_received_all() {
        Outcome::Harmless
    } else if ward.damaged_had_a_turn() {
        Outcome::Lost
    } else {
        Outcome::Stalled
    };
    if applied == Applied::Written {
        assert!(outcome != Outcome::Stalled, "the instance stands still and nothing says why");
        assert!(
            outcome != Outcome::Lost || is_a_delay(column),
            "something was lost and nothing says so: {:?}",
            ward.noticed
        );
        assert!(!ward.is_stuck(), "the instance can neither go on nor end: {:?}", ward.noticed);
    }
    (applied, outcome)
}

/// Any delay is one that somebody may have asked for.
fn is_a_delay(column: &Column) -> bool {
    column.name == "visible_at_ms"
}

/// Runs a case on a task of its own, so that one that fails does not hide the others.
async fn survived(
    name: String,
    column: Column,
    when: When,
    change: Change,
) -> Result<(Applied, Outcome), String> {
    let run = async move { case(&column, when, &change).await };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), tokio::spawn(run)).await;
    match ended {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(panic)) => {
            let text = panic.into_panic();
            let text = text
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| text.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("{name}: {}", text.unwrap_or_default()))
        }
        Err(_) => Err(format!("{name}: it hangs")),
    }
}

async fn sweep(table: &str) {
    let store = inhabited_store::inhabited().await;
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for column in columns::columns(&store.path()) {
        if column.table != table {
            continue;
        }
        // All damages of a column at the same time: each case mostly waits.
        let mut cases = JoinSet::new();
        for damage in Damage::ALL {
            for when in [When::Idle, When::Held] {
                let name = format!("{}.{} {damage:?} {when:?}", column.table, column.name);
                let damaged = column.clone();
                let change: Change = Box::new(move |stored| columns::damaged(&damaged, stored, damage));
                cases.spawn(survived(name, column.clone(), when, change));
            }
        }
        for outcome in cases.join_all().await {
            match outcome {
                Ok((applied, outcome)) => {
                    let how = if applied == Applied::Forced { " (a constraint refuses it)" } else { "" };
                    *tally.entry(format!("{outcome:?}{how}")).or_default() += 1;
                }
                Err(failure) => failures.push(failure),
            }
        }
    }
    println!("{table}: {tally:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

macro_rules! sweeps {
    ($($table:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $table() {
                sweep(stringify!($table)).await;
            }
        )*

        #[tokio::test]
        async fn every_table_is_swept() {
            let store = inhabited_store::inhabited().await;
            let tables: BTreeSet<String> =
                columns::columns(&store.path()).into_iter().map(|column| column.table).collect();
            assert_eq!(tables, [$(stringify!($table)),*].map(str::to_owned).into());
        }
    };
}

sweeps! {
    executions, history, instances, kv_base, kv_delta, orchestrator_queue, sessions, set_aside, worker_queue,
}
