//! Table `snapshot`: the snapshot from which each view version is served.

use super::session::{Row, Session, values};
use crate::SnapshotRecord;
use types::Result;

pub(super) async fn all(session: &mut Session) -> Result<Vec<SnapshotRecord>> {
    let sql = "SELECT view_name, version, run, cut, manifest, published_at FROM snapshot ORDER BY view_name, version";
    session.rows(sql, values![]).await?.iter().map(record).collect()
}

pub(super) async fn get(session: &mut Session, view: &str, version: u32) -> Result<Option<SnapshotRecord>> {
    let sql = "SELECT view_name, version, run, cut, manifest, published_at FROM snapshot WHERE view_name = $1 AND version = $2";
    session.row(sql, values![view, version]).await?.as_ref().map(record).transpose()
}

pub(super) async fn put(session: &mut Session, snapshot: &SnapshotRecord) -> Result<()> {
    let sql = "INSERT INTO snapshot (view_name, version, run, cut, manifest, published_at) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (view_name, version) DO UPDATE SET run = excluded.run, cut = excluded.cut, manifest = excluded.manifest,
            published_at = excluded.published_at";
    let values =
        values![&*snapshot.view, snapshot.version, snapshot.run, &snapshot.cut, snapshot.manifest.as_str(), snapshot.published_at,];
    session.execute(sql, values).await.map(drop)
}

pub(super) async fn remove(session: &mut Session, view: &str, version: u32) -> Result<()> {
    session.execute("DELETE FROM snapshot WHERE view_name = $1 AND version = $2", values![view, version]).await.map(drop)
}

fn record(row: &Row) -> Result<SnapshotRecord> {
    Ok(SnapshotRecord {
        view: row.text("view_name")?.into(),
        version: row.number("version")?,
        run: row.parse("run")?,
        cut: row.parse("cut")?,
        manifest: row.text("manifest")?,
        published_at: row.integer("published_at")?,
    })
}
