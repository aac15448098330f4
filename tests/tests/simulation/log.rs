//! The simulated log, and the rules, written independently of the product, that decide which records are events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::CatalogState;
use definitions::StreamDefinition;
use definitions::parse::parse_stream;
use engine::events::{Decoder, format_timestamp};
use event_log::{Fetched, PartitionBounds, TopicPartition};
use rand::Rng;
use rand::rngs::StdRng;
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};

use crate::world::Position;

pub const STREAMS: [(&str, i32); 2] = [("a", 2), ("b", 1)];
pub const DEDUP_WITHIN: Duration = Duration::from_secs(600);
pub const MAX_FUTURE: Duration = Duration::from_secs(600);
const IDENTITY: &str = "the log";

pub struct SimLog {
    partitions: BTreeMap<PartitionId, Partition>,
    decoders: BTreeMap<Arc<str>, Arc<Decoder>>,
    next_id: u64,
}

#[derive(Default)]
struct Partition {
    /// Also those that were trimmed: what they say is expected.
    records: Vec<Entry>,
    /// The first offset that was not trimmed.
    begin: Offset,
    trimmed_by: Option<TrimDecision>,
    /// The offset of the next record; offsets before it may be skipped, like those of a transaction's markers.
    end: i64,
    clock: Micros,
}

/// What was known when it was decided which records go.
#[derive(Clone)]
pub struct TrimDecision {
    pub state: Arc<CatalogState>,
    pub at: Micros,
}

struct Entry {
    record: Record,
    event: Option<Event>,
    /// Whether the rules accept it as an event.
    accepted: bool,
}

/// The content of a readable record: a user did something on a device.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub time: Micros,
    pub user: String,
    pub device: String,
}

/// A stream as the product knows it.
pub fn definition(stream: &str) -> StreamDefinition {
    parse_stream(&stream_sql(stream)).unwrap()
}

pub fn stream_sql(stream: &str) -> String {
    format!(
        "CREATE STREAM {stream} (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT NOT NULL, device TEXT NOT NULL) \
         WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m')"
    )
}

impl SimLog {
    pub fn new() -> Self {
        let ids = STREAMS.iter().flat_map(|(name, count)| (0..*count).map(move |partition| PartitionId::new(*name, partition)));
        Self {
            partitions: ids.map(|id| (id, Partition::default())).collect(),
            decoders: STREAMS
                .iter()
                .map(|(name, _)| ((*name).into(), Arc::new(Decoder::new(Arc::new(definition(name))).unwrap())))
                .collect(),
            next_id: 0,
        }
    }

    pub fn partitions(&self) -> impl Iterator<Item = &PartitionId> {
        self.partitions.keys()
    }

    pub fn decoder(&self, stream: &str) -> Arc<Decoder> {
        self.decoders[stream].clone()
    }

    pub fn identity(&self) -> String {
        IDENTITY.into()
    }

    pub fn bounds(&self, id: &PartitionId) -> PartitionBounds {
        let Partition { begin, end, .. } = &self.partitions[id];
        PartitionBounds { partition: id.partition, begin: *begin, end: Offset(*end) }
    }

    pub fn end(&self) -> Vector {
        self.partitions.iter().map(|(id, partition)| (id.clone(), Offset(partition.end))).collect()
    }

    /// Appends records to one partition: good ones, duplicates, broken ones, ones dated in the future, and offsets
    /// without a record.
    pub fn append(&mut self, rng: &mut StdRng, now: Micros) -> String {
        let at = rng.random_range(0..self.partitions.len());
        let (id, partition) = self.partitions.iter_mut().nth(at).unwrap();
        let count = rng.random_range(1..8);
        for _ in 0..count {
            if rng.random_ratio(1, 12) {
                partition.end += rng.random_range(1..3);
            }
            // A broker's clock may go back a little.
            let timestamp = now - rng.random_range(0..3) * 1_000_000;
            let clock = partition.clock.max(timestamp);
            let future = MAX_FUTURE.as_micros() as Micros;
            let entry = match rng.random_range(0..10) {
                0 => Entry { record: record(partition.end, timestamp, "{\"id\": 7"), event: None, accepted: false },
                1 => {
                    let ahead = clock + future + 1 + rng.random_range(0..1_000_000);
                    let event = new_event(&mut self.next_id, rng, ahead);
                    entry(partition, timestamp, event, false)
                }
                2 | 3 if !partition.records.is_empty() => {
                    let again = rng.random_range(0..partition.records.len());
                    let Some(event) = partition.records[again].event.clone() else { continue };
                    let accepted = event.time - clock <= future && !is_known(partition, &event.id, clock);
                    entry(partition, timestamp, event, accepted)
                }
                _ => {
                    let time = timestamp - rng.random_range(0..7_200) * 1_000_000;
                    let event = new_event(&mut self.next_id, rng, time);
                    entry(partition, timestamp, event, true)
                }
            };
            partition.clock = clock;
            partition.records.push(entry);
            partition.end += 1;
        }
        format!("{count} records to {id}, which ends at {}", partition.end)
    }

