//! What runs when, and the `basestream` command line.

pub mod ingest;
