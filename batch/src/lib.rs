//! The batch layer: recomputes views from the archive and publishes them as snapshots.
//!
//! A run pins one catalog state, recomputes its view's states from the archive up to that state's vector (the *cut*),
//! and publishes them in one transaction. A failed run never disturbs the snapshot that is served.
//!
//! ```text
//! archive --Partial--> states by bucket --sort, merge, rollup--> buckets --publish--> snapshot
//!                                   (a linked view's edges --walk--> its join, materialised --^)
//! ```
//!
//! In reading order:
//!
//! - `layer`: what all runs share.
//! - `run`: a lease (`lease`) and a record around an `attempt`, which lists the steps.
//! - `decide`: what a run reads; `session` and `memory` limit its memory.
//! - `recompute`: states by bucket (`bucket_partitioner`).
//! - `write`: each bucket sorted (`bucket_sort`) and rolled up.
//! - `join`: the materialised join of a linked view.
//! - `publish`: the manifest and the transaction.
//! - `rebuild_states`: outside of runs, rebuilds damaged states objects.

mod attempt;
mod bucket_partitioner;
mod bucket_sort;
mod decide;
mod join;
mod layer;
mod lease;
mod memory;
mod publish;
mod rebuild_states;
mod recompute;
mod run;
mod session;
mod write;

pub use decide::{RunTime, switch_version, version_to_run};
pub use layer::{Batch, BatchSettings, EVENTS_PER_BUCKET};
pub use lease::KeepLease;
pub use rebuild_states::RebuildOutcome;
pub use run::RunRequest;
