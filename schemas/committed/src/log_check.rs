//! Whether a log is the one whose records are committed, and whether what was appended to a topic is read.

use std::sync::Arc;

use catalog::{Catalog, CatalogState, DefinitionKind, PartitionRecord};
use definitions::{StreamDefinition, parse};
use types::vector::Offset;
use types::{Error, Result};

use crate::registry::Registry;

/// Refuses a topic that has other records of a stream than the committed ones, or fewer: the speed layer does not read
/// it, so what is appended to it would not be counted. `identity` is that of the topic; `ends` are its partitions and
/// where they end, none if there is no such topic.
///
/// Errors: `Unavailable`, with what is to be done.
pub fn check_topic(state: &CatalogState, stream: &str, identity: &str, ends: &[(i32, Offset)]) -> Result<()> {
    check_partitions(state, stream, ends)?;
    let of_stream =
        |(partition, end): &(i32, Offset)| Some((committed_of(state, stream).find(|known| known.id.partition == *partition)?, *end));
    ends.iter().filter_map(of_stream).try_for_each(|(known, end)| check_partition(known, identity, end))
}

/// Refuses a topic without a partition of which records are committed: it is of another log, or was deleted. A
/// partition that was committed without the identity of a log may be missing from a topic that is there.
///
/// Errors: as [`check_topic`].
pub fn check_partitions(state: &CatalogState, stream: &str, ends: &[(i32, Offset)]) -> Result<()> {
    let partitions: Vec<i32> = ends.iter().map(|(partition, _)| *partition).collect();
    match missing(state, stream, &partitions) {
        Some(known) => Err(about(Error::unavailable("the log lacks a partition of which records are committed"), known)
            .with("help", "point log.url at the log that was read, or restore it; `basestream status` says what else helps")),
        None => Ok(()),
    }
}

/// Refuses a topic that was read and is gone, or that has fewer partitions than were read. Nothing is to be created in
/// its place: the next start would find a log that is shorter than expected, and not that somebody deleted it.
/// `partitions` is how many it has, 0 if there is no such topic.
///
/// Errors: `Input`, with what is to be done.
pub fn check_not_gone(state: &CatalogState, stream: &StreamDefinition, partitions: u32) -> Result<()> {
    let numbers: Vec<i32> = (0..partitions as i32).collect();
    let Some(known) = missing(state, &stream.name, &numbers) else { return Ok(()) };
    let what = match partitions {
        0 => "the topic is gone, and records of it are committed: it is not created anew",
        _ => "the topic has fewer partitions than records are committed of: it was deleted and created again",
    };
    Err(about(Error::input(what).with("topic", &stream.topic), known).with("help", LOST_TOPIC))
}

const LOST_TOPIC: &str = "point log.url at the log that was read, or restore the topic; if it is lost, drop the stream with \
    `apply --prune` and define one under a new name, which reads a topic from its beginning";

/// Checks after an append that the stream reads the topic that was appended to ([`moved_to`]).
///
/// Errors: `Unavailable` if it reads another one by now, and if the catalog does not answer.
pub async fn check_still_read(catalog: &Catalog, known: Option<(&CatalogState, &Registry)>, stream: &StreamDefinition) -> Result<()> {
    match moved_to(catalog, known, stream).await? {
        Some(topic) => {
            Err(Error::unavailable("the stream was defined anew while events were appended to the topic before: send them again")
                .with("stream", &stream.name)
                .with("appended to", &stream.topic)
                .with("topic", topic))
        }
        None => Ok(()),
    }
}

/// Returns the topic that a stream reads by now, if it is another one than this definition says. As long as nothing of
/// a stream is committed it may begin anew in another topic, and a process may not know that yet. `known` is a catalog
/// state with its registry: the catalog is not asked if the topic was final then.
pub async fn moved_to(catalog: &Catalog, known: Option<(&CatalogState, &Registry)>, stream: &StreamDefinition) -> Result<Option<Arc<str>>> {
    let is_final = |(state, registry): (&CatalogState, &Registry)| {
        let live = registry.streams.get(&stream.name);
        state.has_committed(&stream.name) && live.is_some_and(|live| live.definition.topic == stream.topic)
    };
    if known.is_some_and(is_final) {
        return Ok(None);
    }
    let state = catalog.state().await?;
    let live = state.served_or_building(DefinitionKind::Stream, &stream.name);
    let live = live.map(|record| parse::parse_stream(&record.sql)).transpose()?;
    Ok(live.map(|live| live.topic).filter(|topic| *topic != stream.topic))
}

/// The partitions of a stream of which records are committed.
fn committed_of<'s>(state: &'s CatalogState, stream: &'s str) -> impl Iterator<Item = &'s PartitionRecord> {
    state.partitions.values().filter(move |known| *known.id.stream == *stream && known.next_offset > Offset::ZERO)
}

/// Returns a partition of which records are committed and that is not among those of the topic.
fn missing<'s>(state: &'s CatalogState, stream: &'s str, partitions: &[i32]) -> Option<&'s PartitionRecord> {
    committed_of(state, stream)
        .filter(|known| !known.log_identity.is_empty() || partitions.is_empty())
        .find(|known| !partitions.contains(&known.id.partition))
}

fn check_partition(known: &PartitionRecord, identity: &str, end: Offset) -> Result<()> {
    if !known.log_identity.is_empty() && known.log_identity != identity {
        return Err(refusal("the log is not the one that the catalog knows", known)
            .with("found", identity)
            .with("expected", &known.log_identity)
            .with("help", "point log.url at the log that was read; `basestream status` says what else helps"));
    }
    match known.next_offset > end {
        true => Err(refusal("the log is shorter than the catalog expects", known)
            .with("end", end)
            .with("help", "restore the log; `basestream status` says what else helps")),
        false => Ok(()),
    }
}

fn refusal(what: &str, known: &PartitionRecord) -> Error {
    about(Error::unavailable(format!("{what}: what is appended to it would not be counted")), known)
}

fn about(error: Error, known: &PartitionRecord) -> Error {
    error.with("partition", &known.id).with("committed", known.next_offset)
}

#[cfg(test)]
mod tests;
