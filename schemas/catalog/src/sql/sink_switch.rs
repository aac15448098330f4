//! Tables `sink_switch` and `sink_claim`: from which offset on which version of a sink makes the records, and which
//! worker decides that.
//!
//! From a claim on no worker before it adds a switch, or commits that it decided an event of the output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::Catalog;
use super::session::{Row, Session, SharedNames, Value, values};
use crate::{SinkClaim, SinkRange, SinkSwitch};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};

/// How many switches of a partition of a sink are kept at least. Workers read the last one; those before are history.
const HISTORY: i64 = 1_000;

/// The last switch of each of these sinks, streams and partitions: by the claims, so that what it takes follows their
/// number and not that of the switches.
macro_rules! newest {
    ($sinks:literal, $streams:literal, $partitions:literal) => {
        concat!(
            "SELECT one.sink, one.stream, one.partition, log_identity, from_offset, version, paused, at
            FROM sink_claim CROSS JOIN sink_switch AS one
            WHERE sink_claim.sink IN (",
            $sinks,
            ") AND sink_claim.stream IN (",
            $streams,
            ") AND sink_claim.partition IN (",
            $partitions,
            ") AND one.sink = sink_claim.sink AND one.stream = sink_claim.stream AND one.partition = sink_claim.partition
                AND one.seq = (SELECT MAX(seq) FROM sink_switch AS other WHERE other.sink = sink_claim.sink
                    AND other.stream = sink_claim.stream AND other.partition = sink_claim.partition)"
        )
    };
}

/// The ranges between switches, the newest first. In another log, offsets begin anew.
macro_rules! ranges {
    ($of:literal) => {
        concat!(
            "SELECT one.sink, one.stream, one.partition, one.log_identity, one.from_offset, one.version, one.paused, one.at,
                CASE WHEN later.log_identity = one.log_identity THEN later.from_offset END AS to_offset
            FROM sink_switch AS one LEFT JOIN sink_switch AS later
                ON later.sink = one.sink AND later.stream = one.stream AND later.partition = one.partition AND later.seq = one.seq + 1
            WHERE (later.seq IS NULL OR later.log_identity <> one.log_identity OR later.from_offset <> one.from_offset)",
            $of,
            " ORDER BY one.at DESC, one.sink, one.stream, one.partition, one.seq DESC LIMIT $1"
        )
    };
}

impl Catalog {
    /// Returns up to `limit` ranges of events between the switches of a sink, or of all sinks, the newest first. Ranges
    /// without an offset are left out.
    pub async fn sink_ranges(&self, sink: Option<&str>, limit: u32) -> Result<Vec<SinkRange>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = ranges(&mut session, sink, limit).await;
        session.finish(found).await
    }

    /// Returns a sink that has a switch in a stream, dropped ones too; `None` if no sink has decided an event of it.
    pub async fn switched_sink(&self, stream: &str) -> Result<Option<String>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = first_sink(&mut session, stream).await;
        session.finish(found).await
    }

    /// Returns the last switch of each partition of the sinks of these claims. Fails with [`ErrorKind::Conflict`] if
    /// another worker has claimed one of them since.
    ///
    /// [`ErrorKind::Conflict`]: types::ErrorKind::Conflict
    pub async fn newest_sink_switches(&self, claims: &[SinkClaim]) -> Result<Vec<SinkSwitch>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = newest(&mut session, claims).await;
        session.finish(found).await
    }
}

pub(super) async fn claim(session: &mut Session, claim: &SinkClaim) -> Result<()> {
    let SinkClaim { sink, partition, claim } = claim;
    let sql = "INSERT INTO sink_claim (sink, stream, partition, claim) VALUES ($1, $2, $3, $4)
        ON CONFLICT (sink, stream, partition) DO UPDATE SET claim = excluded.claim";
    session.execute(sql, values![&**sink, &*partition.stream, i64::from(partition.partition), *claim]).await.map(drop)
}

/// In one statement, however many they are, which reads the claims of these sinks and partitions.
pub(super) async fn check_claims(session: &mut Session, claims: &[SinkClaim]) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => {
            "SELECT sink, stream, partition, claim FROM sink_claim WHERE sink IN (SELECT value FROM json_each($1))
            AND stream IN (SELECT value FROM json_each($2)) AND partition IN (SELECT value FROM json_each($3))"
        }
        Session::Postgres(_) => {
            "SELECT sink, stream, partition, claim FROM sink_claim WHERE sink IN (SELECT json_array_elements_text($1::json))
            AND stream IN (SELECT json_array_elements_text($2::json))
            AND partition IN (SELECT json_array_elements_text($3::json)::bigint)"
        }
    };
    let mut names = SharedNames::default();
    let mut known: BTreeMap<(Arc<str>, PartitionId), Uuid> = BTreeMap::new();
    for row in session.rows(sql, lists(claims)?).await? {
        let partition = PartitionId::new(names.share(row.text("stream")?), row.number("partition")?);
        known.insert((names.share(row.text("sink")?), partition), row.parse("claim")?);
    }
    for SinkClaim { sink, partition, claim } in claims {
        let found = known.get(&(sink.clone(), partition.clone()));
        if found != Some(claim) {
            return Err(Error::conflict("another worker has taken over the records of the sink")
                .with("sink", sink)
                .with("partition", partition)
                .with("expected claim", claim)
                .with("found claim", found.map_or_else(|| "none".to_owned(), Uuid::to_string)));
        }
    }
    Ok(())
}

