//! Measures what an installation stores, from its catalog.

use std::path::Path;
use std::time::Duration;

use catalog::CatalogState;
use types::files::{FileKind, FileRecord};
use types::{Error, Result};

use crate::Programs;
use crate::payments::{Project, VIEW};

/// In bytes, unless stated otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    pub(super) log: u64,
    pub(super) archive: u64,
    pub(super) states: u64,
    pub(super) snapshot: u64,
    pub(super) snapshot_objects: u64,
    /// Rows of the snapshot.
    pub(super) state_rows: u64,
    /// Keys that the view has a row for.
    pub(super) keys: u64,
    pub(super) checkpoints: u64,
    pub(super) checkpoint_objects: u64,
    /// The time between two checkpoints, unless the volume of events triggers one sooner.
    pub(super) interval: Duration,
    /// The number of workers in one speed process; each makes its own checkpoints.
    pub(super) workers: usize,
}

impl Stored {
    /// Measures after a batch run, before anything is collected.
    pub(super) async fn measure(project: &Project, programs: &Programs, log: &Path) -> Result<Stored> {
        let row = project.query(programs, &format!("SELECT count(*) AS keys FROM {VIEW}"))?;
        let keys = row["keys"].as_u64().ok_or_else(|| Error::internal("a count is no number").with("found", &row))?;
        let installation = project.open().await?;
        let state = installation.catalog.state().await?;
        let speed = installation.settings.speed.clone();
        installation.close().await;
        let bytes = |kinds: &[FileKind]| files(&state, kinds).map(|file| file.bytes.max(0) as u64).sum();
        let checkpoints = state.checkpoints.len() as u64;
        Ok(Stored {
            log: folder_bytes(log)?,
            archive: bytes(&[FileKind::Archive]),
            states: bytes(&[FileKind::States]),
            snapshot: bytes(&[FileKind::Snapshot, FileKind::Manifest]),
            snapshot_objects: files(&state, &[FileKind::Snapshot, FileKind::Manifest]).count() as u64,
            state_rows: files(&state, &[FileKind::Snapshot]).map(|file| file.rows.max(0) as u64).sum(),
            keys,
            checkpoints,
            checkpoint_objects: state.files.iter().filter(|file| file.checkpoint.is_some()).count() as u64,
            interval: speed.checkpoint_interval,
            workers: state.vector().iter().count().min(speed.workers as usize).max(1),
        })
    }

    /// The number of objects that one process's checkpoints create in an hour.
    pub(super) fn objects_per_hour(&self) -> f64 {
        let of_one = self.checkpoint_objects as f64 / self.checkpoints.max(1) as f64;
        of_one * self.workers as f64 * 3600.0 / self.interval.as_secs_f64().max(1e-3)
    }
}

fn files<'a>(state: &'a CatalogState, kinds: &'a [FileKind]) -> impl Iterator<Item = &'a FileRecord> {
    state.files.iter().filter(|file| kinds.contains(&file.kind))
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let sizes = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum::<Result<u64>>()
}
