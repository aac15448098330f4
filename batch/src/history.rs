//! The common part of backtests and training data: archived events one after another, and the rows of views at each
//! moment.
//!
//! - `order`: the events of one stream, sorted by DataFusion. The sort spills.
//! - `merged`: the events of several streams in one order, chunk by chunk.
//! - `seen`: the states of views, of all events so far, under the limit of the batch layer; the rows of keys from them.
//! - `times`: a column of times, as numbers.
//! - `wanted`: the keys that rows are asked for.

mod merged;
mod order;
mod seen;
mod times;
mod wanted;

pub(crate) use merged::{CHUNK, MergedChunk, MergedEvents, StreamEvents};
pub(crate) use order::{Archived, CLOCK, NEWEST, Order, PLACE, first_arrival, ordered, unordered};
pub(crate) use seen::{SeenStates, WantedRows};
pub(crate) use times::micros;
pub(crate) use wanted::WantedKeys;

use std::sync::Arc;

use definitions::StreamDefinition;

/// Which events count as known at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Events that had arrived. For a scored event: in its own partition the events at lower offsets, in the others
    /// those that the log received before it. For a row with a time: of the events dated up to that time, those that
    /// the log had received by then.
    Log,
    /// Events that are dated before, whenever they arrived.
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
