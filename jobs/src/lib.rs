//! What runs when, and the `basestream` command line.

pub mod collect;
pub mod demo;
pub mod ingest;
pub mod ledger;
pub mod scheduler;
pub mod verify;
