//! The law for joins: random views over two streams, or over one stream joined with itself.
//!
//! `plain` compares the expected side of `verify` with a loop over all pairs. `layers` compares the log, the workers,
//! the runs and the nodes with that side.

mod command;
mod events;
mod expired;
mod grammar;
mod layers;
mod pairs;
mod plain;
