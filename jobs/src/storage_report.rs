//! `storage`: what the object storage holds, by stream, view, kind and age, and what other settings would free:
//! another `retention` ([`WouldFree`]), another `log.retention` ([`LogWouldFree`]), another `serving.cache_bytes`.
//! Except for the log and for [slices](SlicesUsage), it is a pure function of the catalog's state, which knows every
//! file and its size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, Revision};
use committed::registry::Registry;
use definitions::durations::format_duration_parts;
use definitions::parse::parse_stream;
use definitions::settings::{ClockKind, Settings};
use engine::events::format_timestamp;
use serde::Serialize;
use types::Result;
use types::files::{FileKind, FileRecord, ObjectName};
use types::tiles::{Micros, micros};
use url::Url;

use crate::collect::clock_behind;
use crate::installation::{Installation, now};

mod ages;
mod old_records;
mod slices;
mod text;
mod what_if;

pub use ages::AgeUsage;
pub use old_records::LogWouldFree;
pub use slices::{SlicesStatus, SlicesUsage};
pub use what_if::WouldFree;

use ages::by_age;
use old_records::log_would_free;
use slices::stored_slices;
use what_if::would_free;

/// Files of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    pub files: u64,
    pub bytes: i64,
    pub rows: i64,
}

/// What an installation stores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageReport {
    /// The catalog's revision.
    pub revision: Revision,
    /// Everything in the object storage that the catalog names.
    pub total: Usage,
    pub streams: Vec<StreamUsage>,
    pub views: Vec<ViewUsage>,
    /// What recomputations have saved before they publish. The catalog does not name it, so `total` does not include
    /// it.
    pub slices: Vec<SlicesUsage>,
    /// States of checkpoints that some view's snapshot does not hold yet; a file has the states of all views.
    pub segments: Usage,
    /// Files that will be deleted within minutes.
    pub to_be_deleted: Usage,
    /// Bytes of the catalog's files; null on PostgreSQL.
    pub catalog_bytes: Option<u64>,
    /// Bytes of the embedded log's files; null on Kafka.
    pub log_bytes: Option<u64>,
    /// `log.retention`; null on Kafka.
    pub log_retention: Option<String>,
    /// What shorter ones would free now.
    pub log_would_free: Vec<LogWouldFree>,
    /// Bytes of the snapshots that are served. Each node has local copies of them, which take more: they are not
    /// compressed.
    pub served_bytes: i64,
    /// Bytes of the snapshots of versions that are kept. Nodes have copies of them as far as `serving.cache_bytes`
    /// allows.
    pub kept_bytes: i64,
    /// `serving.cache_bytes`; null: no bound.
    pub cache_bytes: Option<u64>,
    /// What a smaller one would free at most, in each node: the copies of versions that are kept.
    pub cache_would_free: i64,
}

/// What is stored of one stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamUsage {
    pub stream: Arc<str>,
    /// `retired` for a stream that was dropped and of which files are left.
    pub status: DefinitionStatus,
    pub archive: Usage,
    pub dead_letters: Usage,
    /// Files whose rows are in other files as well, for readers that began before; they go within minutes.
    pub superseded: Usage,
    pub oldest_event: Option<String>,
    pub newest_event: Option<String>,
    /// The archive by the age of its events.
    pub by_age: Vec<AgeUsage>,
    /// The stream's `retention`; null: for ever.
    pub retention: Option<String>,
    /// What other retentions would free now. Those that a view over the stream does not allow are left out.
    pub would_free: Vec<WouldFree>,
}

/// What is stored of one version of a view: its snapshot, and earlier ones that are still read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ViewUsage {
    pub view: Arc<str>,
    pub version: u32,
    /// Null for a version that the catalog does not list any more.
    pub status: Option<DefinitionStatus>,
    pub snapshots: Usage,
}

