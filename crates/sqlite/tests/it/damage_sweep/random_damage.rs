//! Any bit of any column, at random: `EVERTURN_PROOF_CASES` says how many, `EVERTURN_PROOF_SEED` where they begin.

use std::sync::Mutex;

use everturn_proof::{Counts, proof};

use super::columns::{self, Applied, Column, Stored, flipped};
use super::{Change, When, filled_store, survived};

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

/// A key with a flipped low bit would be another instance's: damage to two instances, which is another test.
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
        (Stored::Null | Stored::Real(_), _) => Stored::Text(random_bytes(chance)),
    };
    (after != *stored).then_some(after)
}

/// One damage to one column of some rows of an instance.
fn damage_one(seed: u64, all: &[Column]) -> Result<Counts, String> {
    let mut chance = Chance(seed.wrapping_mul(0xa076_1d64_78bd_642f));
    let column = all[chance.below(all.len())].clone();
    let when = if chance.below(2) == 0 { When::Idle } else { When::Held };
    let name = format!("{}.{} {when:?}", column.table, column.name);
    let damaged = column.clone();
    let rows = Mutex::new(Chance(chance.next()));
    let change: Change = Box::new(move |stored| damage(&damaged, stored, &mut rows.lock().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (applied, outcome) = runtime.block_on(survived(name, column, when, change))?;
    let mut counts = Counts::default();
    counts.add("damages", u64::from(matches!(applied, Applied::Written | Applied::Forced)));
    counts.add("refused by a constraint", u64::from(applied == Applied::Forced));
    counts.add(&format!("{outcome:?}").to_lowercase(), 1);
    Ok(counts)
}

#[test]
fn r10_any_bit_of_any_column_may_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = runtime.block_on(async {
        let store = filled_store::filled().await;
        columns::columns(&store.path())
    });
    let proof = proof!("R10", "r10_any_bit_of_any_column_may_turn", 60);
    proof.run("damages", |seed| damage_one(seed, &all));
}
