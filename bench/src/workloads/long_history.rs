//! Long history: a step must not cost more because many came before it.

use everturn_bench_protocol::{BenchResult, Figures, MeasureReply, MeasureRequest};

use super::chain;

pub(super) async fn measure(request: &MeasureRequest) -> BenchResult<MeasureReply> {
    let steps = request.size("steps")?;
    let run = chain::run(request, steps).await?;
    let figures = Figures::of_history(&run.step_seconds, steps)?;
    Ok(MeasureReply::Measured { figures, stopped: run.stopped })
}
