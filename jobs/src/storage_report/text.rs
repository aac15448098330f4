//! Formats `storage` as text.

use catalog::DefinitionStatus;
use definitions::durations::format_bytes;

use super::{AgeUsage, LogWouldFree, SlicesStatus, SlicesUsage, StorageReport, StreamUsage, Usage, ViewUsage};
use crate::output::{size, table};

impl StorageReport {
    /// The report as tables.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        let streams: Vec<Vec<String>> = self.streams.iter().flat_map(stream_rows).collect();
        if !streams.is_empty() {
            parts.push(table(&["stream", "status", "kind", "files", "bytes", "events", "from", "to", "retention"], streams));
        }
        let ages: Vec<Vec<String>> = self.streams.iter().filter(|stream| stream.by_age.len() > 1).flat_map(age_rows).collect();
        if !ages.is_empty() {
            parts.push(table(&["archive of", "age", "files", "bytes", "events"], ages));
        }
        if !self.views.is_empty() {
            parts.push(table(&["view", "version", "status", "files", "bytes", "state rows"], self.views.iter().map(view_row)));
        }
        if !self.slices.is_empty() {
            parts.push(table(&["slices of", "version", "status", "files", "bytes"], self.slices.iter().map(slices_row)));
        }
        parts.push(table(&["other", "files", "bytes"], self.other_rows()));
        let of_log = self.log_would_free.iter().filter(|freed| freed.records > 0).map(log_would_free_line);
        let of_streams = self.streams.iter().flat_map(|stream| would_free_lines(stream).chain(kept_for_ever_line(stream)));
        let of_slices = self.slices.iter().map(slices_line);
        let would_free: Vec<String> = of_streams.chain(self.kept_lines()).chain(of_slices).chain(self.cache_line()).chain(of_log).collect();
        if !would_free.is_empty() {
            parts.push(would_free.join("\n"));
        }
        if let Some(most) = self.cache_bytes.filter(|most| self.served_bytes > i64::try_from(*most).unwrap_or(i64::MAX)) {
            let (served, most) = (size(self.served_bytes), format_bytes(most));
            parts.push(format!("serving.cache_bytes is {most}, and a node has local copies of the {served} that are served: raise it"));
        }
        parts.join("\n\n")
    }

    /// What the versions take that are kept for a rollback.
    fn kept_lines(&self) -> impl Iterator<Item = String> {
        let kept = self.views.iter().filter(|view| view.status == Some(DefinitionStatus::Kept) && view.snapshots.files > 0);
        kept.map(|ViewUsage { view, version, snapshots, .. }| {
            format!("basestream view drop {view}@{version} would free {}: keep_old keeps this version", size(snapshots.bytes))
        })
    }

    fn cache_line(&self) -> Option<String> {
        let setting = if self.cache_bytes.is_some() { "a smaller serving.cache_bytes" } else { "serving.cache_bytes" };
        let freed = size(self.cache_would_free);
        (self.cache_would_free > 0).then(|| format!("{setting} would free up to about {freed} in each node: copies of kept versions"))
    }

    fn other_rows(&self) -> Vec<Vec<String>> {
        let row = |what: &str, files: u64, bytes: String| vec![what.to_owned(), files.to_string(), bytes];
        let files = |what: &str, usage: Usage| row(what, usage.files, size(usage.bytes));
        let local = |what: &str, bytes: Option<u64>| bytes.map(|bytes| vec![what.to_owned(), "-".to_owned(), size(bytes)]);
        let segments = files("states of checkpoints", self.segments);
        let to_be_deleted = files("to be deleted", self.to_be_deleted);
        let (slices, slice_bytes) =
            self.slices.iter().fold((0u64, 0u64), |(files, bytes), slices| (files + slices.files, bytes + slices.bytes));
        let named_bytes = u64::try_from(self.total.bytes).unwrap_or_default();
        let total = row("object storage in all", self.total.files + slices, size(named_bytes.saturating_add(slice_bytes)));
        let databases = [local("catalog", self.catalog_bytes), local("embedded log", self.log_bytes)];
        [segments, to_be_deleted, total].into_iter().chain(databases.into_iter().flatten()).collect()
    }
}

