//! The activities of all scripts: every run is recorded.

use std::sync::Arc;
use std::time::Duration;

use everturn::ActivityContext;
use everturn::providers::TagFilter;
use everturn::runtime::registry::ActivityRegistry;

use crate::instance_script::TAGS;
use crate::observations::{Observation, ObservationLog};

/// Which activities process number `process` of `processes` takes: those without a tag, and its share of the tags.
pub(crate) fn tag_filter(process: usize, processes: usize) -> TagFilter {
    let share: Vec<&str> = TAGS.iter().copied().skip(process).step_by(processes.max(1)).collect();
    if share.is_empty() { TagFilter::DefaultOnly } else { TagFilter::default_and(share) }
}

/// The activities for workers with this filter. Every run returns a result of its own, so a history shows which run was
/// recorded.
pub(crate) fn activities(log: &Arc<ObservationLog>, filter: TagFilter) -> ActivityRegistry {
    let (work, flaky) = (Arc::clone(log), Arc::clone(log));
    ActivityRegistry::builder()
        .register("work", move |ctx: ActivityContext, input: String| {
            let log = Arc::clone(&work);
            let filter = filter.clone();
            async move {
                let run = log.begin_run();
                if !filter.matches(ctx.tag()) {
                    log.record(Observation::Wrong(format!("{filter:?} was given {:?}", ctx.tag())));
                }
                tokio::time::sleep(Duration::from_millis(run % 5 * 2)).await;
                Ok(record_run(&log, &ctx, input, run))
            }
        })
        .register("flaky", move |ctx: ActivityContext, input: String| {
            let log = Arc::clone(&flaky);
            async move {
                let run = log.begin_run();
                let result = record_run(&log, &ctx, input, run);
                if run % 2 == 0 { Ok(result) } else { Err(result) }
            }
        })
        .register("endless", move |ctx: ActivityContext, _input: String| async move {
            ctx.cancelled().await;
            Err("cancelled".to_owned())
        })
        .build()
}

fn record_run(log: &ObservationLog, ctx: &ActivityContext, input: String, run: u64) -> String {
    let result = format!("{input}#{run}");
    let instance = ctx.instance_id().to_owned();
    log.record(Observation::Ran(instance, ctx.execution_id(), input, result.clone()));
    result
}
