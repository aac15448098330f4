//! The messages of the feed. A message is a `FlightData`: its `app_metadata` is a [`Head`] as JSON. Its `data_body` has
//! the states of a layer, one Arrow IPC stream for each view, one after the other.
//!
//! ```text
//! Snapshot, then as many Layers as it says; then Layer | Compacted | TakenOver | Completed | Withdrawn, until the end
//! ```
//!
//! Messages about one event have an [`Exchange`] instead of a head.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_flight::FlightData;
use bytes::Bytes;
use engine::fresh::{Claim, Complete, ViewVersion};
use engine::parameters::UsedParameters;
use serde::{Deserialize, Serialize};
use types::failures::Failures;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

/// Incremented when an older release could misread the messages.
pub(crate) const FORMAT: u32 = 1;

/// A node's request for layers: the ticket of `DoGet`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRequest {
    pub(crate) format: u32,
    /// The view versions whose states the node wants.
    pub(crate) views: Vec<ViewVersion>,
    /// The greatest epoch that the node accepted of each partition.
    pub(crate) seen: Vec<(PartitionId, i64)>,
}

/// The beginning of a message. Owners are numbers of workers in their process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Head {
    /// This many layers follow, which belong to the snapshot.
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
    /// When readers in the worker's process could first read it, by the worker's clock.
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

/// The messages between a node and a worker's process about one event, in this order. The node begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Exchange {
    /// The node is about to append an event to this topic.
    Listen { format: u32, topic: Arc<str> },
    /// The process listens: no later decision is missed. Its workers have these partitions of the topic.
    Listening { partitions: BTreeSet<i32> },
    /// The event is in the log.
    Appended(DecisionRequest),
    /// The record, if there is one, is the body of the message.
    Decided(EventDecision),
}

/// An event in the log, and the sink whose record of it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRequest {
    pub sink: Arc<str>,
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: Offset,
}

/// The decision of a worker about one event, once its records are durable in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDecision {
    /// The identity of the log that its offset belongs to.
    pub identity: String,
    pub is_dead_letter: bool,
    /// The timestamp of its record. `None` if it was not accepted.
    pub timestamp: Option<Micros>,
    /// The time since which the worker knows the ids of accepted events. `None` if it knows none.
    pub ids_since: Option<Micros>,
    /// `None` if the sink had not begun, or was paused.
    pub by: Option<DecidingSink>,
}

/// The sink that decided about the event, and its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidingSink {
    pub version: u32,
    pub parameters: UsedParameters,
    /// The records of events before this offset were put out earlier.
    pub from: Option<Offset>,
    /// The value of the record, if there is one.
    #[serde(skip)]
    pub record: Option<Bytes>,
}

pub(crate) fn message(head: &Head, body: Bytes) -> Result<FlightData> {
    Ok(flight_data(serde_json::to_vec(head)?, body))
}

pub(crate) fn head(message: &FlightData) -> Result<Head> {
    serde_json::from_slice(&message.app_metadata)
        .map_err(|error| Error::corrupt("a worker sent a message that is not understood").caused_by(error))
}

pub(crate) fn exchange_message(said: &Exchange) -> Result<FlightData> {
    let record = match said {
        Exchange::Decided(EventDecision { by: Some(by), .. }) => by.record.clone(),
        _ => None,
    };
    Ok(flight_data(serde_json::to_vec(said)?, record.unwrap_or_default()))
}

pub(crate) fn exchange(message: &FlightData) -> Result<Exchange> {
    let mut said: Exchange = serde_json::from_slice(&message.app_metadata)
        .map_err(|error| Error::input("what was said about an event is not understood").caused_by(error))?;
    if let Exchange::Decided(EventDecision { by: Some(by), .. }) = &mut said {
        by.record = (!message.data_body.is_empty()).then(|| message.data_body.clone());
    }
    Ok(said)
}

fn flight_data(app_metadata: Vec<u8>, data_body: Bytes) -> FlightData {
    FlightData { flight_descriptor: None, data_header: Bytes::new(), app_metadata: app_metadata.into(), data_body }
}

/// Errors: `Input` for a node or worker that speaks another format.
pub(crate) fn check_format(found: u32) -> Result<()> {
    match found {
        FORMAT => Ok(()),
        _ => {
            let message = "the node speaks another format: use one release for workers and nodes";
            Err(Error::input(message).with("found", found).with("expected", FORMAT))
        }
    }
}

#[cfg(test)]
mod tests;
