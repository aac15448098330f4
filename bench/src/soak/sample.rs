//! What is sampled: what the process uses, and what it keeps on disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use catalog::{RunRecord, RunStatus};
use jobs::Installation;
use types::Result;
use types::tiles::Micros;
use uuid::Uuid;

use super::site::{CACHE, CATALOG, LOG, STORAGE};
use crate::child;
use crate::feed::Feed;

/// More than end between two samples.
const RECENT_RUNS: usize = 200;

/// What is sampled of.
pub(super) struct Watched<'a> {
    pub(super) process: u32,
    pub(super) folder: &'a Path,
    pub(super) feed: &'a Feed,
    pub(super) installation: &'a Installation,
}

/// One quantity over time.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// Minutes since the beginning, and the value.
    pub(super) points: Vec<(f64, f64)>,
    /// Whether it should be level. Events arrive, so their number is not.
    pub(super) is_held: bool,
}

#[derive(Default)]
pub(super) struct Samples {
    began: Option<Micros>,
    of: BTreeMap<&'static str, Vec<(f64, f64)>>,
    runs: BTreeMap<Uuid, RunRecord>,
}

const MIB: f64 = (1 << 20) as f64;
/// The sampled quantities, in the order of the report: name, unit, and whether it should stay level.
const QUANTITIES: [(&str, &str, bool); 10] = [
    ("events", "million", false),
    ("behind", "thousand events", true),
    ("memory of its own", "MiB", true),
    ("open files", "", true),
    ("objects", "", true),
    ("storage", "MiB", true),
    ("catalog", "MiB", true),
    ("checkpoints", "", true),
    ("log", "MiB", true),
    ("local copies", "MiB", true),
];

impl Samples {
    pub(super) async fn take(&mut self, began: Instant, watched: Watched<'_>) -> Result<()> {
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        self.began.get_or_insert_with(|| jobs::now() - began.elapsed().as_micros() as Micros);
        let size = |name: &str| size_of(&watched.folder.join(name));
        let (objects, stored) = size(STORAGE);
        let catalog: u64 = ["", "-wal", "-shm"].iter().map(|end| size(&format!("{CATALOG}{end}")).1).sum();
        let state = watched.installation.catalog.state().await?;
        let appended = watched.feed.appended();
        let read: i64 = state.vector().iter().map(|(_, offset)| offset.0).sum();
        let values = [
            appended as f64 / 1e6,
            (appended as f64 - read as f64) / 1e3,
            child::used_by(watched.process).map_or(0.0, |used| used.own_peak_bytes as f64 / MIB),
            open_files(watched.process) as f64,
            objects as f64,
            stored as f64 / MIB,
            catalog as f64 / MIB,
            state.checkpoints.len() as f64,
            size(LOG).1 as f64 / MIB,
            (size(CACHE).1 + mapped_in(&watched.folder.join(CACHE), watched.process)) as f64 / MIB,
        ];
        for ((name, _, _), value) in QUANTITIES.iter().zip(values) {
            self.of.entry(name).or_default().push((minutes, value));
        }
        let runs = watched.installation.catalog.runs(None, RECENT_RUNS).await?;
        self.runs.extend(runs.into_iter().filter(|run| run.ended_at.is_some()).map(|run| (run.id, run)));
        Ok(())
    }

    /// The sampled quantities, then the seconds that each view's runs took.
    pub(super) fn series(&self) -> Vec<Series> {
        let sampled = QUANTITIES.iter().map(|(name, unit, is_held)| Series {
            name: (*name).to_owned(),
            unit,
            points: self.of.get(name).cloned().unwrap_or_default(),
            is_held: *is_held,
        });
        let mut of_views: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        let began = self.began.unwrap_or_default();
        for run in self.runs.values().filter(|run| run.status == RunStatus::Succeeded) {
            let Some((started, ended)) = run.started_at.zip(run.ended_at) else { continue };
            let minutes = (started - began) as f64 / 60e6;
            of_views.entry(&run.view).or_default().push((minutes, (ended - started) as f64 / 1e6));
        }
        let runs = of_views.into_iter().map(|(view, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name: format!("run of {view}"), unit: "s", points, is_held: true }
        });
        sampled.chain(runs).collect()
    }
}

/// The number of files in a folder and its folders, and their bytes; files that go meanwhile do not count.
fn size_of(path: &Path) -> (u64, u64) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return (0, 0) };
    if !metadata.is_dir() {
        return (1, metadata.len());
    }
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size_of(&entry.path()));
    inside.fold((0, 0), |(files, bytes), (more, size)| (files + more, bytes + size))
}

/// The bytes of a folder's files that a process has mapped: local copies have no names.
fn mapped_in(folder: &Path, process: u32) -> u64 {
    let Ok(folder) = folder.canonicalize() else { return 0 };
    let folder = folder.display().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let bytes_of = |line: &str| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(begin, 16).ok()?)
    };
    maps.lines().filter(|line| line.contains(&folder)).filter_map(bytes_of).sum()
}

fn open_files(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}
