//! The messages of the feed. A message is a `FlightData`: its `app_metadata` is a [`Head`] as JSON. Its `data_body` has
//! the states of a layer, one Arrow IPC stream for each view, one after the other.
//!
//! ```text
//! Snapshot, then as many Layers as it says; then Layer | Compacted | TakenOver | Completed | Withdrawn, until the end
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_flight::FlightData;
use bytes::Bytes;
use engine::fresh::{Claim, Complete, ViewVersion};
use serde::{Deserialize, Serialize};
use types::failures::Failures;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use types::{Error, Result};

/// Incremented when an older release could misread what we send.
pub(crate) const FORMAT: u32 = 1;

/// What a node asks for: the ticket of `DoGet`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRequest {
    pub(crate) format: u32,
    /// The view versions whose states it wants.
    pub(crate) views: Vec<ViewVersion>,
    /// The greatest epoch that it accepted of each partition.
    pub(crate) seen: Vec<(PartitionId, i64)>,
}

/// The beginning of a message. Owners are numbers of workers in their process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Head {
    /// This many layers follow that belong to it.
    Snapshot {
        format: u32,
        claims: Vec<(u64, Claim)>,
        complete_to: Vec<Complete>,
        layers: usize,
    },
    Layer(LayerHead),
    /// The worker merged its layers between these vectors; a node merges its own.
    Compacted {
        owner: u64,
        start: Vector,
        end: Vector,
    },
    TakenOver {
        owner: u64,
        claims: Vec<Claim>,
    },
    Completed {
        owner: u64,
        complete_to: Vec<Complete>,
    },
    Withdrawn {
        owner: u64,
        committed: Vector,
        partitions: Vec<PartitionId>,
    },
}

/// A layer without its states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayerHead {
    pub(crate) owner: u64,
    pub(crate) start: Vector,
    pub(crate) end: Vector,
    pub(crate) max_event_time: BTreeMap<Arc<str>, Micros>,
    pub(crate) complete_to: Vec<Complete>,
    pub(crate) sections: Vec<SectionHead>,
    /// When readers beside the worker could read it, by the worker's clock.
    pub(crate) published_at: Micros,
}

/// A view version's states in a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SectionHead {
    pub(crate) view: Arc<str>,
    pub(crate) version: u32,
    /// Names the format of the states.
    pub(crate) stamp: Arc<str>,
    pub(crate) bytes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failures: Option<Failures>,
}

pub(crate) fn message(head: &Head, body: Bytes) -> Result<FlightData> {
    let head = serde_json::to_vec(head)?;
    Ok(FlightData { flight_descriptor: None, data_header: Bytes::new(), app_metadata: head.into(), data_body: body })
}

pub(crate) fn head(message: &FlightData) -> Result<Head> {
    serde_json::from_slice(&message.app_metadata)
        .map_err(|error| Error::corrupt("a worker sent a message that is not understood").caused_by(error))
}

#[cfg(test)]
mod tests;
