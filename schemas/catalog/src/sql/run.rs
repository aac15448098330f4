//! Table `run`: requested, running and ended batch runs.

use std::time::Duration;

use uuid::Uuid;

use super::session::{Row, Session, values, word_of};
use crate::decide::GRACE;
use crate::{Comparison, Revision, RunRecord, RunStatus};
use types::tiles::Micros;
use types::{Error, Result, Strategy};

const STATUSES: [(RunStatus, &str); 6] = [
    (RunStatus::Requested, "requested"),
    (RunStatus::Running, "running"),
    (RunStatus::Succeeded, "succeeded"),
    (RunStatus::Failed, "failed"),
    (RunStatus::Dropped, "dropped"),
    (RunStatus::Skipped, "skipped"),
];

/// How many ended runs of each view version a state holds at least.
const RECENT: i64 = 20;

/// A state holds the runs that ended within this time before the newest end. It is more than [`GRACE`]: of a run that a
/// state does not hold, the collector knows that its snapshot was replaced longer ago, however often a view runs.
pub(super) const RECENT_FOR: Duration = Duration::from_secs(11 * 60);
const _: () = assert!(RECENT_FOR.as_secs() > GRACE.as_secs());

/// Of a version that was retired this long before the newest end of a run, a state holds no ended run: its files are
/// gone, and versions come and go for years.
pub(super) const RETIRED_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many runs of each view version the history holds at least, and how many that were compared. The newest
/// recomputation stays too, and the newest that succeeded.
const HISTORY: i64 = 1_000;

/// How long the history has the runs of a version that was retired.
pub(super) const RETIRED_HISTORY: Duration = Duration::from_secs(90 * 24 * 60 * 60);
const _: () = assert!(RETIRED_HISTORY.as_secs() > RETIRED_FOR.as_secs());

/// At most this many of them are forgotten at a time: all other commits wait for it.
const MOST: i64 = 10_000;

/// The columns of a run, and its place in the history.
macro_rules! columns {
    () => {
        "run.id, run.added_revision, run.view_name, run.version, run.status, run.scheduled_for, run.attempt, run.started_at, run.ended_at,
        run.cut, run.strategy, run.events_read, run.bytes_read, run.rows_written, run.bytes_written, run.tiers, run.peak_memory_bytes,
        run.peak_resident_bytes, run.comparison, run.draft, run.beside, run.error"
    };
}

/// The runs of a state: see [`recent`].
pub(super) const RECENT_RUNS: &str = concat!(
    "WITH RECURSIVE views (view_name) AS (
        SELECT min(view_name) FROM run
        UNION ALL
        SELECT (SELECT min(next.view_name) FROM run AS next WHERE next.view_name > views.view_name)
        FROM views WHERE views.view_name IS NOT NULL
    ), all_versions (view_name, version) AS (
        SELECT views.view_name, (SELECT min(first.version) FROM run AS first WHERE first.view_name = views.view_name)
        FROM views WHERE views.view_name IS NOT NULL
        UNION ALL
        SELECT known.view_name, (SELECT min(next.version) FROM run AS next
            WHERE next.view_name = known.view_name AND next.version > known.version)
        FROM all_versions AS known WHERE known.version IS NOT NULL
    ), versions (view_name, version) AS (
        SELECT known.view_name, known.version FROM all_versions AS known WHERE known.version IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM definition WHERE definition.kind = 'view' AND definition.name = known.view_name
                AND definition.version = known.version AND definition.status = 'retired'
                AND definition.since < (SELECT max(ended_at) FROM run) - $3)
    )
    SELECT ",
    columns!(),
    " FROM run WHERE status IN ('requested', 'running')
    UNION
    SELECT ",
    columns!(),
    " FROM versions JOIN run ON run.view_name = versions.view_name AND run.version = versions.version
        AND run.added_revision >= coalesce((SELECT newer.added_revision FROM run AS newer
            WHERE newer.view_name = versions.view_name AND newer.version = versions.version
                AND newer.status NOT IN ('requested', 'running')
            ORDER BY newer.added_revision DESC LIMIT 1 OFFSET $1), 0)
    UNION
    SELECT ",
    columns!(),
    " FROM versions JOIN run ON run.view_name = versions.view_name AND run.version = versions.version
        AND run.differences IS NOT NULL AND run.added_revision = (SELECT max(newer.added_revision) FROM run AS newer
            WHERE newer.view_name = versions.view_name AND newer.version = versions.version AND newer.differences IS NOT NULL)
    UNION
    SELECT ",
    columns!(),
    " FROM versions JOIN run ON run.view_name = versions.view_name AND run.version = versions.version
        AND run.strategy = 'full' AND run.added_revision = (SELECT max(newer.added_revision) FROM run AS newer
            WHERE newer.view_name = versions.view_name AND newer.version = versions.version AND newer.strategy = 'full')
    UNION
    SELECT ",
    columns!(),
    " FROM versions JOIN run ON run.view_name = versions.view_name AND run.version = versions.version
        AND run.strategy = 'full' AND run.status = 'succeeded' AND run.added_revision = (SELECT max(newer.added_revision)
            FROM run AS newer WHERE newer.view_name = versions.view_name AND newer.version = versions.version
                AND newer.strategy = 'full' AND newer.status = 'succeeded')
    UNION
    SELECT ",
    columns!(),
    " FROM run WHERE ended_at >= (SELECT max(ended_at) FROM run) - $2
    ORDER BY added_revision DESC, id"
);

