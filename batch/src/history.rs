//! Archived events one after another, and what views had at each moment: what backtests and training data have in
//! common.
//!
//! - `order`: the events of one stream, sorted by DataFusion. The sort spills.
//! - `merged`: the events of several streams in one order, chunk by chunk.
//! - `seen`: the states of views, of all events so far, under the limit of the batch layer; the rows of keys from them.
//! - `sorting`: rows that are made one after another, sorted.

mod merged;
mod order;
mod seen;

pub(crate) use merged::{Chunk, MergedEvents, StreamEvents};
pub(crate) use order::{Archived, CLOCK, NEWEST, Order, PLACE, first_arrival, ordered};
pub(crate) use seen::{SeenStates, WantedKeys, WantedRows};

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use definitions::StreamDefinition;
use types::tiles::Micros;
use types::{Error, Result};

/// Events that are evaluated together.
pub(crate) const CHUNK: usize = 2_048;

/// What counts as known at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// What had arrived. For a scored event: in its own partition the offsets before its own, in the others what the
    /// log received before it. For a row with a time: of what is dated up to that time, what the log had received by
    /// then.
    Log,
    /// What is dated before, whenever it arrived.
    Event,
}

/// Streams in the order in which they are first named, each once.
pub(crate) fn each_once<'s>(streams: impl Iterator<Item = &'s Arc<StreamDefinition>>) -> Vec<&'s Arc<StreamDefinition>> {
    let mut once: Vec<&Arc<StreamDefinition>> = Vec::new();
    for stream in streams {
        if once.iter().all(|known| known.name != stream.name) {
            once.push(stream);
        }
    }
    once
}

/// A column of times.
pub(crate) fn micros<'e>(rows: &'e RecordBatch, name: &str) -> Result<&'e [Micros]> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    Ok(column.ok_or_else(|| Error::internal(format!("the rows lack {name}")))?.values())
}
