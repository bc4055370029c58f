//! Any bit of any column, by chance. `EVERTURN_DAMAGE_CASES` says how many, `EVERTURN_DAMAGE_SEED` repeats a run.

use std::sync::Mutex;

use super::columns::{self, Column, Stored, flipped};
use super::{Change, When, inhabited_store, survived};

const CASES: usize = 24;
/// The same cases every time, if nobody asks for others.
const DEFAULT_SEED: u64 = 1;

/// SplitMix64: small, seeded, the same everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A key with a low bit turned would be a neighbour's: damage to two instances, which is another test.
fn lowest_bit(column: &Column) -> usize {
    if column.name == "instance_key" { 8 } else { 0 }
}

fn damage(column: &Column, stored: &Stored, chance: &mut Chance) -> Option<Stored> {
    if chance.below(3) == 0 {
        // Not every row.
        return None;
    }
    let random_bytes = |chance: &mut Chance| {
        let length = chance.below(40);
        (0..length).map(|_| chance.next().to_le_bytes()[0]).collect::<Vec<u8>>()
    };
    let after = match (stored, chance.below(8)) {
        (_, 0) => Stored::Null,
        (_, 1) => Stored::Blob(random_bytes(chance)),
        (Stored::Integer(_), 2) => Stored::Text(random_bytes(chance)),
        (Stored::Integer(number), _) => {
            let lowest = lowest_bit(column);
            Stored::Integer(number ^ (1_i64 << (lowest + chance.below(64 - lowest))))
        }
        (Stored::Text(bytes) | Stored::Blob(bytes), 2) => {
            Stored::Text(bytes[..chance.below(bytes.len())].to_vec())
        }
        (Stored::Text(bytes) | Stored::Blob(bytes), 3..) => flipped(bytes, chance.below(bytes.len() * 8)),
        (Stored::Null, _) => Stored::Text(random_bytes(chance)),
    };
    (after != *stored).then_some(after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_chance() {
    let seed = number("EVERTURN_DAMAGE_SEED").unwrap_or(DEFAULT_SEED);
    let cases = number("EVERTURN_DAMAGE_CASES").map_or(CASES, |cases| usize::try_from(cases).unwrap());
    println!("random damage: EVERTURN_DAMAGE_SEED={seed} EVERTURN_DAMAGE_CASES={cases}");
    let store = inhabited_store::inhabited().await;
    let all = columns::columns(&store.path());
    let mut chance = Chance(seed);
    let mut failures = Vec::new();
    for nth in 0..cases {
        let column = all[chance.below(all.len())].clone();
        let when = if chance.below(2) == 0 { When::Idle } else { When::Held };
        let name = format!("case {nth}: {}.{} {when:?}", column.table, column.name);
        let damaged = column.clone();
        let rows = Mutex::new(Chance(chance.next()));
        let change: Change = Box::new(move |stored| damage(&damaged, stored, &mut rows.lock().unwrap()));
        failures.extend(survived(name, column, when, change).await.err());
    }
    assert!(failures.is_empty(), "seed {seed}, {} failures:\n{}", failures.len(), failures.join("\n"));
}
