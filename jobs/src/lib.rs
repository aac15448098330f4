//! The `basestream` command line, and what runs when.
//!
//! [`Installation`] opens the services that the settings name and builds the layers on them. Whatever the command line
//! does can also be done from code (see `examples/embedded.rs`). [`cli::main`] is a whole command line for a binary
//! with its own functions.
//!
//! ```text
//! init -> check -> plan, apply -> up (speed, scheduler, serve) -> ingest -> lookup, query -> verify, status
//! ```

mod all_counted;
pub mod apply;
pub mod backfill;
pub mod backtest;
pub mod check;
pub mod cli;
pub mod collect;
pub mod compact;
pub mod dead_letters;
pub mod demo;
pub mod features;
pub mod ingest;
pub mod init;
mod input_file;
mod installation;
pub mod ledger;
pub mod memory;
mod mistakes;
pub mod output;
pub mod outputs;
mod owner;
pub mod parameters;
pub mod pin;
pub mod readers;
mod reason;
pub mod repair;
pub mod replay;
mod row_file;
pub mod scheduler;
pub mod served;
mod sql_names;
pub mod status;
pub mod storage_report;
pub mod tokens;
pub mod training;
pub mod trim;
pub mod up;
pub mod verify;
pub mod versions;

pub use installation::{Installation, clock, now};
