//! Runs one query over the same events with several contenders, each in its own process, one at a time in every repeat,
//! and compares all answers with each other.

mod answer;
mod contender;
mod parts;
pub mod plain;
pub mod table;

pub use answer::Shape;
pub use contender::{Contender, How, Measured, Outcome, Site, measure};
pub use parts::{Parts, Step};
