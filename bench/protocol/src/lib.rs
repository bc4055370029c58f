//! What the benchmark's driver asks of a measuring process, and what that process answers.
//!
//! Every system is measured by a program of its own: Everturn by `everturn-bench` itself, each peer by its package in
//! `bench/peers`. The driver starts the program once per workload and round. The arguments are a [`MeasureRequest`]; the
//! last line of the output is a [`MeasureReply`], one JSON object:
//!
//! ```text
//! {"figures":{"step_s":0.00046},"stopped":false}
//! {"absent":"it has no child workflows"}
//! ```
#![forbid(unsafe_code)]

mod payload;
mod process;
mod reply;
mod request;
mod shapes;
mod statistics;

pub use payload::payload;
pub use process::{folder_bytes, resident_mb, since_epoch_s, written_bytes};
pub use reply::{Figures, MeasureReply};
pub use request::{MEASURE_FLAG, MeasureRequest};
pub use statistics::{median, quantile};

/// The error of a measurement: a reason to print.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;
/// The result of a measurement, or the reason why there is none.
pub type BenchResult<T> = std::result::Result<T, BenchError>;
