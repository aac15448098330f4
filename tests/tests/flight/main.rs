//! Arrow Flight SQL, by the client of the arrow-flight crate: over a node whose layers a test drives step by step.

#![allow(clippy::unwrap_used)]

mod answers;
mod encrypted;
mod listings;
mod protocol;
mod rights;
mod server;
