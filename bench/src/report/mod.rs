//! The results, and what is made from them: the printed table, the verdicts, the plots and the documents.

mod bars;
mod document;
mod plot;
mod results;
mod table;
mod units;

pub(crate) use document::write_from;
pub(crate) use plot::write_plots;
pub(crate) use results::{BenchMachine, Results, SystemOutcome, WorkloadResult};
pub(crate) use table::{print_bars, print_head, print_workload};
pub(crate) use units::with_unit;
