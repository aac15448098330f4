//! Tables `alert_progress`, `open_alert`, `alert_transition` and `alert_runner`: how far alerts are, what is open, what
//! happened, and what those who run them say.
//!
//! A version of an alert has a row of progress from its first transition on.

use std::sync::Arc;

use super::session::{Packed, Row, Session, SharedNames, values};
use super::{Catalog, meta};
use crate::{
    AlertProgress, AlertRunner, AlertTransition, AlertVersion, CommittedTransition, OpenAlert, OpenAlertCount, OpenAlertName, OpenKey,
    Revision, TransitionPlace, TransitionsAfter,
};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Error, Result, TransitionKind};

/// A page of open keys, in one row.
const OPEN_KEYS: Packed = Packed {
    sqlite: "SELECT json_group_array(json_array(keys, since, last_put_out) ORDER BY keys) AS packed FROM (
            SELECT keys, since, last_put_out FROM open_alert
            WHERE alert = $1 AND version = $2 AND keys > $3 ORDER BY keys LIMIT $4)",
    postgres: "SELECT CAST(coalesce(json_agg(json_build_array(keys, since, last_put_out) ORDER BY keys), '[]') AS TEXT) AS packed FROM (
            SELECT keys, since, last_put_out FROM open_alert
            WHERE alert = $1 AND version = $2 AND keys > $3 ORDER BY keys LIMIT $4) AS page",
};

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

    /// Returns up to `limit` open alerts that come after `after`, ordered by alert, version and key; of one alert, if
    /// it is given.
    pub async fn open_alerts(&self, alert: Option<&str>, after: Option<&OpenAlert>, limit: u32) -> Result<Vec<OpenAlert>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = open(&mut session, alert, after, limit).await;
        session.finish(found).await
    }

    /// Returns up to `limit` open keys of a version, by key, without their records; those that come after `after`, if
    /// it is given.
    pub async fn open_keys(&self, version: &AlertVersion, after: Option<&str>, limit: u32) -> Result<Vec<OpenKey>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = keys_of_version(&mut session, version, after.unwrap_or_default(), limit).await;
        session.finish(found).await
    }

    /// Returns the transitions of an alert from a sequence number on, in their order.
    pub async fn alert_transitions(&self, alert: &str, version: u32, from: i64, limit: u32) -> Result<Vec<AlertTransition>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = transitions(&mut session, alert, version, from, limit).await;
        session.finish(found).await
    }

    /// Returns up to `limit` open alerts of these versions, in their order, those of one version by key, and the
    /// catalog's revision; those that come after `after`, if it is given.
    pub async fn open_alerts_of(
        &self,
        versions: &[AlertVersion],
        after: Option<&OpenAlertName>,
        limit: u32,
    ) -> Result<(Revision, Vec<OpenAlert>)> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = open_of_versions(&mut session, versions, after, limit).await;
        session.finish(found).await
    }

    /// Returns how many keys are open, by alert and version.
    pub async fn open_alert_counts(&self) -> Result<Vec<OpenAlertCount>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = open_counts(&mut session).await;
        session.finish(found).await
    }

    /// Returns what the processes that run alerts say of them, ordered by alert.
    pub async fn alert_runners(&self) -> Result<Vec<AlertRunner>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = all_runners(&mut session).await;
        session.finish(found).await
    }

    /// Returns up to `limit` transitions of all alerts that were committed after a place, in their order: by revision,
    /// then by sequence number.
    pub async fn transitions_after(&self, place: TransitionPlace, limit: u32) -> Result<TransitionsAfter> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = after(&mut session, place, limit).await;
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
pub(super) async fn made_from(session: &mut Session, alert: &str, version: u32, position: &Vector, at: Micros) -> Result<()> {
    let sql = "UPDATE alert_progress SET position = $3, at = $4 WHERE alert = $1 AND version = $2";
    session.execute(sql, values![alert, i64::from(version), position, at]).await.map(drop)
}

/// Takes note that the transitions before this one are in the topic. The next one has no number of theirs, also if the
/// catalog does not know them.
pub(super) async fn published(session: &mut Session, alert: &str, version: u32, before: i64) -> Result<()> {
    let sql = "INSERT INTO alert_progress (alert, version, next_seq, published, position, at) VALUES ($1, $2, $3, $3, '', 0)
        ON CONFLICT (alert, version) DO UPDATE SET published = excluded.published,
            next_seq = CASE WHEN alert_progress.next_seq < excluded.next_seq THEN excluded.next_seq ELSE alert_progress.next_seq END
        WHERE alert_progress.published < excluded.published";
    session.execute(sql, values![alert, i64::from(version), before]).await.map(drop)
}

