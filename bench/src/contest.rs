//! One question over the same events, asked of several: each is a process of its own, one after the other in every repeat, and all
//! answers are compared with each other.

mod answer;
mod contender;
mod parts;
pub mod plain;
pub mod table;

pub use answer::Shape;
pub use contender::{Contender, How, Measured, Outcome, Site, measure};
pub use parts::{Parts, Step};
