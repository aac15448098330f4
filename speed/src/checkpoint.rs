//! A checkpoint: files first, under fresh names, durable; then one transaction that records them and advances the partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use schemas::catalog::{Add, Catalog, CheckpointRange, CheckpointRecord, FileRecord, checkpoint_commit};
use schemas::fresh::FreshLayer;
use schemas::storage::{ObjectName, ObjectStorage, Section, SegmentRange, write_archive, write_dead_letters, write_states_object};
use schemas::tiles::Micros;
use schemas::{Result, failpoint};
use uuid::Uuid;

use crate::claim::checkpoint_of;
use crate::unit::Unit;
use crate::views::Views;

/// Writes and commits a unit. `Conflict`: somebody else owns one of its partitions; nothing of it is counted.
pub(crate) async fn commit(
    unit: &mut Unit,
    views: &Views,
    storage: &ObjectStorage,
    catalog: &Catalog,
    worker: &str,
    id: Uuid,
    now: Micros,
) -> Result<CheckpointRecord> {
    let (record, identities) = checkpoint_of(unit.claims(), id, worker, now);
    let marks: Vec<Add> = unit.claims().filter(|claim| claim.has_work()).filter_map(|claim| claim.mark().cloned()).map(Add::Mark).collect();
    failpoint::hit("checkpoint.before_archive")?;
    let mut files = write_events(unit, storage, id).await?;
    failpoint::hit("checkpoint.after_archive")?;
    files.extend(write_dead(unit, storage, id).await?);
    files.extend(write_states(unit, views, storage, id, &record.ranges).await?);
    failpoint::hit("checkpoint.after_states")?;
    let mut commit = checkpoint_commit(record.clone(), files, &identities);
    commit.add.extend(marks);
    catalog.commit_with_retry(commit).await?;
    Ok(record)
}

/// One archive file per stream: its partitions one after the other, each in log order.
async fn write_events(unit: &Unit, storage: &ObjectStorage, id: Uuid) -> Result<Vec<FileRecord>> {
    let mut of_stream: BTreeMap<Arc<str>, (u32, Vec<RecordBatch>)> = BTreeMap::new();
    for held in unit.held.values() {
        if let Some(batches) = unit.events.get(&held.claim.id) {
            let (version, all) = of_stream.entry(held.claim.id.stream.clone()).or_default();
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