impl Usage {
    fn sum<'f>(files: impl IntoIterator<Item = &'f FileRecord>) -> Usage {
        // The record of a manifest has the rows of the files that it names.
        let rows = |file: &FileRecord| if file.kind == FileKind::Manifest { 0 } else { file.rows };
        files.into_iter().fold(Usage::default(), |sum, file| Usage {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(file.bytes),
            rows: sum.rows.saturating_add(rows(file)),
        })
    }
}

impl Installation {
    /// Reports what is stored. Reads the catalog, and of the embedded log how old its records are. Lists the storage
    /// for views that a recomputation is at work on, or was when it ended early.
    ///
    /// Errors: `Unavailable` if the catalog, the storage or the embedded log does not answer.
    pub async fn storage_report(&self) -> Result<StorageReport> {
        let (state, now) = (self.catalog.state().await?, now());
        let registry = Registry::load(&state, &self.functions).await?;
        let is_event_clock = self.settings.serving.clock == ClockKind::Event;
        let mut report = storage_report(&state, &registry, now, is_event_clock)?;
        report.slices = stored_slices(&self.storage, &state, now).await?;
        report.cache_bytes = self.settings.serving.cache_bytes;
        report.cache_would_free = cache_would_free(report.served_bytes, report.kept_bytes, report.cache_bytes);
        let (catalog, log) = (catalog_file(&self.settings), log_folder(&self.settings));
        // A folder may have many files.
        let measure = move || (catalog.map(|file| bytes_of_database(&file)), log.map(|folder| bytes_below(&folder)));
        (report.catalog_bytes, report.log_bytes) = tokio::task::spawn_blocking(measure).await?;
        if let Some(trimming) = self.trimming() {
            report.log_retention = Some(format_duration_parts(trimming.retention));
            report.log_would_free = log_would_free(&trimming, &state).await?;
        }
        Ok(report)
    }
}

/// Reports what the catalog's files take at the time `now`. `is_event_clock`: as in [`crate::collect::collect`].
pub(crate) fn storage_report(state: &CatalogState, registry: &Registry, now: Micros, is_event_clock: bool) -> Result<StorageReport> {
    let named = || state.files.iter().filter(|file| !file.marked_for_deletion);
    let mut freed = would_free(state, registry, (now, is_event_clock))?;
    let (served_bytes, kept_bytes) = (served_bytes(state), kept_bytes(state));
    let clock = |stream: &DefinitionRecord| now.saturating_sub(micros(clock_behind(state, stream, is_event_clock, now)));
    let dropped = state.dropped(DefinitionKind::Stream).filter(|stream| state.files.iter().any(|file| is_of_stream(file, &stream.name)));
    Ok(StorageReport {
        revision: state.revision,
        total: Usage::sum(state.files.iter()),
        streams: state
            .live(DefinitionKind::Stream)
            .chain(dropped)
            .map(|stream| stream_usage(state, stream, freed.remove(&stream.name).unwrap_or_default(), clock(stream)))
            .collect::<Result<_>>()?,
        served_bytes,
        kept_bytes,
        views: view_usages(state),
        slices: Vec::new(),
        segments: Usage::sum(named().filter(|file| file.kind == FileKind::States)),
        to_be_deleted: Usage::sum(state.files.iter().filter(|file| file.marked_for_deletion)),
        catalog_bytes: None,
        log_bytes: None,
        log_retention: None,
        log_would_free: Vec::new(),
        cache_bytes: None,
        cache_would_free: cache_would_free(served_bytes, kept_bytes, None),
    })
}

fn stream_usage(state: &CatalogState, stream: &DefinitionRecord, would_free: Vec<WouldFree>, now: Micros) -> Result<StreamUsage> {
    let files: Vec<&FileRecord> = state.files.iter().filter(|file| is_of_stream(file, &stream.name)).collect();
    let of_kind = |kind| files.iter().copied().filter(move |file| file.kind == kind);
    let archive: Vec<&FileRecord> = of_kind(FileKind::Archive).collect();
    Ok(StreamUsage {
        stream: stream.name.clone(),
        status: stream.status,
        archive: Usage::sum(archive.iter().copied()),
        dead_letters: Usage::sum(of_kind(FileKind::DeadLetters)),
        superseded: Usage::sum(of_kind(FileKind::Superseded)),
        oldest_event: archive.iter().filter_map(|file| file.min_event_time).min().map(format_timestamp),
        newest_event: archive.iter().filter_map(|file| file.max_event_time).max().map(format_timestamp),
        by_age: by_age(&archive, now),
        retention: parse_stream(&stream.sql)?.retention.map(format_duration_parts),
        would_free,
    })
}