    /// Deletes records of a partition that are before an offset and were appended before a time; returns how many.
    pub fn trim(&mut self, id: &PartitionId, before: Offset, appended_before: Micros, decision: &TrimDecision) -> usize {
        let Some(partition) = self.partitions.get_mut(id) else { return 0 };
        let left = partition.records.iter().filter(|entry| entry.record.offset >= partition.begin);
        let old = left.take_while(|entry| entry.record.offset < before && entry.record.timestamp < appended_before);
        let offsets: Vec<Offset> = old.map(|entry| entry.record.offset).collect();
        if let Some(last) = offsets.last() {
            partition.begin = last.next();
            partition.trimmed_by = Some(decision.clone());
        }
        offsets.len()
    }

    /// By what a partition got its present beginning.
    pub fn trimmed_by(&self, id: &PartitionId) -> Option<TrimDecision> {
        self.partitions[id].trimmed_by.clone()
    }

    /// What a consumer at `position` receives: at most `limit` records, perhaps after some that it received before.
    pub fn fetch(&self, id: &PartitionId, position: Offset, again: usize, limit: usize, now: Micros) -> Fetched {
        let partition = &self.partitions[id];
        let next = partition.records.partition_point(|entry| entry.record.offset < position);
        let until = (next + limit).min(partition.records.len());
        let records: Vec<Record> = partition.records[next.saturating_sub(again)..until].iter().map(|entry| entry.record.clone()).collect();
        let at_end = until == partition.records.len();
        let read = records.last().map_or(position, |record| record.offset.next()).max(position);
        let source = TopicPartition { topic: id.stream.clone(), partition: id.partition };
        Fetched { source, records, position: if at_end { Offset(partition.end).max(read) } else { read }, at_end, fetched_at: now }
    }

    /// The events of these streams before a vector, by the rules alone.
    pub fn events_before(&self, streams: &[Arc<str>], vector: &Vector) -> Vec<Position> {
        let of_streams = streams.iter().flat_map(|stream| self.accepted(stream, vector));
        of_streams.map(|(id, entry)| Position { partition: id.clone(), offset: entry.record.offset.0 }).collect()
    }

    /// The content of the events of one stream before a vector.
    pub fn said_before(&self, stream: &str, vector: &Vector) -> Vec<&Event> {
        self.accepted(stream, vector).filter_map(|(_, entry)| entry.event.as_ref()).collect()
    }

    /// The content of the record at a position.
    pub fn event(&self, position: &Position) -> Option<&Event> {
        let records = &self.partitions.get(&position.partition)?.records;
        let at = records.binary_search_by_key(&position.offset, |entry| entry.record.offset.0).ok()?;
        records[at].event.as_ref()
    }

    fn accepted<'a>(&'a self, stream: &str, vector: &Vector) -> impl Iterator<Item = (&'a PartitionId, &'a Entry)> {
        let of_stream = self.partitions.iter().filter(move |(id, _)| &*id.stream == stream);
        of_stream.flat_map(move |(id, partition)| {
            let accepted = partition.records.iter().filter(move |entry| entry.accepted && entry.record.offset < vector.get(id));
            accepted.map(move |entry| (id, entry))
        })
    }
}

/// Whether an event of this id was accepted at most `dedup_within` before the partition's clock.
fn is_known(partition: &Partition, id: &str, clock: Micros) -> bool {
    let within = DEDUP_WITHIN.as_micros() as Micros;
    let of_id = |entry: &Entry| entry.accepted && entry.event.as_ref().is_some_and(|event| event.id == id);
    partition.records.iter().any(|before| of_id(before) && clock - before.record.timestamp <= within)
}

/// There are few users and devices, so that they match.
fn new_event(next_id: &mut u64, rng: &mut StdRng, time: Micros) -> Event {
    *next_id += 1;
    let (user, device) = (rng.random_range(0..9), rng.random_range(0..5));
    Event { id: format!("e{next_id}"), time, user: format!("u{user}"), device: format!("d{device}") }
}

fn entry(partition: &Partition, timestamp: Micros, event: Event, accepted: bool) -> Entry {
    let Event { id, time, user, device } = &event;
    let json = format!(r#"{{"id": "{id}", "ts": "{}", "user_id": "{user}", "device": "{device}"}}"#, format_timestamp(*time));
    Entry { record: record(partition.end, timestamp, &json), event: Some(event), accepted }
}

fn record(offset: i64, timestamp: Micros, json: &str) -> Record {
    Record { offset: Offset(offset), timestamp, key: None, value: Some(Bytes::from(json.to_owned())), headers: Vec::new() }
}
