//! The batch layer: archive in, snapshots out.
//!
//! A run pins one catalog state, recomputes its view's states from the archive up to that state's vector (the *cut*), and
//! publishes them in one transaction. A failed run never disturbs the snapshot that is served.
//!
//! ```text
//! archive --Partial--> states by bucket --sort, merge, climb the ladder--> buckets --publish--> snapshot
//!                                          (a linked view's edges --walk--> its join, materialised --^)
//! ```

mod decide;
mod join;
mod lease;
mod memory;
mod mend;
mod recompute;
mod run;
mod scatter;
mod whole_keys;
mod write;

pub use decide::{needed_files, switch_version, version_to_run};
pub use lease::KeepLease;
pub use memory::PeakPool;
pub use mend::Mended;
pub use run::{Batch, BatchSettings, Clock, EVENTS_PER_BUCKET, RunRequest, RunTime};
