//! Resources that the partitions of a process share for their ids: memory, a folder, and a background thread for each
//! of its workers.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use types::process_folder::ProcessFolder;
use types::{Error, Result};

use super::table::BUCKET_BYTES;

/// Eighths of the memory for tables. The last eighth is for data being sorted, merged and filtered.
pub(super) const TABLE_EIGHTHS: usize = 2;
/// Eighths of the memory for filters.
pub(super) const FILTER_EIGHTHS: usize = 5;
/// No table is sized below this, whatever the setting.
const FEWEST_BUCKETS: usize = 1_024;

/// Where ids are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupSettings {
    /// Memory for all partitions.
    pub memory_bytes: usize,
    /// Ids that do not fit go to files in a new folder below this one.
    pub folder: PathBuf,
}

/// The memory and folder for remembered ids. Cheap to clone; the folder is removed with the last clone.
#[derive(Debug, Clone)]
pub struct IdSpace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: DedupSettings,
    partitions: AtomicUsize,
    filter_bytes: AtomicUsize,
    files: AtomicU64,
    /// How many background tasks may run at a time, and how many do.
    threads: usize,
    busy: AtomicUsize,
    folder: Mutex<Option<ProcessFolder>>,
}

impl IdSpace {
    /// Creates it for the partitions of one worker.
    pub fn new(settings: DedupSettings) -> Self {
        Self::for_workers(settings, 1)
    }

    /// Creates it for the partitions of this many workers.
    pub(crate) fn for_workers(settings: DedupSettings, workers: usize) -> Self {
        Self(Arc::new(Inner {
            settings,
            partitions: AtomicUsize::new(0),
            filter_bytes: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            threads: workers,
            busy: AtomicUsize::new(0),
            folder: Mutex::new(None),
        }))
    }

    /// Returns one partition's share, which lasts as long as the value or a clone of it lives.
    pub(super) fn share(&self) -> Share {
        self.0.partitions.fetch_add(1, Ordering::Relaxed);
        Share(Arc::new(Member(self.0.clone())))
    }
}

/// What one partition may use.
#[derive(Debug, Clone)]
pub(super) struct Share(Arc<Member>);

#[derive(Debug)]
struct Member(Arc<Inner>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.partitions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Exclusive use of a background thread.
#[derive(Debug)]
pub(super) struct ThreadTurn(Arc<Inner>);

impl Drop for ThreadTurn {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

impl Share {
    pub(super) fn table_bytes(&self) -> usize {
        self.inner().settings.memory_bytes / 8 * TABLE_EIGHTHS / self.inner().partitions.load(Ordering::Relaxed).max(1)
    }

    /// Returns the buckets of one of `tables` full tables: a power of two, as tables grow.
    pub(super) fn table_buckets(&self, tables: usize) -> usize {
        let buckets = (self.table_bytes() / tables / BUCKET_BYTES).max(FEWEST_BUCKETS);
        1 << buckets.ilog2()
    }

    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let limit = self.filter_limit();
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        self.inner().filter_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn add(&self, bytes: usize) {
        self.inner().filter_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.inner().filter_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.inner().filter_bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.filter_limit()
    }

    fn filter_limit(&self) -> usize {
        self.inner().settings.memory_bytes / 8 * FILTER_EIGHTHS
    }

    pub(super) fn turn(&self) -> Option<ThreadTurn> {
        let inner = self.inner();
        let one_more = |busy: usize| (busy < inner.threads).then_some(busy + 1);
        let has_turn = inner.busy.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok();
        has_turn.then(|| ThreadTurn(self.0.0.clone()))
    }

    /// Creates a file in the folder, open for reading and writing.
    pub(super) fn create_file(&self) -> Result<(PathBuf, File)> {
        let parent = &self.inner().settings.folder;
        let mut kept = self.inner().folder.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = match &*kept {
            Some(folder) => folder,
            None => kept.insert(ProcessFolder::create(parent, "").map_err(|error| self.failed(error, parent))?),
        };
        let path = folder.path().join(format!("{}.ids", self.inner().files.fetch_add(1, Ordering::Relaxed)));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // Somebody removed the folder: the next attempt makes another one.
            *kept = None;
        }
        Ok((path.clone(), opened.map_err(|error| self.failed(error, &path))?))
    }

    pub(super) fn failed(&self, error: impl Into<Error>, at: &Path) -> Error {
        let cause: Error = error.into();
        Error::unavailable("the ids for deduplication do not fit [speed] dedup_memory and cannot be written to disk")
            .with("dedup_memory", self.inner().settings.memory_bytes)
            .with("file", at.display())
            .with("setting", "serving.cache_dir")
            .caused_by(cause)
    }

    fn inner(&self) -> &Inner {
        &self.0.0
    }
}
