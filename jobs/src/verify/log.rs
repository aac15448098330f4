//! `verify --log`: checks that every record of the log is accounted for. Each record before the committed offset is
//! archived unchanged, in the dead letters unchanged, or a duplicate of an event that was archived before it.
//!
//! No counters are used: the log's records are read again, as far back as the log goes, and so are the files.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, GapRecord};
use committed::log_check::check_partitions;
use definitions::{StreamDefinition, parse};
use engine::events::Decoder;
use event_log::{Log, PartitionBounds, TopicPartition};
use serde::Serialize;
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

use super::Verifier;
use crate::pin::Pin;

mod files;

use files::{Raw, RecordFiles};

/// How many offsets are compared at once; bounds the memory.
const CHUNK_OFFSETS: i64 = 500_000;
const READ_RECORDS: usize = 10_000;
/// How many offsets of each kind a report lists.
const SHOWN: usize = 20;

/// The result for one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogReport {
    pub stream: Arc<str>,
    pub partition: i32,
    /// The compared offsets, from the log's begin to the committed offset.
    pub start: Offset,
    pub end: Offset,
    /// Records that the log has in this range.
    pub records: u64,
    pub archived: u64,
    pub dead_lettered: u64,
    pub duplicates: u64,
    /// False if the archive keeps no raw records (`keep_raw = false`): only their offsets were compared.
    pub raw_compared: bool,
    /// Only in the log, at offsets that were accepted as lost.
    pub lost: Offsets,
    /// The accepted ranges, each with its reason.
    pub gaps: Vec<String>,
    /// In the archive or the dead letters, and deleted by a log that is compacted.
    pub compacted: u64,
    /// Only in the log.
    pub missing: Offsets,
    /// In the archive or the dead letters but not in the log, or in both of them.
    pub extra: Offsets,
    /// Stored with a different key, value or headers.
    pub different: Offsets,
}

/// A number of offsets, and the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Offsets {
    pub count: u64,
    pub first: Vec<Offset>,
}

impl Offsets {
    fn add(&mut self, offset: i64) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(Offset(offset));
        }
    }
}

impl LogReport {
    /// Whether the files have exactly the records that they should have.
    pub fn is_equal(&self) -> bool {
        self.missing.count + self.extra.count + self.different.count == 0
    }
}

/// Compares every partition of `streams` (if empty: of all streams). `now` is the wall clock, for the lease that keeps
/// the files.
pub async fn verify_log(verifier: &Verifier, log: &dyn Log, streams: &[Arc<str>], now: Micros) -> Result<Vec<LogReport>> {
    let pin = Pin::take(&verifier.catalog, "verify", now).await?;
    let outcome = verify_pinned(verifier, log, streams).await;
    pin.release().await;
    outcome
}

async fn verify_pinned(verifier: &Verifier, log: &dyn Log, streams: &[Arc<str>]) -> Result<Vec<LogReport>> {
    let state = verifier.catalog.state().await?;
    let mut reports = Vec::new();
    for record in state.live(DefinitionKind::Stream) {
        let is_active =
            state.served_or_building(DefinitionKind::Stream, &record.name).is_some_and(|active| active.version == record.version);
        if !is_active || !(streams.is_empty() || streams.contains(&record.name)) {
            continue;
        }
        let stream = Arc::new(parse::parse_stream(&record.sql)?);
        let bounds = log.bounds(&stream.topic).await?;
        let ends: Vec<(i32, Offset)> = bounds.iter().map(|bounds| (bounds.partition, bounds.end)).collect();
        check_partitions(&state, &stream.name, &ends)?;
        for bounds in bounds {
            reports.push(verify_what_is_left(verifier, log, &state, &stream, bounds).await?);
        }
    }
    Ok(reports)
}

/// Compares one partition, from a later offset on where records expire before they are read: other partitions may take
/// long.
async fn verify_what_is_left(
    verifier: &Verifier,
    log: &dyn Log,
    state: &CatalogState,
    stream: &Arc<StreamDefinition>,
    mut bounds: PartitionBounds,
) -> Result<LogReport> {
    loop {
        let expired = match verify_partition(verifier, log, state, stream, &bounds).await {
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            outcome => return outcome,
        };
        let now = log.bounds(&stream.topic).await?.into_iter().find(|now| now.partition == bounds.partition);
        match now.filter(|now| now.begin > bounds.begin) {
            Some(now) => bounds = now,
            None => return Err(expired),
        }
    }
}

/// Compares one partition of a stream.
pub async fn verify_partition(
    verifier: &Verifier,
    log: &dyn Log,
    state: &CatalogState,
    stream: &Arc<StreamDefinition>,
    bounds: &PartitionBounds,
) -> Result<LogReport> {
    let committed = state.vector().get(&PartitionId::new(stream.name.clone(), bounds.partition));
    let mut report = LogReport {
        stream: stream.name.clone(),
        partition: bounds.partition,
        start: bounds.begin,
        end: committed.max(bounds.begin),
        records: 0,
        archived: 0,
        dead_lettered: 0,
        duplicates: 0,
        raw_compared: stream.keep_raw,
        lost: Offsets::default(),
        gaps: Vec::new(),
        compacted: 0,
        missing: Offsets::default(),
        extra: Offsets::default(),
        different: Offsets::default(),
    };
    let gaps: Vec<&GapRecord> =
        state.gaps.iter().filter(|gap| gap.partition.stream == stream.name && gap.partition.partition == bounds.partition).collect();
    report.gaps = gaps.iter().map(|gap| format!("{}..{}: {}", gap.start, gap.end, gap.reason)).collect();
    let files = RecordFiles::new(&verifier.storage, state, stream, bounds.partition);
    let source = TopicPartition { topic: stream.topic.clone(), partition: bounds.partition };
    let reader = PartitionReader { log, source, position: bounds.begin, end: report.end, waiting: None };
    let compacted_before = if log.is_compacted(&stream.topic).await? { bounds.end } else { Offset::ZERO };
    let (mut from, end) = (report.start, report.end);
    let mut comparison = PartitionComparison { files, reader, compacted_before, stream, gaps, report };
    while from < end {
        let to = end.min(Offset(from.0.saturating_add(CHUNK_OFFSETS)));
        comparison.compare_chunk(from, to).await?;
        from = to;
    }
    Ok(comparison.report)
}

