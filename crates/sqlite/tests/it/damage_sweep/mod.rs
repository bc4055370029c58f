//! Every stored column, damaged in every way: nothing panics, the other instances are not affected, and reads of the
//! damaged instance report the damage.
#![allow(clippy::print_stdout, reason = "the tally and the seed belong to the test's output")]

mod columns;
mod damaged_store;
mod filled_store;
mod random_damage;

use std::collections::{BTreeMap, BTreeSet};

use columns::{Applied, Column, Damage, Stored};
use damaged_store::{DamagedStore, HeldWork};
use tokio::task::JoinSet;

/// What a damage led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DamageOutcome {
    /// The value was not there to be damaged.
    Nothing,
    /// The file format has no such value.
    Impossible,
    /// The instance was parked, and its failure says why.
    Parked,
    /// The instance received a failure of its activity.
    Told,
    /// The instance goes on, and its info and its status report the damage.
    Reported,
    /// The value is valid: the instance goes on with it.
    Harmless,
    /// The instance goes on without something that was sent to it, and nothing reports it.
    Lost,
    /// The instance has no more turns, and only the log says why.
    Stalled,
}

/// When the damage happens.
#[derive(Debug, Clone, Copy)]
enum When {
    /// No worker works on the instance.
    Idle,
    /// Its turn and its activities are under way.
    Held,
}

/// What a stored value becomes; `None` if it stays.
type Change = Box<dyn Fn(&Stored) -> Option<Stored> + Send + Sync>;

async fn case(column: &Column, when: When, change: &Change) -> (Applied, DamageOutcome) {
    let mut store = DamagedStore::open().await;
    let held = match when {
        When::Idle => HeldWork::default(),
        When::Held => store.hold().await,
    };
    let applied = columns::apply(&store.files.path(), column, change);
    match applied {
        Applied::Nothing => return (applied, DamageOutcome::Nothing),
        Applied::Impossible => return (applied, DamageOutcome::Impossible),
        Applied::Written | Applied::Forced => {}
    }
    store.use_every_verb(held, applied).await;
    let outcome = if store.parked.is_some() {
        DamageOutcome::Parked
    } else if store.activity_failed() {
        DamageOutcome::Told
    } else if store.damage_is_reported() {
        DamageOutcome::Reported
    } else if store.damaged_received_all() {
        DamageOutcome::Harmless
    } else if store.damaged_had_a_turn() {
        DamageOutcome::Lost
    } else {
        DamageOutcome::Stalled
    };
    if applied == Applied::Written {
        assert!(
            outcome != DamageOutcome::Stalled || is_a_fence(column),
            "the instance stalls and nothing reports why"
        );
        assert!(
            outcome != DamageOutcome::Lost || is_a_delay(column) || is_a_fence(column),
            "a message was lost and nothing reports it: {:?}",
            store.noticed
        );
        assert!(!store.is_stuck(), "the instance can neither go on nor end: {:?}", store.noticed);
    }
    (applied, outcome)
}

/// Any delay is a valid one.
fn is_a_delay(column: &Column) -> bool {
    matches!(column.name.as_str(), "visible_at_ms" | "delayed_until_ms")
}

/// Any engine version is a valid one: what needs a newer one waits for a process that has it.
fn is_a_fence(column: &Column) -> bool {
    column.name == "needs_engine"
}

/// Runs a case on a task of its own, so that one that fails does not hide the others.
async fn survived(
    name: String,
    column: Column,
    when: When,
    change: Change,
) -> Result<(Applied, DamageOutcome), String> {
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
        Err(_) => Err(format!("{name}: timed out")),
    }
}

async fn sweep(table: &str) {
    let store = filled_store::filled().await;
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    for column in columns::columns(&store.path()) {
        if column.table != table {
            continue;
        }
        // All damages of a column run at the same time: each case mostly waits.
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
            let store = filled_store::filled().await;
            let tables: BTreeSet<String> =
                columns::columns(&store.path()).into_iter().map(|column| column.table).collect();
            assert_eq!(tables, [$(stringify!($table)),*].map(str::to_owned).into());
        }
    };
}

sweeps! {
    everturn_activity_payloads,
    everturn_custom_statuses,
    everturn_holds,
    everturn_kv_undo,
    everturn_nodes,
    everturn_records,
    everturn_message_payloads,
    everturn_dead_letters, everturn_executions, everturn_garbage, everturn_history, everturn_instances, everturn_kv_base, everturn_kv_delta, everturn_orchestrator_queue, everturn_sessions, everturn_totals,
    everturn_worker_queue,
}
