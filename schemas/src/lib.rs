//! What all layers of basestream share.

pub mod catalog;
pub mod definitions;
pub mod error;
pub mod functions;
pub mod log;
pub mod tiles;
pub mod vector;

pub use error::{Error, ErrorKind, Result};
