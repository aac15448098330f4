//! The law for joins: random views over two streams, or over one twice.
//!
//! `plain` holds the expected side of `verify` against a loop over all pairs, `layers` the log, the workers, the runs and the nodes
//! against that.

mod command;
mod events;
mod expired;
mod grammar;
mod layers;
mod pairs;
mod plain;
