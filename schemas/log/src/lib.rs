//! The event log: a durable, partitioned sequence of records per topic. Two engines behind one trait: [`embedded`]
//! (SQLite) and [`kafka`].
//!
//! A consumer delivers a totally ordered stream of [`LogEvent`]s. Ownership changes come in the same order as records,
//! so a worker that handles events in order has handled everything before a revoke when it sees the revoke. Start
//! offsets come from the worker (the catalog), never from the log's own groups.

mod consumer;
pub mod embedded;
pub mod kafka;
mod log;
mod mark;
mod opening;
mod record;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod topic;

pub use consumer::{Consumer, Fetched, LogEvent, ReaderGroup, Subscription};
pub use log::{Log, OutputAppender, TakenOutput};
pub use mark::{check_mark, mark_of};
pub use opening::open;
pub use record::{LogOutput, MAX_OUTPUT_BYTES, NewRecord};
pub use topic::{LogSize, OpenTransaction, PartitionBounds, TopicPartition};
