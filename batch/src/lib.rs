//! The batch layer: makes views' snapshots and publishes them.
//!
//! A run pins one catalog state, makes its view's states up to that state's vector (the *cut*), and publishes them in
//! one transaction. A failed run never disturbs the snapshot that is served. A first run recomputes from the archive,
//! and so does any run that has to; other runs add what was committed since the last cut.
//!
//! ```text
//! archive --Partial--> states by bucket --sort, merge, rollup--> base --publish--> snapshot
//!                                   (a linked view's edges --walk--> its join, materialised --^)
//!
//! checkpoints since the last cut --segments--> states by bucket --sort, merge, rollup--> delta --publish--> snapshot
//!                                               (earlier tiers, where that is due, merged into one --^)
//! ```
//!
//! In reading order:
//!
//! - `layer`: what all runs share.
//! - `run`: a lease (`lease`) and a record around the making of a `snapshot`; `attempt`: its inputs and tools.
//! - `limits`: the memory and time that a view's definition allows its runs.
//! - `mode`, `request`: what a run is asked for; `basis`: the data from which it makes its snapshot; `decide`: up to
//!   where it reads; `session` and `memory` limit its memory; `temp_folder`: where it spills to.
//! - `full`: all states from the archive (`recompute`), by bucket (`bucket_partitioner`); `shared_scan`: several runs
//!   read it together; `progress`: how much of it is read.
//! - `beside`: all states from the archive while other runs of the version continue (`run_leases`).
//! - `plan`: what a run would do.
//! - `increment`: the states since the last cut, and the tiers that are merged (`tiers`); `from_checkpoints`: all
//!   states anew; `one_tier`: a snapshot of all states.
//! - `segments`: the states of checkpoints, from states objects or (`replay`) from their `events`.
//! - `write`: each bucket sorted (`bucket_sort`, or with files `external_sort`) and rolled up.
//! - `linked`: the runs of linked views, and where their edges are in local files; `join`: the materialised join.
//! - `compare`: a recomputation compared with the states that incremental runs had kept.
//! - `publish`: the manifest and the transaction.
//! - `compact`: outside of runs, makes one checkpoint of many, and one archive file.
//! - `backtest`: outside of runs, scores archived events as a sink would have; `training`: computes the columns of
//!   views for rows with keys and a time; `history`: what both read, event by event.
//! - `rebuild_states`: outside of runs, rebuilds damaged states objects.

mod attempt;
mod backtest;
mod basis;
mod beside;
mod bucket_count;
mod bucket_partitioner;
mod bucket_sort;
mod compact;
mod compare;
mod context;
mod decide;
mod draft;
mod due_tiers;
mod events;
mod external_sort;
mod from_checkpoints;
mod full;
mod history;
mod increment;
mod join;
mod layer;
mod lease;
mod limits;
mod linked;
mod memory;
mod mode;
mod one_tier;
mod plan;
mod progress;
mod publish;
mod rebuild_states;
mod recompute;
mod replay;
mod request;
mod run;
mod run_leases;
mod segments;
mod session;
mod shared_scan;
mod slices;
mod snapshot;
mod sort_memory;
mod temp_folder;
mod tiers;
mod training;
mod write;

pub use backtest::{
    Backtest, BacktestClock, BacktestProgress, Backtested, CHANGED, CHANGED_VERDICT, ChangedSink, NO_VERDICT, OnRows, ReceivedLate,
    VERDICT, plan_of_sink,
};
pub use basis::recomputation_failed_lately;
pub use compact::{COMPACTION_LEASE, Compacted, Compaction};
pub use decide::{RunTime, switch_version, version_to_run};
pub use events::{CheckpointEvents, ReplayLog};
pub use history::Known;
pub use join::LocalCopies;
pub use layer::{Batch, EVENTS_PER_BUCKET, REPORT_EVERY, RunSettings};
pub use lease::KeepLease;
pub use mode::{REPLAYED_A_SECOND, ReplayFrom, ReplayRequest, RunMode};
pub use plan::{FileTotals, RunPlan};
pub use rebuild_states::RebuildOutcome;
pub use request::{RunConcurrency, RunRequest};
pub use temp_folder::SessionFolder;
pub use training::{FirstArrival, OnTrainingRows, Spine, SpineRows, Trained, Training};
