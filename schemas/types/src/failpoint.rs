//! Failpoints: named steps at which a test may kill, stop or delay this process, or lose a reply.
//!
//! Without the feature `failpoints`, which only the dev-dependencies of `tests` enable, a step does nothing. With it,
//! `FAILPOINTS` says what happens where, in the syntax of the crate `fail` (which is not used: its dependencies would
//! change the feature selection for all of DataFusion): `FAILPOINTS="checkpoint.before_commit=2*off->1*return(kill)"`
//! lets two checkpoints pass and kills the process in the third. A term is `[percent%][count*]off` or
//! `..return(argument)`. The arguments of `return`:
//!
//! | argument | what happens |
//! |---|---|
//! | `kill` | SIGKILL to this process |
//! | `stop` | SIGSTOP: the process continues on SIGCONT |
//! | `delay:MS` | the step takes this long |
//! | `unavailable` | the step fails as `Unavailable`; after a commit: the commit happened, and its reply is lost |
//!
//! Each step that took effect appends a line to the file that `BASESTREAM_FAILPOINTS_FIRED` names, so that a test can
//! check that its fault fired.

#[cfg(not(feature = "failpoints"))]
use crate::Result;

/// The speed layer, from taking partitions over to releasing them.
pub const SPEED: [&str; 9] = [
    "speed.assign",
    "speed.ids_reread",
    "speed.micro_batch_closed",
    "checkpoint.before_archive",
    "checkpoint.after_archive",
    "checkpoint.after_states",
    "checkpoint.before_commit",
    "checkpoint.after_commit",
    "speed.revoke",
];
/// The records of a sink begin to be made by another version, or the sink is paused or resumed.
pub const SINKS: [&str; 2] = ["sinks.before_switch", "sinks.after_switch"];
/// An alert: between the catalog's commit of a transition and the append of its record, and after that.
pub const ALERTS: [&str; 2] = ["alert.after_commit", "alert.after_append"];
/// A batch run.
pub const BATCH: [&str; 7] =
    ["run.leased", "run.begun", "run.segment", "run.bucket", "run.slice", "publish.before_commit", "publish.after_commit"];
/// A full run that is asked for: between what it recomputed and what it compares that with, and before it adds what was
/// committed meanwhile.
pub const FULL_RUN: [&str; 2] = ["run.compared", "run.recomputed"];
/// A round of the collector.
pub const COLLECTOR: [&str; 5] = [
    "mark_for_deletion.before_commit",
    "mark_for_deletion.after_commit",
    "collect.between_deletes",
    "delete.before_commit",
    "delete.after_commit",
];
/// `basestream apply` and `backfill`, where an archive is decoded again.
pub const BACKFILL: [&str; 3] = ["backfill.file_decoded", "backfill.before_switch", "backfill.after_switch"];
/// A compaction of checkpoints.
pub const COMPACTION: [&str; 2] = ["compact.before_commit", "compact.after_commit"];
/// A serving node that follows the catalog.
pub const SERVING: [&str; 2] = ["serving.copying", "serving.loaded"];
/// An append to the embedded log.
pub const APPEND: [&str; 2] = ["append.before_commit", "append.after_commit"];
/// A trimming of the embedded log, in each of its transactions.
pub const TRIM: [&str; 1] = ["trim.before_delete"];
/// `basestream ingest`.
pub const INGEST: [&str; 1] = ["ingest.between_batches"];

/// Passes a step. Does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn hit(_: &'static str) -> Result<()> {
    Ok(())
}

#[cfg(feature = "failpoints")]
pub use armed::hit;

#[cfg(feature = "failpoints")]
mod armed;
