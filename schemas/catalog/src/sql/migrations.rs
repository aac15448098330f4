//! The catalog's formats: each migration is one SQL text that runs on both engines.

use super::engine::Engine;
use super::meta::{self, FORMAT};
use super::session::{Session, values};
use types::{Error, Result};

/// Migration n turns format n - 1 into format n. Never change a released one: add the next.
const MIGRATIONS: [&str; FORMAT as usize] = [
    include_str!("migrations/0001_tables.sql"),
    include_str!("migrations/0002_orphans.sql"),
    include_str!("migrations/0003_replay.sql"),
    include_str!("migrations/0004_damage.sql"),
    include_str!("migrations/0005_strategy.sql"),
    include_str!("migrations/0006_compaction.sql"),
    include_str!("migrations/0007_kept_versions.sql"),
    include_str!("migrations/0008_comparison.sql"),
    include_str!("migrations/0009_tokens.sql"),
    include_str!("migrations/0010_runs_by_end.sql"),
    include_str!("migrations/0011_workers.sql"),
    include_str!("migrations/0012_alerts.sql"),
    include_str!("migrations/0013_parameters.sql"),
    include_str!("migrations/0014_pauses.sql"),
    include_str!("migrations/0015_alert_runners.sql"),
    include_str!("migrations/0016_definitions_by_revision.sql"),
    include_str!("migrations/0017_drafts.sql"),
    include_str!("migrations/0018_beside.sql"),
    include_str!("migrations/0019_commits_by_revision.sql"),
];

/// An arbitrary number: processes that open a catalog at the same time migrate one at a time.
const ADVISORY_LOCK: i64 = 0x6261_7365_7374;

/// Migrates the catalog to [`FORMAT`] and returns its identity. A newer format is refused.
pub(super) async fn migrate(engine: &Engine) -> Result<String> {
    let mut session = engine.write().await?;
    let outcome = migrate_in(&mut session).await;
    session.finish(outcome).await
}

async fn migrate_in(session: &mut Session) -> Result<String> {
    if let Session::Postgres(_) = session {
        session.execute("SELECT pg_advisory_xact_lock($1)", values![ADVISORY_LOCK]).await?;
    }
    meta::create(session).await?;
    let meta = meta::read(session).await?;
    if meta.format > FORMAT {
        return Err(Error::corrupt("the catalog was written by a newer version of basestream; use that version")
            .with("found format", meta.format)
            .with("newest known format", FORMAT));
    }
    for (migration, format) in MIGRATIONS.into_iter().zip(1..).filter(|(_, format)| *format > meta.format) {
        session.script(migration).await?;
        meta::set_format(session, format).await?;
        tracing::info!(format, "catalog migrated");
    }
    Ok(meta.identity)
}