/// Deletes transitions of an alert that are in its topic and happened before this time. By the clock of events that may
/// be all: a key that ceased and had begun at the time of the last evaluation stays, so that it does not begin at that
/// time once more.
pub(super) async fn forget(session: &mut Session, alert: &str, version: u32, before: Micros, most: u32) -> Result<()> {
    let sql = "DELETE FROM alert_transition WHERE alert = $1 AND version = $2 AND seq IN (
            SELECT seq FROM alert_transition WHERE alert = $1 AND version = $2
                AND seq < (SELECT published FROM alert_progress WHERE alert = $1 AND version = $2)
            ORDER BY seq LIMIT $4)
        AND at < $3
        AND (kind <> $5 OR since < (SELECT at FROM alert_progress WHERE alert = $1 AND version = $2))
        RETURNING revision";
    let values = values![alert, i64::from(version), before, i64::from(most), TransitionKind::Resolved.word()];
    let forgotten = session.rows(sql, values).await?;
    note_forgotten(session, &forgotten).await
}

/// Deletes what there is of a version of an alert: its progress last, so that a later call finds what is left.
///
/// With it, who followed the alert begins again: nothing says that the keys of this version are open no more.
pub(super) async fn remove(session: &mut Session, alert: &str, version: u32, most: u32, revision: Revision) -> Result<()> {
    let version = i64::from(version);
    let open = "DELETE FROM open_alert WHERE alert = $1 AND version = $2 AND keys IN (
            SELECT keys FROM open_alert WHERE alert = $1 AND version = $2 ORDER BY keys LIMIT $3)";
    let transitions = "DELETE FROM alert_transition WHERE alert = $1 AND version = $2 AND seq IN (
            SELECT seq FROM alert_transition WHERE alert = $1 AND version = $2 ORDER BY seq LIMIT $3)
        RETURNING revision";
    let closed = session.execute(open, values![alert, version, i64::from(most)]).await?;
    let forgotten = session.rows(transitions, values![alert, version, i64::from(most)]).await?;
    note_forgotten(session, &forgotten).await?;
    if closed == 0 && forgotten.is_empty() {
        session.execute("DELETE FROM alert_progress WHERE alert = $1 AND version = $2", values![alert, version]).await?;
        session.execute("DELETE FROM alert_runner WHERE alert = $1 AND version = $2", values![alert, version]).await?;
        meta::forget_alerts(session, revision).await?;
    }
    Ok(())
}

/// Takes note of the last of the revisions whose transitions were deleted.
async fn note_forgotten(session: &mut Session, deleted: &[Row]) -> Result<()> {
    let mut last = None;
    for row in deleted {
        last = last.max(Some(row.integer("revision")?));
    }
    match last {
        Some(last) => meta::forget_alerts(session, last).await,
        None => Ok(()),
    }
}

/// Takes note of what a runner reports. The time for which a version was evaluated does not go back: a renewal of the
/// lease may have been under way when a commit noted a later one.
pub(super) async fn put_runner(session: &mut Session, runner: &AlertRunner) -> Result<()> {
    let AlertRunner { alert, version, owner, evaluated_at, at, waits } = runner;
    let sql = "INSERT INTO alert_runner (alert, version, owner, looked_at, at, waits) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (alert) DO UPDATE SET version = excluded.version, owner = excluded.owner, looked_at = excluded.looked_at,
            waits = excluded.waits,
            at = CASE WHEN alert_runner.version = excluded.version AND (excluded.at IS NULL OR alert_runner.at > excluded.at)
                THEN alert_runner.at ELSE excluded.at END";
    let values = values![&**alert, i64::from(*version), owner.as_str(), *evaluated_at, *at, waits.as_deref()];
    session.execute(sql, values).await.map(drop)
}

async fn all_runners(session: &mut Session) -> Result<Vec<AlertRunner>> {
    let sql = "SELECT alert, version, owner, looked_at, at, waits FROM alert_runner ORDER BY alert";
    session.rows(sql, values![]).await?.iter().map(runner).collect()
}

