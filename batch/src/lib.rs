//! The batch layer: archive in, snapshots out.
//!
//! A run pins one catalog state, recomputes its view's states from the archive up to that state's vector (the *cut*), and
//! publishes them in one transaction. A failed run never disturbs the snapshot that is served.
//!
//! ```text
//! archive --Partial--> states by bucket --sort, merge, rollup--> buckets --publish--> snapshot
//!                                   (a linked view's edges --walk--> its join, materialised --^)
//! ```

mod bucket_partitioner;
mod bucket_sort;
mod decide;
mod join;
mod lease;
mod memory;
mod rebuild_states;
mod recompute;
mod run;
mod write;

pub use decide::{needed_files, switch_version, version_to_run};
pub use lease::KeepLease;
pub use memory::PeakPool;
pub use rebuild_states::RebuildOutcome;
pub use run::{Batch, BatchSettings, Clock, EVENTS_PER_BUCKET, RunRequest, RunTime};
