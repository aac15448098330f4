//! Tables `alert_progress`, `open_alert` and `alert_transition`: how far alerts are, what is open, and what happened.
//!
//! A version of an alert has a row of progress from its first transition on.

use std::sync::Arc;

use super::Catalog;
use super::session::{Row, Session, SharedNames, values};
use crate::{AlertProgress, AlertTransition, CommittedTransition, OpenAlert, Revision};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, TransitionKind};

/// The words of kinds, as they are read back.
fn kinds() -> [(TransitionKind, &'static str); 3] {
    TransitionKind::ALL.map(|kind| (kind, kind.word()))
}

impl Catalog {
    /// Returns how far each version of each alert is, ordered by name and version.
    pub async fn alert_progress(&self) -> Result<Vec<AlertProgress>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = all_progress(&mut session).await;
        session.finish(found).await
    }

    /// Returns up to `limit` open alerts that come after `after`, ordered by alert, version and key; of one alert, if it is
    /// given.
    pub async fn open_alerts(&self, alert: Option<&str>, after: Option<&OpenAlert>, limit: u32) -> Result<Vec<OpenAlert>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = open(&mut session, alert, after, limit).await;
        session.finish(found).await
    }

    /// Returns the transitions of an alert from a sequence number on, in their order.
    pub async fn alert_transitions(&self, alert: &str, version: u32, from: i64, limit: u32) -> Result<Vec<AlertTransition>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = transitions(&mut session, (alert, version), from, limit).await;
        session.finish(found).await
    }

    /// Returns the transitions of all alerts that were committed after this one, in their order: by revision, then by alert,
    /// version and sequence number.
    pub async fn transitions_after(
        &self,
        (revision, alert, version, seq): (Revision, &str, u32, i64),
        limit: u32,
    ) -> Result<Vec<CommittedTransition>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = after(&mut session, (revision, alert, version, seq), limit).await;
        session.finish(found).await
    }
}

async fn all_progress(session: &mut Session) -> Result<Vec<AlertProgress>> {
    let sql = "SELECT alert, version, next_seq, published, position, at FROM alert_progress ORDER BY alert, version";
    session.rows(sql, values![]).await?.iter().map(progress).collect()
}

/// The sequence number of the next transition.
pub(super) async fn next_seq(session: &mut Session, alert: &str, version: u32) -> Result<i64> {
    let sql = "SELECT next_seq FROM alert_progress WHERE alert = $1 AND version = $2";
    let found = session.row(sql, values![alert, i64::from(version)]).await?;
    found.map_or(Ok(0), |row| row.integer("next_seq"))
}

/// Adds a transition, and opens, updates or closes the open alert of its key.
pub(super) async fn add(session: &mut Session, transition: &AlertTransition, revision: Revision) -> Result<()> {
    let AlertTransition { alert, version, seq, id, kind, keys, since, at, record, record_key } = transition;
    let (alert, version, keys) = (&**alert, i64::from(*version), keys.as_str());
    let sql = "INSERT INTO alert_progress (alert, version, next_seq, published, position, at) VALUES ($1, $2, $3, 0, '', 0)
        ON CONFLICT (alert, version) DO UPDATE SET next_seq = excluded.next_seq WHERE alert_progress.next_seq = excluded.next_seq - 1";
    let moved = session.execute(sql, values![alert, version, seq + 1]).await?;
    if moved != 1 {
        return Err(sequence_conflict(alert, "another", &seq.to_string()));
    }
    let sql = "INSERT INTO alert_transition (alert, version, seq, revision, id, kind, keys, since, at, record, record_key)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let record_text = record.as_deref().unwrap_or_default();
    let of_record =
        values![alert, version, *seq, revision, id.as_str(), kind.word(), keys, *since, *at, record_text, record_key.as_deref()];
    session.execute(sql, of_record).await?;
    let (sql, of_open) = match kind {
        TransitionKind::Resolved => {
            ("DELETE FROM open_alert WHERE alert = $1 AND version = $2 AND keys = $3", values![alert, version, keys])
        }
        _ => (
            "INSERT INTO open_alert (alert, version, keys, since, last_put_out, seq, record) VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (alert, version, keys) DO UPDATE SET since = excluded.since, last_put_out = excluded.last_put_out,
                seq = excluded.seq, record = excluded.record",
            values![alert, version, keys, *since, *at, *seq, record_text],
        ),
    };
    session.execute(sql, of_open).await.map(drop)
}

/// Takes note of what the last transitions were made from.
pub(super) async fn made_from(session: &mut Session, (alert, version): (&str, u32), position: &Vector, at: Micros) -> Result<()> {
    let sql = "UPDATE alert_progress SET position = $3, at = $4 WHERE alert = $1 AND version = $2";
    session.execute(sql, values![alert, i64::from(version), position, at]).await.map(drop)
}

/// Takes note that the transitions before this one are in the topic.
pub(super) async fn published(session: &mut Session, alert: &str, version: u32, before: i64) -> Result<()> {
    let sql = "UPDATE alert_progress SET published = $3 WHERE alert = $1 AND version = $2 AND published < $3";
    session.execute(sql, values![alert, i64::from(version), before]).await.map(drop)
}

