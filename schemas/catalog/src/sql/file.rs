//! Table `file`: the files of the object storage that the catalog names. Column `doomed`: marked for deletion.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::damage;
use super::session::{Packed, Session, SharedNames, packed, value_of, values, word_of};
use crate::Revision;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::uuid_text;
use types::{Error, Result};
use uuid::Uuid;

const KINDS: [(FileKind, &str); 6] = [
    (FileKind::Archive, "archive"),
    (FileKind::DeadLetters, "dead_letters"),
    (FileKind::States, "states"),
    (FileKind::Snapshot, "snapshot"),
    (FileKind::Manifest, "manifest"),
    (FileKind::Superseded, "superseded"),
];

pub(super) const SINCE: Packed = packed!(
    "path, kind, checkpoint, run, subject, bytes, row_count, checksum, min_event_time, max_event_time, doomed",
    "FROM file",
    "file",
    "revision"
);

/// What [`SINCE`] packs.
#[derive(Deserialize)]
struct FileRow {
    path: String,
    kind: String,
    #[serde(with = "uuid_text::optional")]
    checkpoint: Option<Uuid>,
    #[serde(with = "uuid_text::optional")]
    run: Option<Uuid>,
    subject: Option<String>,
    bytes: i64,
    rows: i64,
    checksum: u32,
    min_event_time: Option<Micros>,
    max_event_time: Option<Micros>,
    doomed: i64,
}

/// Returns the files written or marked for deletion after `revision`, in no order.
pub(super) async fn since(session: &mut Session, revision: Revision) -> Result<Vec<FileRecord>> {
    let (mut files, mut names) = (Vec::new(), SharedNames::default());
    let take = |row: FileRow| {
        files.push(record(row, &mut names)?);
        Ok(())
    };
    session.each(&SINCE, values![revision], take).await?;
    Ok(files)
}

/// Stores a file. A path that is marked for deletion stays so: naming it is a conflict.
pub(super) async fn put(session: &mut Session, file: &FileRecord, revision: Revision) -> Result<()> {
    let sql = "INSERT INTO file (path, kind, checkpoint, run, subject, bytes, row_count, checksum, min_event_time, max_event_time, doomed,
            revision)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        ON CONFLICT (path) DO UPDATE SET kind = excluded.kind, checkpoint = excluded.checkpoint, run = excluded.run,
            subject = excluded.subject, bytes = excluded.bytes, row_count = excluded.row_count, checksum = excluded.checksum,
            min_event_time = excluded.min_event_time, max_event_time = excluded.max_event_time, doomed = excluded.doomed,
            revision = excluded.revision
        WHERE file.doomed = 0";
    let values = values![
        file.path.as_str(),
        word_of(&file.kind, &KINDS)?,
        file.checkpoint,
        file.run,
        file.subject.as_deref(),
        file.bytes,
        file.rows,
        file.checksum,
        file.min_event_time,
        file.max_event_time,
        file.marked_for_deletion,
        revision,
    ];
    match session.execute(sql, values).await? {
        0 => Err(marked_for_deletion_conflict(&file.path)),
        _ => Ok(()),
    }
}

/// Gives files to a run, in one statement however many there are.
pub(super) async fn take_over(session: &mut Session, run: Uuid, paths: &[String], revision: Revision) -> Result<()> {
    let list = serde_json::to_string(paths)?;
    let sql = match session {
        Session::Sqlite(_) => "UPDATE file SET run = $1, revision = $2 WHERE doomed = 0 AND path IN (SELECT value FROM json_each($3))",
        Session::Postgres(_) => {
            "UPDATE file SET run = $1, revision = $2 WHERE doomed = 0 AND path IN (SELECT json_array_elements_text($3::json))"
        }
    };
    let taken = session.execute(sql, values![run, revision, list.as_str()]).await?;
    if taken as usize == paths.len() {
        return Ok(());
    }
    Err(Error::conflict("the catalog no longer names a file that a run carries over: another process collected it")
        .with("run", run)
        .with("expected files", paths.len())
        .with("found", taken))
}

/// Supersedes the archive and dead-letter files of checkpoints that `compacted` takes the place of, in one statement.
/// `list` is a JSON array of the checkpoints' ids; they have this many files.
pub(super) async fn supersede(
    session: &mut Session,
    list: &str,
    files: usize,
    compacted: Uuid,
    commit: Uuid,
    revision: Revision,
) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => {
            "UPDATE file SET kind = 'superseded', checkpoint = $1, run = $2, revision = $3
            WHERE doomed = 0 AND kind IN ('archive', 'dead_letters') AND checkpoint IN (SELECT value FROM json_each($4))"
        }
        Session::Postgres(_) => {
            "UPDATE file SET kind = 'superseded', checkpoint = $1, run = $2, revision = $3
            WHERE doomed = 0 AND kind IN ('archive', 'dead_letters') AND checkpoint IN (SELECT json_array_elements_text($4::json))"
        }
    };
    let superseded = session.execute(sql, values![compacted, commit, revision, list]).await?;
    if superseded as usize == files {
        return Ok(());
    }
    Err(Error::conflict("the files of the checkpoints that are compacted changed meanwhile")
        .with("expected files", files)
        .with("found", superseded))
}

