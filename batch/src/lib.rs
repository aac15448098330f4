//! The batch layer: archive in, snapshots out.
//!
//! A run pins one catalog state, recomputes its view's states from the archive up to that state's vector (the *cut*), and
//! publishes them in one transaction. A failed run never disturbs the snapshot that is served.
//!
//! ```text
//! archive --Partial--> states by bucket --sort, merge, rollup--> buckets --publish--> snapshot
//!                                   (a linked view's edges --walk--> its join, materialised --^)
//! ```
//!
//! In reading order: `layer` is what all runs share; `run` puts a lease (`lease`) and a record around an `attempt`, which lists the
//! steps. `decide` what is read, within which memory (`session`, `memory`); `recompute` states by bucket (`bucket_partitioner`);
//! `write` each bucket sorted (`bucket_sort`) and rolled up; `join` what a linked view keeps besides; `publish`. Besides runs,
//! `rebuild_states` makes damaged states objects again.

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

pub use decide::{RunTime, needed_files, switch_version, version_to_run};
pub use layer::{Batch, BatchSettings, EVENTS_PER_BUCKET};
pub use lease::KeepLease;
pub use rebuild_states::RebuildOutcome;
pub use run::RunRequest;
