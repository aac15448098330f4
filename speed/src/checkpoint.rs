//! A checkpoint: files first, under fresh names, durable; then one transaction that records them and advances the partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use schemas::Result;
use schemas::catalog::{Catalog, CheckpointRange, CheckpointRecord, FileRecord, checkpoint_commit};
use schemas::fresh::FreshLayer;
use schemas::storage::{ObjectName, ObjectStorage, Section, SegmentRange, write_archive, write_dead_letters, write_states_object};
use schemas::tiles::Micros;
use schemas::vector::PartitionId;
use uuid::Uuid;

use crate::unit::{Held, Unit};
use crate::views::Views;

/// Writes and commits a unit. `Conflict`: somebody else owns one of its partitions; nothing of it is counted.
pub(crate) async fn commit(
    unit: &mut Unit,
    views: &Views,
    storage: &ObjectStorage,
    catalog: &Catalog,
    worker: &str,
    now: Micros,
) -> Result<CheckpointRecord> {
    let id = Uuid::now_v7();
    let moved: Vec<&Held> = unit.held.values().filter(|held| held.position > held.start).collect();
    let ranges: Vec<CheckpointRange> = moved.iter().map(|held| range_of(held)).collect();
    let identities: BTreeMap<PartitionId, String> = moved.iter().map(|held| (held.id.clone(), held.identity.clone())).collect();
    let mut files = write_events(unit, storage, id).await?;
    files.extend(write_dead(unit, storage, id).await?);
    files.extend(write_states(unit, views, storage, id, &ranges).await?);
    let record = CheckpointRecord { id, worker: worker.to_owned(), committed_at: now, revision: 0, ranges };
    catalog.commit_with_retry(checkpoint_commit(record.clone(), files, &identities)).await?;
    Ok(record)
}

fn range_of(held: &Held) -> CheckpointRange {
    let counted = held.counts.archived + held.counts.duplicate + held.counts.dead_lettered;
    CheckpointRange {
        partition: held.id.clone(),
        start: held.start,
        end: held.position,
        archived: held.counts.archived,
        duplicate: held.counts.duplicate,
        dead_lettered: held.counts.dead_lettered,
        absent: held.position.0 - held.start.0 - counted,
        clock: held.decider.clock(),
        max_event_time: held.decider.max_event_time(),
        complete_to: held.complete_to,
    }
}

/// One archive file per stream: its partitions one after the other, each in log order.
async fn write_events(unit: &Unit, storage: &ObjectStorage, id: Uuid) -> Result<Vec<FileRecord>> {
    let mut of_stream: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)> = BTreeMap::new();
    for held in unit.held.values() {
        if let Some(batches) = unit.events.get(&held.id) {
            let (version, all) = of_stream.entry(held.id.stream.clone()).or_default();
            *version = held.definition_version;
            all.extend(batches.iter().cloned());
        }
    }
    let mut files = Vec::new();
    for (stream, (version, batches)) in of_stream {
        files.push(write_archive(storage, &stream, id, version, batches).await?);
    }
    Ok(files)
}

async fn write_dead(unit: &mut Unit, storage: &ObjectStorage, id: Uuid) -> Result<Vec<FileRecord>> {
    let mut files = Vec::new();
    for (stream, letters) in &mut unit.dead_letters {
        if letters.bytes() > 0 {
            files.push(write_dead_letters(storage, stream, id, vec![letters.finish()?]).await?);
        }
    }
    Ok(files)
}

/// One states object with a section for every live view that reads these streams, also when the view got no event. A view that
/// failed on one gets none: a reader rebuilds what it does not find.
async fn write_states(
    unit: &Unit,
    views: &Views,
    storage: &ObjectStorage,
    id: Uuid,
    ranges: &[CheckpointRange],
) -> Result<Vec<FileRecord>> {
    let mut streams: Vec<Arc<str>> = ranges.iter().map(|range| range.partition.stream.clone()).collect();
    streams.dedup();
    let merged = FreshLayer::merge(&unit.layers, &views.plans())?;
    let sections: Vec<Section> = views
        .reading(&streams)
        .filter_map(|view| Some((view, merged.states.get(&(view.name.clone(), view.version))?)))
        .map(|(view, rows)| Section {
            view: view.name.to_string(),
            version: view.version,
            stamp: view.plan.stamp.clone(),
            schema: view.plan.state_schema().clone(),
            batches: vec![rows.batch().clone()],
        })
        .collect();
    if sections.is_empty() {
        return Ok(Vec::new());
    }
    let segment_ranges =
        ranges.iter().map(|range| SegmentRange { partition: range.partition.clone(), start: range.start, end: range.end }).collect();
    Ok(vec![write_states_object(storage, &ObjectName::States { checkpoint: id }, sections, segment_ranges).await?])
}