/// Returns how many files are marked for deletion, and when the first one was. The commit that marked it is remembered
/// for a day.
pub(super) async fn marked_for_deletion(session: &mut Session) -> Result<Option<(i64, Micros)>> {
    let sql = "SELECT COUNT(*) AS files, MIN(COALESCE(commits.committed_at, 0)) AS since
        FROM file LEFT JOIN commits ON commits.revision = file.revision WHERE file.doomed = 1";
    let Some(row) = session.row(sql, values![]).await? else { return Ok(None) };
    let files = row.integer("files")?;
    Ok(row.integer_or_null("since")?.filter(|_| files > 0).map(|since| (files, since)))
}

/// Returns the first of `paths` that is marked for deletion, in one statement however many files are.
pub(super) async fn first_marked_for_deletion<'p>(session: &mut Session, paths: &'p [String]) -> Result<Option<&'p String>> {
    let list = serde_json::to_string(paths)?;
    let sql = match session {
        Session::Sqlite(_) => "SELECT path FROM file WHERE doomed = 1 AND path IN (SELECT value FROM json_each($1))",
        Session::Postgres(_) => "SELECT path FROM file WHERE doomed = 1 AND path IN (SELECT json_array_elements_text($1::json))",
    };
    let rows = session.rows(sql, values![list.as_str()]).await?;
    let marked: BTreeSet<String> = rows.iter().map(|row| row.text("path")).collect::<Result<_>>()?;
    Ok(paths.iter().find(|path| marked.contains(*path)))
}

/// Returns how many of these files the catalog names that are neither marked for deletion nor superseded, in one
/// statement.
pub(super) async fn count_named(session: &mut Session, paths: &[String]) -> Result<usize> {
    let list = serde_json::to_string(paths)?;
    let sql = match session {
        Session::Sqlite(_) => {
            "SELECT COUNT(*) AS files FROM file WHERE doomed = 0 AND kind <> 'superseded' AND path IN (SELECT value FROM json_each($1))"
        }
        Session::Postgres(_) => {
            "SELECT COUNT(*) AS files FROM file
            WHERE doomed = 0 AND kind <> 'superseded' AND path IN (SELECT json_array_elements_text($1::json))"
        }
    };
    let row = session.row(sql, values![list.as_str()]).await?;
    row.map_or(Ok(0), |row| row.number("files"))
}

/// True if the catalog names the file and it is neither marked for deletion nor superseded.
pub(super) async fn is_named(session: &mut Session, path: &str) -> Result<bool> {
    let sql = "SELECT path FROM file WHERE path = $1 AND doomed = 0 AND kind <> 'superseded'";
    Ok(session.row(sql, values![path]).await?.is_some())
}

/// Marks files for deletion, in a few statements however many they are. `list` is a JSON array of their paths.
pub(super) async fn mark_for_deletion(session: &mut Session, list: &str, revision: Revision) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => "UPDATE file SET doomed = 1, revision = $1 WHERE path IN (SELECT value FROM json_each($2))",
        Session::Postgres(_) => "UPDATE file SET doomed = 1, revision = $1 WHERE path IN (SELECT json_array_elements_text($2::json))",
    };
    session.execute(sql, values![revision, list]).await?;
    damage::remove_all(session, list).await
}

/// Removes the rows of files, in a few statements however many they are. `list` is a JSON array of their paths.
pub(super) async fn remove(session: &mut Session, list: &str) -> Result<()> {
    let sql = match session {
        Session::Sqlite(_) => "DELETE FROM file WHERE path IN (SELECT value FROM json_each($1))",
        Session::Postgres(_) => "DELETE FROM file WHERE path IN (SELECT json_array_elements_text($1::json))",
    };
    session.execute(sql, values![list]).await?;
    damage::remove_all(session, list).await
}

pub(super) fn marked_for_deletion_conflict(path: &str) -> Error {
    Error::conflict("the file is marked for deletion: the collector is deleting it").with("path", path)
}

fn record(row: FileRow, names: &mut SharedNames) -> Result<FileRecord> {
    Ok(FileRecord {
        path: row.path,
        kind: value_of("kind", &row.kind, &KINDS)?,
        checkpoint: row.checkpoint,
        run: row.run,
        subject: row.subject.map(|subject| names.share(subject)),
        bytes: row.bytes,
        rows: row.rows,
        checksum: row.checksum,
        min_event_time: row.min_event_time,
        max_event_time: row.max_event_time,
        marked_for_deletion: row.doomed != 0,
    })
}
