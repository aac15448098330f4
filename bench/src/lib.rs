//! Benchmarks: what a query costs here and what it costs a peer, measured in one run on one machine and on the same
//! data.
//!
//! ```text
//! events --rows--> an installation's archive, and plain Parquet for the peers --> children, measured --> report
//! ```
//!
//! Each benchmark is one function from options to a [`Report`]. `bench` is the command line, `bench/run` runs all
//! benchmarks.

pub mod alerts;
pub mod asking;
pub mod batch;
pub mod child;
pub mod compaction;
pub mod contest;
pub mod cost;
pub mod events;
pub mod feed;
pub mod flight;
mod flink;
pub mod freshness;
pub mod graph;
pub mod history;
pub mod hot;
pub mod ingest;
pub mod installed;
pub mod isolation;
pub mod latencies;
pub mod links_batch;
pub mod links_lookup;
pub mod lookup;
pub mod lookups_during_run;
pub mod machine;
pub mod measured_process;
pub mod payments;
pub mod probe;
pub mod programs;
pub mod purchases;
pub mod report;
pub mod rows;
pub mod run_memory;
pub mod runs;
pub mod scan;
pub mod sinks;
pub mod soak;
pub mod spread;
pub mod start;
pub mod view;
pub mod within;

pub use programs::Programs;
pub use report::Report;
