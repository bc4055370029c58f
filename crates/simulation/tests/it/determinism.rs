//! A seed is a world: the same every time.

use everturn_simulation::{Plan, Theme, run_traced};

use crate::seeds::{first, how_many};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in first()..first() + how_many(200).div_ceil(3) {
        for theme in [Theme::Storms, Theme::Clocks, Theme::Programs] {
            let plan = Plan::new(theme, seed);
            let (once, again) = (run_traced(&plan).1, run_traced(&plan).1);
            let difference = once.lines().zip(again.lines()).find(|(a, b)| a != b);
            assert!(once == again, "seed {seed} of {theme:?}, first difference: {difference:#?}");
            assert!(once.lines().count() > 1_000);
        }
    }
}
