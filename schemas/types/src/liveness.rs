//! Detects dead processes: each holds the lock of its own file in a folder that the others look into. The system
//! releases the lock when the process ends, however it ends, so that nobody need wait for its leases to expire.
//!
//! A stopped process (SIGSTOP, a sleeping machine) keeps its lock: its leases expire.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, Result};

/// Files that nobody holds are deleted after this time.
const SWEEP_AFTER: Duration = Duration::from_secs(3600);
/// Linux sets this when it starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A folder with a lock file of each instance: a process, or a part of one.
#[derive(Debug, Clone)]
pub struct LockFolder {
    path: PathBuf,
    /// What the names of its files begin with.
    prefix: String,
}

impl LockFolder {
    /// All who use this folder are on one machine.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), prefix: String::new() }
    }

    /// Like [`LockFolder::new`], but instances on other machines count as having no file. For a folder that machines
    /// may share: not every network file system passes locks on. Where the system is not Linux, it must not be shared.
    pub fn of_this_machine(path: impl Into<PathBuf>) -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).ok();
        Self { path: path.into(), prefix: boot.map(|id| format!("{}.", id.trim())).unwrap_or_default() }
    }

    /// Takes the lock of an instance. Call this before it takes its first lease, so that every holder has a lock. Old
    /// files that nobody holds are deleted, except those of `holders`, however old they are: by its file the others see
    /// that a holder is dead.
    pub fn begin(&self, instance: &str, holders: &BTreeSet<String>) -> Result<LiveInstance> {
        let path = self.file_of(instance);
        let locked = std::fs::create_dir_all(&self.path).and_then(|()| File::create(&path)).and_then(|file| file.lock().map(|()| file));
        let locked = locked.map_err(|error| Error::from(error).with("file", path.display()))?;
        self.sweep(holders);
        Ok(LiveInstance { folder: self.clone(), instance: instance.to_owned(), _locked: locked })
    }

    /// Whether an instance is gone. False for one without a file: its leases expire.
    pub fn is_dead(&self, instance: &str) -> bool {
        is_unlocked(&self.file_of(instance))
    }

    /// Whether an instance holds its lock. False for one without a file.
    pub fn is_alive(&self, instance: &str) -> bool {
        File::open(self.file_of(instance)).is_ok_and(|file| file.try_lock_shared().is_err())
    }

    fn sweep(&self, holders: &BTreeSet<String>) {
        let kept: BTreeSet<PathBuf> = holders.iter().map(|instance| self.file_of(instance)).collect();
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        for file in files.filter(|file| is_old(file) && !kept.contains(&file.path()) && is_unlocked(&file.path())) {
            let _ = std::fs::remove_file(file.path());
        }
    }

    fn file_of(&self, instance: &str) -> PathBuf {
        self.path.join(format!("{}{instance}.lock", self.prefix))
    }
}

/// The lock that shows that an instance is alive.
#[derive(Debug)]
pub struct LiveInstance {
    folder: LockFolder,
    instance: String,
    _locked: File,
}

impl LiveInstance {
    /// Whether another instance is gone: see [`LockFolder::is_dead`].
    pub fn is_dead(&self, instance: &str) -> bool {
        instance != self.instance && self.folder.is_dead(instance)
    }

    /// Removes the file of an instance that holds no lease any more. It may be this one.
    pub fn forget(&self, instance: &str) -> Result<()> {
        std::fs::remove_file(self.folder.file_of(instance)).map_err(Error::from)
    }
}

fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn is_old(file: &DirEntry) -> bool {
    let age = file.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > SWEEP_AFTER)
}

#[cfg(test)]
mod tests;