/// The sinks, the streams and the partitions of claims, each as a JSON array.
fn lists(claims: &[SinkClaim]) -> Result<Vec<Value>> {
    let sinks: BTreeSet<&str> = claims.iter().map(|claim| &*claim.sink).collect();
    let streams: BTreeSet<&str> = claims.iter().map(|claim| &*claim.partition.stream).collect();
    let partitions: BTreeSet<i32> = claims.iter().map(|claim| claim.partition.partition).collect();
    let (sinks, streams, partitions) =
        (serde_json::to_string(&sinks)?, serde_json::to_string(&streams)?, serde_json::to_string(&partitions)?);
    Ok(values![sinks.as_str(), streams.as_str(), partitions.as_str()])
}

/// Adds a switch after the last one of its partition, whose offset is not after its own. Forgets those long before it.
pub(super) async fn add(session: &mut Session, switch: &SinkSwitch, now: Micros) -> Result<()> {
    let SinkSwitch { sink, partition, log_identity, from, version, paused, .. } = switch;
    let sql = "SELECT seq, log_identity, from_offset FROM sink_switch WHERE sink = $1 AND stream = $2 AND partition = $3
        ORDER BY seq DESC LIMIT 1";
    let last = session.row(sql, values![&**sink, &*partition.stream, i64::from(partition.partition)]).await?;
    let seq = match last {
        None => 0,
        Some(last) => {
            let last_from = last.integer("from_offset")?;
            if last.text("log_identity")? == *log_identity && last_from > from.0 {
                return Err(Error::internal("a switch of a sink before its last one")
                    .with("sink", sink)
                    .with("partition", partition)
                    .with("found", from)
                    .with("expected at least", last_from));
            }
            last.integer("seq")? + 1
        }
    };
    let sql = "INSERT INTO sink_switch (sink, stream, partition, seq, log_identity, from_offset, version, paused, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let number = i64::from(partition.partition);
    let values = values![&**sink, &*partition.stream, number, seq, log_identity.as_str(), from.0, *version, *paused, now];
    session.execute(sql, values).await?;
    let sql = "DELETE FROM sink_switch WHERE sink = $1 AND stream = $2 AND partition = $3 AND seq <= $4";
    session.execute(sql, values![&**sink, &*partition.stream, number, seq - HISTORY]).await.map(drop)
}

/// The first by name of the sinks that have a switch in a stream.
pub(super) async fn first_sink(session: &mut Session, stream: &str) -> Result<Option<String>> {
    let sql = "SELECT sink FROM sink_switch WHERE stream = $1 ORDER BY sink LIMIT 1";
    session.row(sql, values![stream]).await?.map(|row| row.text("sink")).transpose()
}

async fn ranges(session: &mut Session, sink: Option<&str>, limit: u32) -> Result<Vec<SinkRange>> {
    let rows = match sink {
        Some(sink) => session.rows(ranges!(" AND one.sink = $2"), values![limit, sink]).await?,
        None => session.rows(ranges!(""), values![limit]).await?,
    };
    let mut names = SharedNames::default();
    let range = |row: &Row| Ok(SinkRange { switch: record(row, &mut names)?, to: row.integer_or_null("to_offset")?.map(Offset) });
    rows.iter().map(range).collect()
}

async fn newest(session: &mut Session, claims: &[SinkClaim]) -> Result<Vec<SinkSwitch>> {
    check_claims(session, claims).await?;
    let sql = match session {
        Session::Sqlite(_) => {
            newest!("SELECT value FROM json_each($1)", "SELECT value FROM json_each($2)", "SELECT value FROM json_each($3)")
        }
        Session::Postgres(_) => newest!(
            "SELECT json_array_elements_text($1::json)",
            "SELECT json_array_elements_text($2::json)",
            "SELECT json_array_elements_text($3::json)::bigint"
        ),
    };
    let mut names = SharedNames::default();
    session.rows(sql, lists(claims)?).await?.iter().map(|row| record(row, &mut names)).collect()
}

fn record(row: &Row, names: &mut SharedNames) -> Result<SinkSwitch> {
    Ok(SinkSwitch {
        sink: names.share(row.text("sink")?),
        partition: PartitionId::new(names.share(row.text("stream")?), row.number("partition")?),
        log_identity: row.text("log_identity")?,
        from: Offset(row.integer("from_offset")?),
        version: row.number("version")?,
        paused: row.flag("paused")?,
        at: row.integer("at")?,
    })
}
