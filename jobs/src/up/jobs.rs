//! What a process with the scheduler does by the clock: batch runs, the collector, compaction, and trimming the log.

use types::threads;

use super::parts::{Parts, Stage};
use crate::installation::Installation;
use crate::scheduler::DueCheck;

/// Starts them; returns whether the scheduler can look for due runs.
pub(super) fn start(parts: &mut Parts, installation: &Installation) -> DueCheck {
    let scheduler = installation.scheduler();
    let due_check = scheduler.due_check.clone();
    // A run takes what queries and the speed layer leave of the processors.
    parts.start(Stage::Jobs, "scheduler", |stop| async move { threads::RUNS.spawn(async move { scheduler.run(stop).await }).await? });
    let every = installation.settings.batch.collect_every;
    let collector = installation.collector();
    parts.start(Stage::Jobs, "collector", move |stop| async move {
        Ok(threads::RUNS.spawn(async move { collector.run(every, stop).await }).await?)
    });
    let compacting = installation.compacting();
    parts.start(Stage::Jobs, "compaction", move |stop| async move {
        Ok(threads::RUNS.spawn(async move { compacting.run(every, stop).await }).await?)
    });
    if let Some(trimming) = installation.trimming() {
        parts.start(Stage::Jobs, "log trimming", move |stop| async move {
            Ok(threads::RUNS.spawn(async move { trimming.run(every, stop).await }).await?)
        });
    }
    due_check
}
