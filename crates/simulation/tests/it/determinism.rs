//! A seed gives the same world every time.

use everturn_proof::{Counts, proof};
use everturn_simulation::{Plan, Theme, run_traced};

#[test]
fn r1_the_same_seed_gives_the_same_trace() {
    let proof = proof!("R1", "r1_the_same_seed_gives_the_same_trace", 201);
    proof.run("worlds run twice", |seed| {
        let theme = [Theme::Faults, Theme::Clocks, Theme::Programs][(seed % 3) as usize];
        let plan = Plan::new(theme, seed);
        let (once, again) = (run_traced(&plan).1, run_traced(&plan).1);
        if once != again {
            let difference = once.lines().zip(again.lines()).find(|(a, b)| a != b);
            return Err(format!("two runs of {theme:?} differ, first difference: {difference:#?}"));
        }
        let lines = once.lines().count() as u64;
        if lines < 1_000 {
            return Err(format!("{theme:?}: a trace of {lines} lines only"));
        }
        let mut counts = Counts::default();
        counts.add("worlds run twice", 1);
        counts.add("equal lines", lines);
        Ok(counts)
    });
}