/// The comparison of one partition's records with its files.
struct PartitionComparison<'a> {
    files: RecordFiles<'a>,
    reader: PartitionReader<'a>,
    /// Of the log's records before it, any may have been deleted.
    compacted_before: Offset,
    stream: &'a StreamDefinition,
    gaps: Vec<&'a GapRecord>,
    report: LogReport,
}

impl PartitionComparison<'_> {
    async fn compare_chunk(&mut self, from: Offset, to: Offset) -> Result<()> {
        let report = &mut self.report;
        let mut archived = self.files.archived(from, to, report).await?;
        let mut dead = self.files.dead_letters(from, to, report).await?;
        for offset in archived.keys().filter(|offset| dead.contains_key(offset)) {
            report.extra.add(*offset);
        }
        let mut unaccounted = BTreeMap::new();
        let decoder = Decoder::new(Arc::new(with_id_alone(self.stream)))?;
        while let Some(record) = self.reader.next_before(to).await? {
            report.records += 1;
            let offset = record.offset.0;
            let (kept, compared) = match (archived.remove(&offset), dead.remove(&offset)) {
                (Some(raw), _) => {
                    report.archived += 1;
                    (raw, self.stream.keep_raw)
                }
                (None, Some(raw)) => {
                    report.dead_lettered += 1;
                    (raw, true)
                }
                (None, None) => {
                    let id = decoder.decode(record.value.as_deref()).ok().and_then(|event| event.id().map(|id| id.into_owned()));
                    unaccounted.insert(offset, id);
                    continue;
                }
            };
            if compared && kept != Raw::from_record(&record) {
                report.different.add(offset);
            }
        }
        for offset in archived.into_keys().chain(dead.into_keys()) {
            match Offset(offset) < self.compacted_before {
                true => report.compacted += 1,
                false => report.extra.add(offset),
            }
        }
        self.settle_duplicates(unaccounted).await
    }

    /// A record found nowhere is a duplicate if an event with its id is archived at a lower offset of its partition.
    async fn settle_duplicates(&mut self, unaccounted: BTreeMap<i64, Option<String>>) -> Result<()> {
        let is_lost = |offset: i64| self.gaps.iter().any(|gap| (gap.start.0..gap.end.0).contains(&offset));
        let ids: HashSet<&str> = unaccounted.values().flatten().map(String::as_str).collect();
        let newest = unaccounted.last_key_value().map_or(0, |(offset, _)| *offset);
        let first = if ids.is_empty() { Default::default() } else { self.files.first_offsets(&ids, Offset(newest)).await? };
        for (offset, id) in &unaccounted {
            match id.as_ref().and_then(|id| first.get(id)) {
                Some(accepted) if accepted < offset => self.report.duplicates += 1,
                _ if is_lost(*offset) => self.report.lost.add(*offset),
                _ => self.report.missing.add(*offset),
            }
        }
        Ok(())
    }
}

/// The stream with the columns that its first version has too. Others may have changed since a record was decided,
/// which then does not fit them.
fn with_id_alone(stream: &StreamDefinition) -> StreamDefinition {
    let is_kept = |name: &str| name == stream.event_time || [&stream.id, &stream.key].into_iter().flatten().any(|kept| kept == name);
    let columns = stream.columns.iter().filter(|column| is_kept(&column.name)).cloned().collect();
    StreamDefinition { columns, ..stream.clone() }
}

/// Reads the log's records of one partition in order, up to `end`.
struct PartitionReader<'a> {
    log: &'a dyn Log,
    source: TopicPartition,
    position: Offset,
    end: Offset,
    waiting: Option<std::vec::IntoIter<Record>>,
}

impl PartitionReader<'_> {
    /// Returns the next record below `to`; a record at or past `to` is kept for its chunk.
    async fn next_before(&mut self, to: Offset) -> Result<Option<Record>> {
        loop {
            if let Some(records) = &mut self.waiting {
                match records.as_slice().first() {
                    Some(record) if record.offset >= to => return Ok(None),
                    Some(_) => return Ok(records.next()),
                    None => self.waiting = None,
                }
            }
            if self.position >= to.min(self.end) {
                return Ok(None);
            }
            let fetched = self.log.read(&self.source, self.position, READ_RECORDS).await?;
            if fetched.position <= self.position && fetched.at_end {
                // The log is shorter than the committed offset: what the files hold of the rest is reported as extra.
                self.position = self.end;
                return Ok(None);
            }
            if fetched.position <= self.position {
                let message = "the log returned no record at a committed offset: try again";
                return Err(Error::unavailable(message).with("partition", &self.source).with("offset", self.position));
            }
            self.position = fetched.position;
            self.waiting = Some(fetched.records.into_iter());
        }
    }
}
