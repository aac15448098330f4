//! Tables `checkpoint` and `checkpoint_range`: what each checkpoint did in each of its partitions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::session::{Row, Session, SharedNames, values};
use crate::decide::ledger_difference;
use crate::{CheckpointRange, CheckpointRecord, Revision};
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

/// From the checkpoints to their ranges, each by its index: what a reader pays follows what is new. A join from the
/// left keeps SQLite from going through all ranges instead.
pub(super) const SINCE: &str = "SELECT checkpoint.id, worker, committed_at, revision, stream, partition, start_offset, end_offset,
        archived, duplicate, dead_lettered, absent, clock, max_event_time, complete_to
    FROM checkpoint LEFT JOIN checkpoint_range ON checkpoint_range.checkpoint = checkpoint.id WHERE written_revision > $1";

/// Returns the checkpoints written after `revision`, in no order.
pub(super) async fn since(session: &mut Session, revision: Revision) -> Result<Vec<CheckpointRecord>> {
    let mut checkpoints: HashMap<Uuid, CheckpointRecord> = HashMap::new();
    let mut names = SharedNames::default();
    let take = |row: Row| {
        let id = row.parse("id")?;
        let checkpoint = match checkpoints.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(record(id, &row)?),
        };
        if let Some(stream) = row.text_or_null("stream")? {
            checkpoint.ranges.push(range(&row, names.share(stream))?);
        }
        Ok(())
    };
    session.each(SINCE, values![revision], take).await?;
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
    insert(session, checkpoint, (revision, revision)).await
}

/// Stores a new checkpoint in the place of an earlier commit: the one that its record names.
pub(super) async fn add_in_place(session: &mut Session, checkpoint: &CheckpointRecord, revision: Revision) -> Result<()> {
    insert(session, checkpoint, (checkpoint.revision, revision)).await
}

/// `revisions`: its place in the order of commits, and the revision that writes it.
async fn insert(session: &mut Session, checkpoint: &CheckpointRecord, revisions: (Revision, Revision)) -> Result<()> {
    if let Some((range, counted)) = ledger_difference(checkpoint) {
        return Err(Error::internal("the counts of a checkpoint do not add up to its offsets")
            .with("partition", &range.partition)
            .with("start", range.start)
            .with("end", range.end)
            .with("counted", counted));
    }
    let sql = "INSERT INTO checkpoint (id, worker, committed_at, revision, written_revision) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (id) DO NOTHING";
    let values = values![checkpoint.id, checkpoint.worker.as_str(), checkpoint.committed_at, revisions.0, revisions.1];
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

/// Removes a checkpoint and its ranges.
pub(super) async fn remove(session: &mut Session, id: Uuid) -> Result<()> {
    session.execute("DELETE FROM checkpoint WHERE id = $1", values![id]).await.map(drop)
}

/// Removes checkpoints and their ranges in one statement. `list` is a JSON array of their `count` ids.
pub(super) async fn remove_all(session: &mut Session, list: &str, count: usize) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => "DELETE FROM checkpoint WHERE id IN (SELECT value FROM json_each($1))",
        Session::Postgres(_) => "DELETE FROM checkpoint WHERE id IN (SELECT json_array_elements_text($1::json))",
    };
    let removed = session.execute(sql, values![list]).await?;
    if removed as usize == count {
        return Ok(());
    }
    Err(Error::conflict("a checkpoint that is compacted is not in the catalog (any more)").with("expected", count).with("found", removed))
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
fn record(id: Uuid, row: &Row) -> Result<CheckpointRecord> {
    Ok(CheckpointRecord {
        id,
        worker: row.text("worker")?,
        committed_at: row.integer("committed_at")?,
        revision: row.integer("revision")?,
        ranges: Vec::new(),
    })
}

fn range(row: &Row, stream: Arc<str>) -> Result<CheckpointRange> {
    Ok(CheckpointRange {
        partition: PartitionId::new(stream, row.number("partition")?),
        start: Offset(row.integer("start_offset")?),
        end: Offset(row.integer("end_offset")?),
        archived: row.integer("archived")?,
        duplicate: row.integer("duplicate")?,
        dead_lettered: row.integer("dead_lettered")?,
        absent: row.integer("absent")?,
        clock: row.integer_or_null("clock")?,
        max_event_time: row.integer_or_null("max_event_time")?,
        complete_to: row.integer_or_null("complete_to")?,
    })
}
