//! Ensures one replay per stream at a time, and finds what an earlier replay appended before it died.
//!
//! A replay holds a lease whose pin is the log's end at its start. The lease of a replay that died stays behind. The
//! next replay reads the log from that pin and recognises, by their header, the records that were appended but not
//! remembered.

use std::sync::Arc;
use std::time::Duration;

use catalog::{Add, Catalog, Commit, DEAD_LETTER_REPLAYS, Expect, LeaseRecord, ReplayedDeadLetters};
use definitions::StreamDefinition;
use event_log::{Log, TopicPartition};
use types::record::Record;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};
use uuid::Uuid;

use super::REPLAYED_FROM;
use crate::installation::now;

const LEASE: Duration = Duration::from_secs(30);
const RENEW_AFTER_US: Micros = 10_000_000;
const READ_RECORDS: usize = 8_192;

/// The right to replay a stream's dead letters.
pub(super) struct ReplayTurn {
    catalog: Catalog,
    lease: LeaseRecord,
    renewed_at: Micros,
}

impl ReplayTurn {
    /// Takes the lease and, if an earlier replay died, first remembers what it appended; returns how many records that
    /// was.
    ///
    /// Errors: `Conflict` if another process replays the stream.
    pub(super) async fn take(catalog: &Catalog, log: &dyn Log, stream: &StreamDefinition, owner: &str) -> Result<(ReplayTurn, usize)> {
        let name = format!("{DEAD_LETTER_REPLAYS}{}", stream.name);
        let ends = ends(log, stream).await?;
        let left = catalog.state().await?.leases.iter().find(|lease| lease.name == name).cloned();
        let unfinished = left.as_ref().and_then(|lease| lease.pin.clone());
        let pin = unfinished.clone().unwrap_or_else(|| ends.clone());
        let Some(lease) = catalog.acquire_lease(&name, owner, LEASE, now(), Some(pin)).await? else {
            // It may have been taken since the state was read.
            let holder = catalog.leases(&name).await?.into_iter().find(|lease| lease.name == name);
            let holder = holder.map_or_else(|| "unknown".to_owned(), |lease| lease.owner);
            return Err(Error::conflict(format!("the dead letters of \"{}\" are being replayed by another process", stream.name))
                .with("process", holder)
                .with("help", "try again when it is done; the lease of one that died ends within 30 s"));
        };
        let mut turn = ReplayTurn { catalog: catalog.clone(), lease, renewed_at: now() };
        let Some(from) = unfinished else { return Ok((turn, 0)) };
        let found = appended_since(log, stream, &from, &mut turn).await?;
        let count = found.len();
        tracing::info!(stream = %stream.name, records = count, "an earlier replay stopped before it finished; what it \
            appended is not sent again");
        turn.remember(found).await?;
        turn.lease.pin = Some(ends);
        turn.renew().await?;
        Ok((turn, count))
    }

    /// Must be called before each append. Errors: `Conflict` if the lease has expired meanwhile.
    pub(super) async fn keep(&mut self) -> Result<()> {
        if now().saturating_sub(self.renewed_at) < RENEW_AFTER_US {
            return Ok(());
        }
        self.renew().await
    }

    async fn renew(&mut self) -> Result<()> {
        let at = now();
        self.lease = self.catalog.renew_lease(&self.lease, LEASE, at).await?;
        self.renewed_at = at;
        Ok(())
    }

    /// Records in the catalog that these dead letters are in the log again.
    pub(super) async fn remember(&self, replayed: Vec<ReplayedDeadLetters>) -> Result<()> {
        if replayed.is_empty() {
            return Ok(());
        }
        let LeaseRecord { name, owner, epoch, .. } = self.lease.clone();
        // The lease may have expired, but it must still be this one: the records are in the log.
        let expect = vec![Expect::Lease { name, owner, epoch, now: Micros::MIN }];
        let add = replayed.into_iter().map(Add::ReplayedDeadLetters).collect();
        self.catalog.commit_with_retry(Commit { id: Uuid::now_v7(), expect, add, ..Commit::default() }).await.map(drop)
    }

    /// Releases the lease once everything that was appended is remembered.
    pub(super) async fn finish(self) -> Result<()> {
        self.catalog.release_lease(&self.lease).await
    }

    /// Lets the next replay start at once. The pin is kept for it, because it is unknown what was appended.
    pub(super) async fn give_up(self) {
        let _ = self.catalog.renew_lease(&self.lease, Duration::ZERO, now()).await;
    }
}

async fn ends(log: &dyn Log, stream: &StreamDefinition) -> Result<Vector> {
    let bounds = log.bounds(&stream.topic).await?;
    Ok(bounds.into_iter().map(|bounds| (PartitionId::new(stream.name.clone(), bounds.partition), bounds.end)).collect())
}

/// Returns the dead letters that the log's records from `from` on were made from.
async fn appended_since(
    log: &dyn Log,
    stream: &StreamDefinition,
    from: &Vector,
    turn: &mut ReplayTurn,
) -> Result<Vec<ReplayedDeadLetters>> {
    let mut found = Vec::new();
    for bounds in log.bounds(&stream.topic).await? {
        let partition = PartitionId::new(stream.name.clone(), bounds.partition);
        let source = TopicPartition { topic: stream.topic.clone(), partition: bounds.partition };
        let mut at = from.get(&partition).max(bounds.begin);
        while at < bounds.end {
            let fetched = log.read(&source, at, READ_RECORDS).await?;
            found.extend(fetched.records.iter().filter_map(|record| origin(record, stream)));
            if fetched.position <= at {
                break;
            }
            at = fetched.position;
            turn.keep().await?;
        }
    }
    Ok(found)
}

fn origin(record: &Record, stream: &StreamDefinition) -> Option<ReplayedDeadLetters> {
    let (_, value) = record.headers.iter().find(|(name, _)| name == REPLAYED_FROM)?;
    let (partition, offset) = parse_origin(std::str::from_utf8(value).ok()?, &stream.topic)?;
    let partition = PartitionId::new(Arc::clone(&stream.name), partition);
    Some(ReplayedDeadLetters { partition, start: offset, end: offset.next(), replayed_at: record.timestamp })
}

/// Parses `topic/partition/offset` of this topic.
fn parse_origin(text: &str, topic: &str) -> Option<(i32, Offset)> {
    let (partition, offset) = text.strip_prefix(topic)?.strip_prefix('/')?.split_once('/')?;
    Some((partition.parse().ok()?, Offset(offset.parse().ok()?)))
}
