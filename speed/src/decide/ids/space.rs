//! Resources that the partitions of a process share for their ids: memory, a folder, and a background thread for each
//! of its workers.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use types::{Error, Result};
use uuid::Uuid;

use super::table::BUCKET_BYTES;

const LOCK: &str = "lock";
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
    /// What does not fit goes to files in a folder of its own below this one.
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
    /// How many things may be done in the background at a time, and how many are.
    threads: usize,
    busy: AtomicUsize,
    home: Mutex<Option<Home>>,
}

/// A folder that belongs to these partitions as long as its lock file is held.
#[derive(Debug)]
struct Home {
    folder: PathBuf,
    _lock: File,
}

impl IdSpace {
    pub fn new(settings: DedupSettings) -> Self {
        Self::for_workers(settings, 1)
    }

    /// For the partitions of this many workers.
    pub(crate) fn for_workers(settings: DedupSettings, workers: usize) -> Self {
        Self(Arc::new(Inner {
            settings,
            partitions: AtomicUsize::new(0),
            filter_bytes: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            threads: workers,
            busy: AtomicUsize::new(0),
            home: Mutex::new(None),
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
        let mut home = self.inner().home.lock().unwrap_or_else(PoisonError::into_inner);
        if home.is_none() {
            *home = Some(make_home(&self.inner().settings.folder).map_err(|(error, at)| self.failed(error, &at))?);
        }
        let folder = home.as_ref().map_or(&self.inner().settings.folder, |home| &home.folder);
        let path = folder.join(format!("{}.ids", self.inner().files.fetch_add(1, Ordering::Relaxed)));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // Somebody removed the folder: the next attempt makes another one.
            *home = None;
        }
        Ok((path.clone(), opened.map_err(|error| self.failed(error, &path))?))
    }

    pub(super) fn failed(&self, error: std::io::Error, at: &Path) -> Error {
        Error::unavailable("the ids for deduplication do not fit [speed] dedup_memory and cannot be written to disk")
            .with("dedup_memory", self.inner().settings.memory_bytes)
            .with("file", at.display())
            .caused_by(error)
    }

    fn inner(&self) -> &Inner {
        &self.0.0
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let home = self.home.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = home {
            let _ = std::fs::remove_dir_all(&home.folder);
        }
    }
}

/// Creates a locked folder below `parent`, and removes those whose processes are gone.
fn make_home(parent: &Path) -> std::result::Result<Home, (std::io::Error, PathBuf)> {
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |error| (error, path)
    };
    std::fs::create_dir_all(parent).map_err(at(parent))?;
    let gate = parent.join(LOCK);
    // No other process sees a folder between its creation and its lock.
    let one = File::create(&gate).map_err(at(&gate))?;
    one.lock().map_err(at(&gate))?;
    for entry in std::fs::read_dir(parent).map_err(at(parent))? {
        remove_if_left(&entry.map_err(at(parent))?.path());
    }
    let folder = parent.join(format!("{}-{}", std::process::id(), Uuid::new_v4().simple()));
    std::fs::create_dir(&folder).map_err(at(&folder))?;
    let lock = folder.join(LOCK);
    match File::create(&lock).and_then(|held| held.lock().map(|()| held)) {
        Ok(held) => Ok(Home { folder, _lock: held }),
        Err(error) => {
            // Nobody removes a folder without a lock.
            let _ = std::fs::remove_dir_all(&folder);
            Err((error, lock))
        }
    }
}

/// Removes a folder if its lock is not held. What cannot be removed stays until the next start.
fn remove_if_left(folder: &Path) {
    let Ok(lock) = File::open(folder.join(LOCK)) else { return };
    match lock.try_lock() {
        Ok(()) => {
            if let Err(error) = std::fs::remove_dir_all(folder) {
                tracing::warn!(folder = %folder.display(), %error, "the remembered ids of a former process could not be removed");
            }
        }
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => tracing::warn!(folder = %folder.display(), %error, "a folder of remembered ids was not removed"),
    }
}
