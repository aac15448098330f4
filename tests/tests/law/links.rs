//! The law for joins: random views over two streams, or over one twice.
//!
//! `plain` holds the expected side of `verify` against a loop over all pairs.

mod events;
mod grammar;
mod pairs;
mod plain;
