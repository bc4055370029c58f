//! Long history: a step must not cost more because many came before it.

use std::path::PathBuf;

use crate::Result;
use crate::bare_disk::BareDisk;
use crate::chain::step_seconds;
use crate::figures::{Figures, median};
use crate::report::{Verdict, ms};

const STEPS: u32 = 4_000;
const GROWTH_MAX: f64 = 1.3;

pub(crate) async fn measure(folder: PathBuf) -> Result<Figures> {
    let steps = step_seconds(&folder, STEPS).await?;
    let quarter = steps.len() / 4;
    let first = steps.iter().copied().take(quarter).collect();
    let last = steps.iter().copied().skip(steps.len() - quarter).collect();
    Ok(Figures::of([("first_s", median(first)?), ("last_s", median(last)?)]))
}

pub(crate) fn judge(figures: &Figures, _: &BareDisk) -> Result<Verdict> {
    let (first_s, last_s) = (figures.get("first_s")?, figures.get("last_s")?);
    Ok(Verdict {
        figure: format!("{} a step at first, {} at last: {:.2} x", ms(first_s), ms(last_s), last_s / first_s),
        bar: format!("at most {GROWTH_MAX} x the first quarter"),
        pass: last_s <= GROWTH_MAX * first_s,
    })
}