async fn open_counts(session: &mut Session) -> Result<Vec<OpenAlertCount>> {
    let sql = "SELECT alert, version, count(*) AS open FROM open_alert GROUP BY alert, version ORDER BY alert, version";
    let rows = session.rows(sql, values![]).await?;
    rows.iter().map(open_count).collect()
}

fn open_count(row: &Row) -> Result<OpenAlertCount> {
    Ok(OpenAlertCount { alert: row.text("alert")?.into(), version: row.number("version")?, keys: row.integer("open")? })
}

/// One query for each version that is listed: what is open of others is not read.
async fn open_of_versions(
    session: &mut Session,
    versions: &[AlertVersion],
    after: Option<&OpenAlertName>,
    limit: u32,
) -> Result<(Revision, Vec<OpenAlert>)> {
    let revision = meta::revision(session).await?;
    let (mut names, mut found) = (SharedNames::default(), Vec::new());
    let is_left = |alert: &&AlertVersion| after.is_none_or(|last| (&*alert.name, alert.version) >= (&*last.alert, last.version));
    for AlertVersion { name, version } in versions.iter().filter(is_left) {
        let last = after.filter(|last| *last.alert == **name && last.version == *version).map_or("", |last| &*last.keys);
        let left = i64::from(limit) - found.len() as i64;
        if left <= 0 {
            break;
        }
        let sql = "SELECT alert, version, keys, since, last_put_out, seq, record FROM open_alert
            WHERE alert = $1 AND version = $2 AND keys > $3 ORDER BY keys LIMIT $4";
        for row in &session.rows(sql, values![&**name, i64::from(*version), last, left]).await? {
            found.push(open_record(row, &mut names)?);
        }
    }
    Ok((revision, found))
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

async fn keys_of_version(session: &mut Session, of: &AlertVersion, after: &str, limit: u32) -> Result<Vec<OpenKey>> {
    let mut found = Vec::new();
    let add = |(keys, since, last_put_out): (String, Micros, Micros)| {
        found.push(OpenKey { keys, since, last_put_out });
        Ok(())
    };
    session.each(&OPEN_KEYS, values![&*of.name, i64::from(of.version), after, i64::from(limit)], add).await?;
    Ok(found)
}

async fn transitions(session: &mut Session, alert: &str, version: u32, from: i64, limit: u32) -> Result<Vec<AlertTransition>> {
    let sql = "SELECT alert, version, seq, id, kind, keys, since, at, record, record_key FROM alert_transition
        WHERE alert = $1 AND version = $2 AND seq >= $3 ORDER BY seq LIMIT $4";
    let mut names = SharedNames::default();
    let rows = session.rows(sql, values![alert, i64::from(version), from, i64::from(limit)]).await?;
    rows.iter().map(|row| transition(row, &mut names)).collect()
}

async fn after(session: &mut Session, place: TransitionPlace, limit: u32) -> Result<TransitionsAfter> {
    let (revision, forgotten) = (meta::revision(session).await?, meta::alerts_forgotten(session).await?);
    // A revision has transitions of one version of an alert: this order is that of the sequence numbers.
    let sql = "SELECT revision, alert, version, seq, id, kind, keys, since, at, record, record_key FROM alert_transition
        WHERE revision >= $1 AND (revision > $1 OR seq > $2) ORDER BY revision, alert, version, seq LIMIT $3";
    let mut names = SharedNames::default();
    let rows = session.rows(sql, values![place.revision, place.seq, i64::from(limit)]).await?;
    let committed = |row: &Row| Ok(CommittedTransition { revision: row.integer("revision")?, transition: transition(row, &mut names)? });
    Ok(TransitionsAfter { revision, forgotten, transitions: rows.iter().map(committed).collect::<Result<Vec<_>>>()? })
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

fn runner(row: &Row) -> Result<AlertRunner> {
    Ok(AlertRunner {
        alert: Arc::from(row.text("alert")?),
        version: row.number("version")?,
        owner: row.text("owner")?,
        evaluated_at: row.integer_or_null("looked_at")?,
        at: row.integer_or_null("at")?,
        waits: row.text_or_null("waits")?,
    })
}

pub(super) fn sequence_conflict(alert: &str, found: &str, expected: &str) -> Error {
    Error::conflict("the next transition of the alert has another number: another process runs it")
        .with("alert", alert)
        .with("expected", expected)
        .with("found", found)
}
