//! How a SELECT runs in both layers: which states it keeps, how states are computed from events, merged, and evaluated
//! to answers. The crate reads no files and no catalog.
//!
//! In reading order: [`events`] decodes records into typed rows. [`functions`] holds basestream's own SQL functions and
//! the formats of states. [`plan`] turns a view's SELECT into kept states and ranges. [`states`] computes, sorts,
//! merges and evaluates them. [`keys`] reads the keys of questions. [`walk`] answers views over a JOIN. [`fresh`]
//! shares the uncommitted states of a process.

pub mod events;
pub mod fresh;
pub mod functions;
pub mod keys;
pub mod plan;
pub mod states;
pub mod walk;