/// Returns, newest first:
/// - the requested and running runs,
/// - of each view version that was not retired long ago ([`RETIRED_FOR`]) the newest ended ones, the newest that was
///   compared with what incremental runs had kept, the newest recomputation, which says whether there is something to
///   go on with, and the newest that succeeded, from which on `full_every` counts,
/// - the runs of the last minutes ([`RECENT_FOR`]).
///
/// What it costs follows these versions and minutes, not the history.
pub(super) async fn recent(session: &mut Session) -> Result<Vec<RunRecord>> {
    let values = values![RECENT - 1, RECENT_FOR.as_micros() as i64, RETIRED_FOR.as_micros() as i64];
    session.rows(RECENT_RUNS, values).await?.iter().map(record).collect()
}

/// Forgets ended runs of a version that are older than its newest ones.
pub(super) async fn forget_old(session: &mut Session, run: &RunRecord) -> Result<()> {
    let sql = "DELETE FROM run WHERE view_name = $1 AND version = $2 AND status NOT IN ('requested', 'running')
        AND (differences IS NULL OR added_revision < (SELECT newer.added_revision FROM run AS newer
            WHERE newer.view_name = $1 AND newer.version = $2 AND newer.differences IS NOT NULL
            ORDER BY newer.added_revision DESC LIMIT 1 OFFSET $3))
        AND (strategy IS NULL OR strategy <> 'full' OR added_revision < (SELECT max(newer.added_revision) FROM run AS newer
            WHERE newer.view_name = $1 AND newer.version = $2 AND newer.strategy = 'full'))
        AND (strategy IS NULL OR strategy <> 'full' OR status <> 'succeeded' OR added_revision < (SELECT max(newer.added_revision)
            FROM run AS newer WHERE newer.view_name = $1 AND newer.version = $2 AND newer.strategy = 'full' AND newer.status = 'succeeded'))
        AND added_revision < (SELECT newer.added_revision FROM run AS newer WHERE newer.view_name = $1 AND newer.version = $2
            ORDER BY newer.added_revision DESC LIMIT 1 OFFSET $3)";
    session.execute(sql, values![&*run.view, i64::from(run.version), HISTORY - 1]).await.map(|_| ())
}

/// Forgets ended runs of versions that were retired long before `now`, however few these have.
pub(super) async fn forget_retired(session: &mut Session, now: Micros) -> Result<()> {
    let sql = "DELETE FROM run WHERE id IN (
            SELECT one.id FROM definition CROSS JOIN run AS one
            WHERE definition.kind = 'view' AND definition.status = 'retired' AND definition.since < $1
                AND one.view_name = definition.name AND one.version = definition.version AND one.ended_at IS NOT NULL
            LIMIT $2)";
    let before = now.saturating_sub(RETIRED_HISTORY.as_micros() as Micros);
    session.execute(sql, values![before, MOST]).await.map(drop)
}

pub(super) async fn status(session: &mut Session, id: Uuid) -> Result<Option<RunStatus>> {
    let row = session.row("SELECT status FROM run WHERE id = $1", values![id]).await?;
    row.map(|row| row.word("status", &STATUSES)).transpose()
}

