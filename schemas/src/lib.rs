//! What all layers of basestream share.

pub mod catalog;
pub mod definitions;
pub mod error;
pub mod log;
pub mod settings;
pub mod tiles;
pub mod vector;

pub use error::{Error, ErrorKind, Result};
