//! What all layers of basestream share.
//!
//! ```text
//! log -> speed (decode, dedupe, states, checkpoint) -> archive + segments -> batch (recompute, publish) -> snapshots -> serving
//! ```
//!
//! In reading order: a [`vector`] says how far the log is read, [`tiles`] how time is cut; [`definitions`] are what users write,
//! [`plan`] turns a SELECT into [`states`]; [`events`] go in through a [`log`], files lie in [`storage`], and the [`catalog`] says
//! what is committed. The three layers import this crate and never one another: they meet only in data.

pub mod catalog;
pub mod damage;
pub mod definitions;
pub mod durable;
pub mod error;
pub mod events;
pub mod failpoint;
pub mod fresh;
pub mod functions;
pub mod log;
pub mod plan;
pub mod registry;
pub mod segment;
pub mod settings;
pub mod states;
pub mod storage;
pub mod tiles;
pub mod types;
pub mod vector;
pub mod walk;

pub use error::{Error, ErrorKind, Result};
