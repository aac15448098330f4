//! Table `partition`: committed positions. They move by compare-and-advance only, which is the fence of the whole
//! system.

use std::collections::BTreeMap;

use super::session::{Row, Session, values};
use crate::{Advance, GapRecord, PartitionRecord};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

const COLUMNS: &str = "SELECT stream, partition, next_offset, log_identity, clock, max_event_time, complete_to FROM partition";

pub(super) async fn all(session: &mut Session) -> Result<BTreeMap<PartitionId, PartitionRecord>> {
    let rows = session.rows(COLUMNS, values![]).await?;
    rows.iter().map(|row| record(row).map(|partition| (partition.id.clone(), partition))).collect()
}

pub(super) async fn vector(session: &mut Session) -> Result<Vector> {
    Ok(all(session).await?.into_values().map(|partition| (partition.id, partition.next_offset)).collect())
}

pub(super) async fn get(session: &mut Session, id: &PartitionId) -> Result<Option<PartitionRecord>> {
    let sql = "SELECT stream, partition, next_offset, log_identity, clock, max_event_time, complete_to
        FROM partition WHERE stream = $1 AND partition = $2";
    session.row(sql, values![&*id.stream, id.partition]).await?.as_ref().map(record).transpose()
}

/// Moves a partition from `start` to `end`, or fails as a conflict. An absent partition is at 0, or at the end of a gap
/// from 0 that the same commit accepts.
pub(super) async fn advance(session: &mut Session, advance: &Advance, gaps: &[GapRecord]) -> Result<()> {
    if advance.start < Offset::ZERO || advance.end < advance.start {
        return Err(Error::input("a partition cannot advance backwards")
            .with("partition", &advance.partition)
            .with("start", advance.start)
            .with("end", advance.end));
    }
    if update(session, advance).await? == 1 {
        return Ok(());
    }
    match get(session, &advance.partition).await? {
        Some(found) if found.next_offset == advance.start && is_a_gap(advance, gaps) => adopt(session, advance).await,
        Some(found) => Err(refusal(advance, &found)),
        None if advance.start == Offset::ZERO || follows_a_gap(advance, gaps) => insert(session, advance).await,
        None => Err(position_conflict(&advance.partition, advance.start, Offset::ZERO)),
    }
}

async fn update(session: &mut Session, advance: &Advance) -> Result<u64> {
    let sql = "UPDATE partition
        SET next_offset = $4, clock = $6, max_event_time = $7, complete_to = $8,
            log_identity = CASE WHEN $5 = '' THEN log_identity ELSE $5 END
        WHERE stream = $1 AND partition = $2 AND next_offset = $3
            AND (log_identity = $5 OR log_identity = '' OR $5 = '')";
    session.execute(sql, advance_values(advance, Some(advance.start))).await
}

async fn insert(session: &mut Session, advance: &Advance) -> Result<()> {
    let sql = "INSERT INTO partition (stream, partition, next_offset, log_identity, clock, max_event_time, complete_to)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    session.execute(sql, advance_values(advance, None)).await.map(drop)
}

fn advance_values(advance: &Advance, from: Option<Offset>) -> Vec<super::session::Value> {
    let mut values = values![&*advance.partition.stream, advance.partition.partition];
    values.extend(from.map(|from| from.0.into()));
    values.extend(values![advance.end.0, advance.log_identity.as_str(), advance.clock, advance.max_event_time, advance.complete_to,]);
    values
}

/// True if a person accepted exactly this range as lost: then the log may be another one, too.
fn is_a_gap(advance: &Advance, gaps: &[GapRecord]) -> bool {
    gaps.iter().any(|gap| gap.partition == advance.partition && gap.start == advance.start && gap.end == advance.end)
}

async fn adopt(session: &mut Session, advance: &Advance) -> Result<()> {
    let sql = "UPDATE partition SET next_offset = $4, clock = $6, max_event_time = $7, complete_to = $8, log_identity = $5
        WHERE stream = $1 AND partition = $2 AND next_offset = $3";
    session.execute(sql, advance_values(advance, Some(advance.start))).await.map(drop)
}

fn follows_a_gap(advance: &Advance, gaps: &[GapRecord]) -> bool {
    gaps.iter().any(|gap| gap.partition == advance.partition && gap.start == Offset::ZERO && gap.end == advance.start)
}

fn refusal(advance: &Advance, found: &PartitionRecord) -> Error {
    if found.next_offset != advance.start {
        return position_conflict(&advance.partition, advance.start, found.next_offset);
    }
    identity_conflict(&advance.partition, &advance.log_identity, &found.log_identity)
}

pub(super) fn position_conflict(partition: &PartitionId, expected: Offset, found: Offset) -> Error {
    Error::conflict("the partition's committed position has changed; another worker may own it now")
        .with("partition", partition)
        .with("expected offset", expected)
        .with("found offset", found)
}

pub(super) fn identity_conflict(partition: &PartitionId, expected: &str, found: &str) -> Error {
    Error::conflict("the partition's committed position belongs to another log")
        .with("partition", partition)
        .with("expected log", expected)
        .with("found log", found)
}

fn record(row: &Row) -> Result<PartitionRecord> {
    Ok(PartitionRecord {
        id: PartitionId::new(row.text("stream")?, row.number("partition")?),
        next_offset: Offset(row.integer("next_offset")?),
        log_identity: row.text("log_identity")?,
        clock: row.integer_or_null("clock")?,
        max_event_time: row.integer_or_null("max_event_time")?,
        complete_to: row.integer_or_null("complete_to")?,
    })
}
