//! How a SELECT runs in both layers: which states it keeps, how states are computed from events, merged, and evaluated
//! to answers. The crate reads no files and no catalog.
//!
//! In reading order: [`events`] decodes records into typed rows. [`functions`] holds basestream's own SQL functions and
//! the formats of states. [`plan`] turns a view's SELECT into kept states and ranges. [`states`] computes, sorts,
//! merges and evaluates them. [`keys`] reads the keys of lookups. [`walk`] answers views over a JOIN. [`sinks`] makes a
//! record of each event and the rows that belong to it. [`alerts`] finds the rows that satisfy a condition, and when
//! that can change without an event; both may use [`parameters`]. [`fresh`] shares the uncommitted states of a process.

pub mod alerts;
mod checked;
pub mod events;
pub mod fresh;
pub mod functions;
pub mod keys;
pub mod parameters;
pub mod plan;
pub mod sinks;
pub mod states;
mod steps;
pub mod walk;
