//! The workloads of the benchmark for engines whose steps run in the process of the workflow.
//!
//! A peer implements [`Peer`] and registers eight workflows, each with one text as its input:
//!
//! | workflow | what it does |
//! | --- | --- |
//! | `chain` | as many steps as its input says, one after the other; each calls [`Probe::step`] |
//! | `steps` | [`Probe::steps_each`] steps that return the input; each calls [`Probe::step`] |
//! | `fan_out` | as many steps as its input says, at the same time; each calls [`Probe::step`] |
//! | `greet` | one step that calls [`Probe::step`] and returns the input |
//! | `sleeper` | calls [`Probe::ask`] with its input, then sleeps durably for [`Probe::sleep`] |
//! | `parent` | starts as many `child` workflows as its input says, at the same time, and waits for all |
//! | `child` | calls [`Probe::step`] and returns its input |
//! | `inbox` | receives as many messages as its input says, and calls [`Probe::step`] for each |
//! | `waiter` | waits for a message that does not come |
#![forbid(unsafe_code)]

mod probe;
mod workloads;

use std::future::Future;
use std::time::Duration;

use everturn_bench_protocol::{BenchResult, MeasureReply, MeasureRequest};

pub use probe::{Probe, probe};

/// Longer than any workload may take.
pub const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// An engine at work.
pub trait Peer: Clone + Send + Sync + 'static {
    /// A workflow that was started.
    type Started: Send + 'static;

    /// Starts a workflow; returns when the start is durable.
    fn start(
        &self,
        workflow: &'static str,
        id: String,
        input: String,
    ) -> impl Future<Output = BenchResult<Self::Started>> + Send;

    /// Waits for the end of a workflow.
    fn wait(&self, started: Self::Started) -> impl Future<Output = BenchResult<()>> + Send;

    /// Starts a workflow and waits for its end.
    fn run(
        &self,
        workflow: &'static str,
        id: String,
        input: String,
    ) -> impl Future<Output = BenchResult<()>> + Send {
        async move {
            let started = self.start(workflow, id, input).await?;
            self.wait(started).await
        }
    }

    /// Sends a message to a workflow; returns when it is durable.
    fn send(&self, id: &str, message: String) -> impl Future<Output = BenchResult<()>> + Send;

    /// The process of the engine's own server.
    fn server_process(&self) -> Option<u32> {
        None
    }
}

/// Runs the main function of a peer: measures what the arguments ask for, prints the reply and ends the process.
pub fn run<P, F>(open: impl FnOnce(MeasureRequest) -> F) -> BenchResult<()>
where
    P: Peer,
    F: Future<Output = BenchResult<P>>,
{
    let request = MeasureRequest::parse(std::env::args().skip(1))?;
    probe().configure(request.size_or_zero("activities"), request.size_or_zero("sleep_ms"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let reply: MeasureReply = runtime.block_on(async {
        let peer = open(request.clone()).await?;
        workloads::measure(&peer, &request).await
    })?;
    println!("{reply}");
    // Work that was stopped is not waited for.
    std::process::exit(0);
}