/// Returns the history, newest first.
pub(super) async fn history(session: &mut Session, view: Option<&str>, limit: i64) -> Result<Vec<RunRecord>> {
    let sql = "SELECT id, view_name, version, status, scheduled_for, attempt, started_at, ended_at, cut, strategy,
            events_read, bytes_read, rows_written, bytes_written, tiers, peak_memory_bytes, peak_resident_bytes, comparison, draft,
            beside, error
        FROM run WHERE $1 = '' OR view_name = $1 ORDER BY added_revision DESC, id LIMIT $2";
    session.rows(sql, values![view.unwrap_or_default(), limit]).await?.iter().map(record).collect()
}

/// Stores a run; storing it again keeps its place in the history.
pub(super) async fn put(session: &mut Session, run: &RunRecord, revision: Revision) -> Result<()> {
    let sql =
        "INSERT INTO run (id, added_revision, view_name, version, status, scheduled_for, attempt, started_at, ended_at, cut, strategy,
            events_read, rows_written, bytes_written, peak_memory_bytes, error, bytes_read, tiers, peak_resident_bytes, comparison,
            differences, draft, beside)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
        ON CONFLICT (id) DO UPDATE SET view_name = excluded.view_name, version = excluded.version, status = excluded.status,
            scheduled_for = excluded.scheduled_for, attempt = excluded.attempt, started_at = excluded.started_at,
            ended_at = excluded.ended_at, cut = excluded.cut, strategy = excluded.strategy, events_read = excluded.events_read,
            rows_written = excluded.rows_written, bytes_written = excluded.bytes_written,
            peak_memory_bytes = excluded.peak_memory_bytes, error = excluded.error, bytes_read = excluded.bytes_read,
            tiers = excluded.tiers, peak_resident_bytes = excluded.peak_resident_bytes, comparison = excluded.comparison,
            differences = excluded.differences, draft = excluded.draft, beside = excluded.beside";
    let comparison = run.comparison.as_ref().map(serde_json::to_string).transpose()?;
    let draft = run.draft.as_ref().map(serde_json::to_string).transpose()?;
    let values = values![
        run.id,
        revision,
        &*run.view,
        run.version,
        word_of(&run.status, &STATUSES)?,
        run.scheduled_for,
        run.attempt,
        run.started_at,
        run.ended_at,
        run.cut.as_ref(),
        run.strategy.map(Strategy::name),
        run.events_read,
        run.rows_written,
        run.bytes_written,
        run.peak_memory_bytes,
        run.error.as_deref(),
        run.bytes_read,
        run.tiers,
        run.peak_resident_bytes,
        comparison.as_deref(),
        run.comparison.as_ref().and_then(Comparison::found),
        draft.as_deref(),
        run.beside,
    ];
    session.execute(sql, values).await.map(drop)
}

fn record(row: &Row) -> Result<RunRecord> {
    Ok(RunRecord {
        id: row.parse("id")?,
        view: row.text("view_name")?.into(),
        version: row.number("version")?,
        status: row.word("status", &STATUSES)?,
        scheduled_for: row.integer_or_null("scheduled_for")?,
        attempt: row.number("attempt")?,
        started_at: row.integer_or_null("started_at")?,
        ended_at: row.integer_or_null("ended_at")?,
        cut: row.parse_or_null("cut")?,
        strategy: row.text_or_null("strategy")?.map(|name| strategy(&name)).transpose()?,
        events_read: row.integer("events_read")?,
        rows_written: row.integer("rows_written")?,
        bytes_written: row.integer("bytes_written")?,
        peak_memory_bytes: row.integer("peak_memory_bytes")?,
        bytes_read: row.integer("bytes_read")?,
        tiers: row.integer("tiers")?,
        peak_resident_bytes: row.integer("peak_resident_bytes")?,
        comparison: row.text_or_null("comparison")?.map(|text| serde_json::from_str(&text)).transpose()?,
        draft: row.text_or_null("draft")?.map(|text| serde_json::from_str(&text)).transpose()?,
        beside: row.flag("beside")?,
        error: row.text_or_null("error")?,
    })
}

fn strategy(name: &str) -> Result<Strategy> {
    let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
    known.ok_or_else(|| Error::corrupt(format!("unknown strategy \"{name}\" of a run")))
}
