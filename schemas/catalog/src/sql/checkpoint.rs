//! Tables `checkpoint` and `checkpoint_range`: what each checkpoint did in each of its partitions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde::Deserialize;
use uuid::Uuid;

use super::session::{Packed, Session, SharedNames, packed, values};
use crate::decide::ledger_difference;
use crate::{CheckpointRange, CheckpointRecord, Revision};
use types::tiles::Micros;
use types::uuid_text;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

/// From the checkpoints to their ranges, each by its index: what a reader pays follows what is new. A join from the
/// left keeps SQLite from going through all ranges instead.
pub(super) const SINCE: Packed = packed!(
    "checkpoint.id, worker, committed_at, revision, stream, partition, start_offset, end_offset,
        archived, duplicate, dead_lettered, absent, clock, max_event_time, complete_to",
    "FROM checkpoint LEFT JOIN checkpoint_range ON checkpoint_range.checkpoint = checkpoint.id",
    "checkpoint",
    "written_revision"
);

/// What [`SINCE`] packs: a checkpoint and one of its ranges. A checkpoint without ranges has nulls in its place.
#[derive(Deserialize)]
struct CheckpointRow {
    #[serde(with = "uuid_text")]
    id: Uuid,
    worker: String,
    committed_at: Micros,
    revision: Revision,
    stream: Option<String>,
    partition: Option<i32>,
    start: Option<i64>,
    end: Option<i64>,
    archived: Option<i64>,
    duplicate: Option<i64>,
    dead_lettered: Option<i64>,
    absent: Option<i64>,
    clock: Option<Micros>,
    max_event_time: Option<Micros>,
    complete_to: Option<Micros>,
}

/// Returns the checkpoints written after `revision`, in no order.
pub(super) async fn since(session: &mut Session, revision: Revision) -> Result<Vec<CheckpointRecord>> {
    let mut checkpoints: HashMap<Uuid, CheckpointRecord> = HashMap::new();
    let mut names = SharedNames::default();
    let take = |mut row: CheckpointRow| {
        let range = row.stream.take().and_then(|stream| range(&row, names.share(stream)));
        let checkpoint = match checkpoints.entry(row.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(record(row)),
        };
        checkpoint.ranges.extend(range);
        Ok(())
    };
    session.each(&SINCE, values![revision], take).await?;
    let mut checkpoints: Vec<CheckpointRecord> = checkpoints.into_values().collect();
    for checkpoint in &mut checkpoints {
        // Not sorted by the database: its text order depends on its locale.
        checkpoint.ranges.sort_by(|a, b| (&a.partition, a.start).cmp(&(&b.partition, b.start)));
        checkpoint.ranges.shrink_to_fit();
    }
    Ok(checkpoints)
}

/// Stores a new checkpoint under the revision of its commit.
pub(super) async fn add(session: &mut Session, checkpoint: &CheckpointRecord, revision: Revision) -> Result<()> {
    insert(session, checkpoint, revision, revision).await
}

/// Stores a checkpoint under the revision of an earlier commit: the one that its record names.
pub(super) async fn add_in_place(session: &mut Session, checkpoint: &CheckpointRecord, revision: Revision) -> Result<()> {
    insert(session, checkpoint, checkpoint.revision, revision).await
}

/// `revision` is its place in the order of commits, `written` the revision that writes it.
async fn insert(session: &mut Session, checkpoint: &CheckpointRecord, revision: Revision, written: Revision) -> Result<()> {
    if let Some((range, counted)) = ledger_difference(checkpoint) {
        return Err(Error::internal("the counts of a checkpoint do not add up to its offsets")
            .with("partition", &range.partition)
            .with("start", range.start)
            .with("end", range.end)
            .with("counted", counted));
    }
    let sql = "INSERT INTO checkpoint (id, worker, committed_at, revision, written_revision) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (id) DO NOTHING";
    let values = values![checkpoint.id, checkpoint.worker.as_str(), checkpoint.committed_at, revision, written];
    if session.execute(sql, values).await? != 1 {
        return Err(Error::conflict("the checkpoint is already in the catalog").with("checkpoint", checkpoint.id));
    }
    for range in &checkpoint.ranges {
        add_range(session, checkpoint.id, range).await?;
    }
    Ok(())
}

pub(super) async fn exists(session: &mut Session, id: Uuid) -> Result<bool> {
    Ok(session.row("SELECT id FROM checkpoint WHERE id = $1", values![id]).await?.is_some())
}

/// Removes checkpoints and their ranges, in one statement however many they are, and returns how many there were.
/// `list` is a JSON array of their ids.
pub(super) async fn remove(session: &mut Session, list: &str) -> Result<usize> {
    let sql = match session {
        Session::Sqlite(_) => "DELETE FROM checkpoint WHERE id IN (SELECT value FROM json_each($1))",
        Session::Postgres(_) => "DELETE FROM checkpoint WHERE id IN (SELECT json_array_elements_text($1::json))",
    };
    session.execute(sql, values![list]).await.map(|removed| removed as usize)
}

/// The same for checkpoints that another one takes the place of: a conflict unless all of the `count` are there.
pub(super) async fn remove_compacted(session: &mut Session, list: &str, count: usize) -> Result<()> {
    let removed = remove(session, list).await?;
    if removed == count {
        return Ok(());
    }
    Err(Error::conflict("a checkpoint to be compacted is no longer in the catalog").with("expected", count).with("found", removed))
}

async fn add_range(session: &mut Session, checkpoint: Uuid, range: &CheckpointRange) -> Result<()> {
    let sql = "INSERT INTO checkpoint_range (checkpoint, stream, partition, start_offset, end_offset,
            archived, duplicate, dead_lettered, absent, clock, max_event_time, complete_to)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let values = values![
        checkpoint,
        &*range.partition.stream,
        range.partition.partition,
        range.start.0,
        range.end.0,
        range.archived,
        range.duplicate,
        range.dead_lettered,
        range.absent,
        range.clock,
        range.max_event_time,
        range.complete_to,
    ];
    session.execute(sql, values).await.map(drop)
}

/// Of any of its rows; the ranges come from all of them.
fn record(row: CheckpointRow) -> CheckpointRecord {
    let CheckpointRow { id, worker, committed_at, revision, .. } = row;
    CheckpointRecord { id, worker, committed_at, revision, ranges: Vec::new() }
}

fn range(row: &CheckpointRow, stream: Arc<str>) -> Option<CheckpointRange> {
    Some(CheckpointRange {
        partition: PartitionId::new(stream, row.partition?),
        start: Offset(row.start?),
        end: Offset(row.end?),
        archived: row.archived?,
        duplicate: row.duplicate?,
        dead_lettered: row.dead_lettered?,
        absent: row.absent?,
        clock: row.clock,
        max_event_time: row.max_event_time,
        complete_to: row.complete_to,
    })
}