/// Deletes transitions of an alert that are in its topic and happened before this time.
pub(super) async fn forget(session: &mut Session, alert: &str, version: u32, before: Micros, most: u32) -> Result<()> {
    let sql = "DELETE FROM alert_transition WHERE alert = $1 AND version = $2 AND seq IN (
            SELECT seq FROM alert_transition WHERE alert = $1 AND version = $2
                AND seq < (SELECT published FROM alert_progress WHERE alert = $1 AND version = $2)
            ORDER BY seq LIMIT $4)
        AND at < $3";
    session.execute(sql, values![alert, i64::from(version), before, i64::from(most)]).await.map(drop)
}

/// Deletes what there is of a version of an alert: its progress last, so that a later call finds what is left.
pub(super) async fn remove(session: &mut Session, alert: &str, version: u32, most: u32) -> Result<()> {
    let version = i64::from(version);
    let open = "DELETE FROM open_alert WHERE alert = $1 AND version = $2 AND keys IN (
            SELECT keys FROM open_alert WHERE alert = $1 AND version = $2 ORDER BY keys LIMIT $3)";
    let transitions = "DELETE FROM alert_transition WHERE alert = $1 AND version = $2 AND seq IN (
            SELECT seq FROM alert_transition WHERE alert = $1 AND version = $2 ORDER BY seq LIMIT $3)";
    let removed = session.execute(open, values![alert, version, i64::from(most)]).await?
        + session.execute(transitions, values![alert, version, i64::from(most)]).await?;
    if removed == 0 {
        session.execute("DELETE FROM alert_progress WHERE alert = $1 AND version = $2", values![alert, version]).await?;
    }
    Ok(())
}

async fn open(session: &mut Session, alert: Option<&str>, after: Option<&OpenAlert>, limit: u32) -> Result<Vec<OpenAlert>> {
    let (name, version, keys) = after.map_or(("", -1, ""), |after| (&*after.alert, i64::from(after.version), &*after.keys));
    let (sql, values) = match alert {
        Some(alert) => (
            "SELECT alert, version, keys, since, last_put_out, seq, record FROM open_alert
            WHERE alert = $1 AND (version, keys) > ($2, $3) ORDER BY version, keys LIMIT $4",
            values![alert, version, keys, i64::from(limit)],
        ),
        None => (
            "SELECT alert, version, keys, since, last_put_out, seq, record FROM open_alert
            WHERE (alert, version, keys) > ($1, $2, $3) ORDER BY alert, version, keys LIMIT $4",
            values![name, version, keys, i64::from(limit)],
        ),
    };
    let mut names = SharedNames::default();
    session.rows(sql, values).await?.iter().map(|row| open_record(row, &mut names)).collect()
}

async fn transitions(session: &mut Session, (alert, version): (&str, u32), from: i64, limit: u32) -> Result<Vec<AlertTransition>> {
    let sql = "SELECT alert, version, seq, id, kind, keys, since, at, record, record_key FROM alert_transition
        WHERE alert = $1 AND version = $2 AND seq >= $3 ORDER BY seq LIMIT $4";
    let mut names = SharedNames::default();
    let rows = session.rows(sql, values![alert, i64::from(version), from, i64::from(limit)]).await?;
    rows.iter().map(|row| transition(row, &mut names)).collect()
}

async fn after(
    session: &mut Session,
    (revision, alert, version, seq): (Revision, &str, u32, i64),
    limit: u32,
) -> Result<Vec<CommittedTransition>> {
    let sql = "SELECT revision, alert, version, seq, id, kind, keys, since, at, record, record_key FROM alert_transition
        WHERE (revision, alert, version, seq) > ($1, $2, $3, $4) ORDER BY revision, alert, version, seq LIMIT $5";
    let mut names = SharedNames::default();
    let rows = session.rows(sql, values![revision, alert, i64::from(version), seq, i64::from(limit)]).await?;
    let committed = |row: &Row| Ok(CommittedTransition { revision: row.integer("revision")?, transition: transition(row, &mut names)? });
    rows.iter().map(committed).collect()
}

fn transition(row: &Row, names: &mut SharedNames) -> Result<AlertTransition> {
    Ok(AlertTransition {
        alert: names.share(row.text("alert")?),
        version: row.number("version")?,
        seq: row.integer("seq")?,
        id: row.text("id")?,
        kind: row.word("kind", &kinds())?,
        keys: row.text("keys")?,
        since: row.integer("since")?,
        at: row.integer("at")?,
        record: Some(row.text("record")?).filter(|record| !record.is_empty()),
        record_key: row.text_or_null("record_key")?,
    })
}

fn open_record(row: &Row, names: &mut SharedNames) -> Result<OpenAlert> {
    Ok(OpenAlert {
        alert: names.share(row.text("alert")?),
        version: row.number("version")?,
        keys: row.text("keys")?,
        since: row.integer("since")?,
        last_put_out: row.integer("last_put_out")?,
        seq: row.integer("seq")?,
        record: row.text("record")?,
    })
}

fn progress(row: &Row) -> Result<AlertProgress> {
    Ok(AlertProgress {
        alert: Arc::from(row.text("alert")?),
        version: row.number("version")?,
        next_seq: row.integer("next_seq")?,
        published: row.integer("published")?,
        position: row.parse("position")?,
        at: row.integer("at")?,
    })
}

pub(super) fn sequence_conflict(alert: &str, found: &str, expected: &str) -> Error {
    Error::conflict("the next transition of the alert has another number: another process runs it")
        .with("alert", alert)
        .with("expected", expected)
        .with("found", found)
}
