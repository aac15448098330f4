//! What runs when, and the `basestream` command line.
//!
//! [`Installation`] opens what settings name and makes the layers of it; everything the command line does can be done from code
//! (see `examples/embedded.rs`), and [`cli::main`] is a whole command line for a binary with functions of its own.
//!
//! ```text
//! init -> check -> plan, apply -> ingest -> up (speed, scheduler, serve) -> lookup, query -> verify, status
//! ```

pub mod apply;
pub mod check;
pub mod cli;
pub mod collect;
pub mod dead_letters;
pub mod demo;
pub mod ingest;
pub mod init;
mod installation;
pub mod ledger;
pub mod memory;
pub mod output;
pub mod readers;
pub mod repair;
pub mod scheduler;
pub mod served;
pub mod status;
pub mod up;
pub mod verify;

pub use installation::{Clock, Installation, clock, now};