fn is_of_stream(file: &FileRecord, stream: &str) -> bool {
    let is_kind = matches!(file.kind, FileKind::Archive | FileKind::DeadLetters | FileKind::Superseded);
    is_kind && !file.marked_for_deletion && file.subject.as_deref() == Some(stream)
}

pub(crate) fn view_usages(state: &CatalogState) -> Vec<ViewUsage> {
    let mut by_version: BTreeMap<(Arc<str>, u32), Vec<&FileRecord>> = BTreeMap::new();
    for file in state.files.iter().filter(|file| !file.marked_for_deletion) {
        let Ok(name) = file.path.parse() else { continue };
        if let ObjectName::Bucket { view, version, .. }
        | ObjectName::Merged { view, version, .. }
        | ObjectName::Joined { view, version, .. }
        | ObjectName::Manifest { view, version, .. } = name
        {
            by_version.entry((view, version)).or_default().push(file);
        }
    }
    let status = |view: &str, version| state.definitions.get(DefinitionKind::View, view, version).map(|record| record.status);
    let usage = |((view, version), files): ((Arc<str>, u32), Vec<&FileRecord>)| ViewUsage {
        status: status(&view, version),
        snapshots: Usage::sum(files),
        view,
        version,
    };
    by_version.into_iter().map(usage).collect()
}

/// The bytes of the published snapshots of served versions.
fn served_bytes(state: &CatalogState) -> i64 {
    let is_served =
        |view: &str, version| state.served_or_building(DefinitionKind::View, view).is_some_and(|record| record.version == version);
    snapshot_bytes(state, is_served)
}

/// The bytes of the published snapshots of versions that are kept for a rollback.
fn kept_bytes(state: &CatalogState) -> i64 {
    let kept = || state.live(DefinitionKind::View).filter(|record| record.status == DefinitionStatus::Kept);
    snapshot_bytes(state, |view, version| kept().any(|record| &*record.name == view && record.version == version))
}

fn snapshot_bytes(state: &CatalogState, is_counted: impl Fn(&str, u32) -> bool) -> i64 {
    let counted = state.snapshots.iter().filter(|snapshot| is_counted(&snapshot.view, snapshot.version));
    let runs: Vec<_> = counted.map(|snapshot| Some(snapshot.run)).collect();
    let files = state.files.iter().filter(|file| file.kind == FileKind::Snapshot && runs.contains(&file.run));
    files.map(|file| file.bytes).sum()
}

/// What is left of the copies of kept versions in a node whose copies take at most `most` bytes.
fn cache_would_free(served: i64, kept: i64, most: Option<u64>) -> i64 {
    let most = most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
    most.saturating_sub(served).clamp(0, kept)
}

fn catalog_file(settings: &Settings) -> Option<PathBuf> {
    path_of(&format!("file:{}", settings.catalog.url.as_str().strip_prefix("sqlite:")?))
}

fn log_folder(settings: &Settings) -> Option<PathBuf> {
    path_of(settings.log.url.as_str())
}

/// The path that a URL of a local file names. `None` for any other URL.
fn path_of(url: &str) -> Option<PathBuf> {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

/// A SQLite database, with what is not in its main file yet.
fn bytes_of_database(file: &Path) -> u64 {
    let with = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(PathBuf::from(name)).map_or(0, |file| file.len())
    };
    ["", "-wal", "-shm"].into_iter().map(with).sum()
}

/// The files below a folder. What vanishes meanwhile counts as nothing.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

#[cfg(test)]
mod tests;
