//! A SELECT as both layers run it: which states it keeps, how they are made from events, merged and answered. It reads no file and no
//! catalog.
//!
//! In reading order: [`events`] decodes records into typed rows; [`functions`] are basestream's own SQL functions, and the formats of
//! states; [`plan`] turns a view's SELECT into what is kept and what is asked; [`states`] are made, sorted, merged and answered;
//! [`walk`] answers views over a JOIN; [`fresh`] shares the states of a process that are not committed yet.

pub mod events;
pub mod fresh;
pub mod functions;
pub mod plan;
pub mod states;
pub mod walk;
