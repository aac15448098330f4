//! The types that every layer shares. They know nothing of definitions, files or a database.
//!
//! An [`Error`] says what its caller can do, and its [`Reason`] what happened where protocols have a code for that. A
//! [`vector`] says how far the log is read, and [`tiles`] how time is cut into buckets and windows. A [`record`] is
//! what the log delivers. [`files`] names what the object storage holds, and [`columns`] names the columns that the
//! system adds to a user's own. [`failures`] are the events on which a view fails, which it leaves out. [`threads`]
//! says which work runs on which threads, and [`liveness`] which processes are dead; what they left goes with
//! [`process_folder`]. A [`Strategy`] is how a batch run makes a snapshot, a [`TransitionKind`] what happened to a key
//! of an alert. [`sql_dialect`] is how SQL is parsed, and [`value_texts`] has values as PostgreSQL writes them.

pub mod clocks;
pub mod columns;
pub mod connections;
pub mod durable;
mod error;
pub mod failpoint;
pub mod failures;
pub mod files;
pub mod liveness;
pub mod open_files;
pub mod outage;
pub mod process_folder;
mod reason;
pub mod record;
pub mod redact;
pub mod sql_dialect;
pub mod sql_errors;
pub mod sql_types;
mod strategy;
pub mod suggest;
pub mod threads;
pub mod tiles;
pub mod timed_out;
mod transition;
pub mod uuid_text;
pub mod value_texts;
pub mod vector;

pub use error::{Error, ErrorKind, MessageForm, Result};
pub use reason::Reason;
pub use strategy::Strategy;
pub use transition::TransitionKind;