fn stream_rows(stream: &StreamUsage) -> Vec<Vec<String>> {
    let time = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
    let row = |kind: &str, usage: Usage, rest: [String; 3]| {
        let status = if stream.status.is_live() { "live" } else { "retired" };
        let counted = [
            stream.stream.to_string(),
            status.to_owned(),
            kind.to_owned(),
            usage.files.to_string(),
            size(usage.bytes),
            usage.rows.to_string(),
        ];
        counted.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let retention = stream.retention.clone().unwrap_or_else(|| "for ever".to_owned());
    let archive = row("archive", stream.archive, [time(&stream.oldest_event), time(&stream.newest_event), retention]);
    let others = [("dead letters", stream.dead_letters), ("superseded", stream.superseded)];
    let others = others.into_iter().filter(|(_, usage)| usage.files > 0);
    let others = others.map(|(kind, usage)| row(kind, usage, ["-", "-", "-"].map(str::to_owned)));
    std::iter::once(archive).chain(others).collect()
}

fn age_rows(stream: &StreamUsage) -> impl Iterator<Item = Vec<String>> {
    let name = |up_to: &Option<String>| up_to.as_ref().map_or_else(|| "older".to_owned(), |up_to| format!("up to {up_to}"));
    stream.by_age.iter().map(move |AgeUsage { up_to, usage }| {
        vec![stream.stream.to_string(), name(up_to), usage.files.to_string(), size(usage.bytes), usage.rows.to_string()]
    })
}

fn view_row(view: &ViewUsage) -> Vec<String> {
    let status = match view.status {
        Some(DefinitionStatus::Active) => "served",
        Some(DefinitionStatus::Building) => "building",
        Some(DefinitionStatus::Kept) => "kept",
        _ => "retired",
    };
    let ViewUsage { view, version, snapshots, .. } = view;
    vec![
        view.to_string(),
        version.to_string(),
        status.to_owned(),
        snapshots.files.to_string(),
        size(snapshots.bytes),
        snapshots.rows.to_string(),
    ]
}

fn slices_row(slices: &SlicesUsage) -> Vec<String> {
    let status = match slices.status {
        SlicesStatus::Running => "running",
        SlicesStatus::Resumable => "ended early",
        SlicesStatus::Obsolete => "obsolete",
    };
    let SlicesUsage { view, version, files, bytes, .. } = slices;
    vec![view.to_string(), version.to_string(), status.to_owned(), files.to_string(), size(*bytes)]
}

/// What deletes the slices of a version.
fn slices_line(slices: &SlicesUsage) -> String {
    let SlicesUsage { view, version, status, bytes, kept_until, .. } = slices;
    let bytes = size(*bytes);
    match status {
        SlicesStatus::Running => {
            format!("a recomputation of {view}@{version} is running: it deletes the {bytes} of its slices once it publishes")
        }
        SlicesStatus::Resumable => {
            let otherwise = kept_until.as_ref().map_or_else(String::new, |until| format!("; if none does, they are deleted after {until}"));
            format!(
                "the next recomputation of {view}@{version} goes on with {bytes} of slices, and deletes them once it publishes{otherwise}"
            )
        }
        SlicesStatus::Obsolete => {
            format!("no recomputation of {view}@{version} goes on with {bytes} of its slices: the collector deletes them")
        }
    }
}

fn would_free_lines(stream: &StreamUsage) -> impl Iterator<Item = String> {
    let frees = stream.would_free.iter().filter(|freed| freed.files > 0);
    frees.map(|freed| format!("retention = '{}' for {} would free {} now", freed.retention, stream.stream, size(freed.bytes)))
}

/// How the files of a dropped stream go that nothing deletes.
fn kept_for_ever_line(stream: &StreamUsage) -> Option<String> {
    let StreamUsage { stream: name, archive, dead_letters, .. } = stream;
    let kept = size(archive.bytes.saturating_add(dead_letters.bytes));
    (!stream.status.is_live() && stream.retention.is_none()).then(|| {
        format!(
            "{name} is retired and had no retention, so its {kept} are kept for ever: to free them, define it again with a \
            retention, apply, and remove it again with basestream apply --prune"
        )
    })
}

fn log_would_free_line(freed: &LogWouldFree) -> String {
    format!("log.retention = '{}' would free about {} now", freed.retention, size(freed.bytes))
}
