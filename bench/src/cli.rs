//! The command-line options of the benchmarks.

mod events;
mod history;
mod questions;

pub(crate) use events::{Alerts, Freshness, FreshnessApart, Ingest, Sinks};
pub(crate) use history::{Batch, Compaction, Cost, History, LinksBatch, RunMemory, Soak, Start};
pub(crate) use questions::{Flight, Hot, Isolation, LinksLookup, Lookup, LookupsDuringRun, Scan};
