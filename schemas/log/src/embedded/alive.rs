//! Detects dead consumers: each consumer holds the lock of its own file in the log's folder. The system releases the
//! lock when the process ends, however it ends, so that other workers need not wait for its leases to expire.
//!
//! A stopped process (SIGSTOP, a sleeping machine) keeps its lock: its leases expire.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use types::{Error, Result};

const FOLDER: &str = "workers";
/// Files of consumers that died before they became members are deleted after this time.
const SWEEP_AFTER: Duration = Duration::from_secs(3600);

/// The lock that shows that a consumer is alive.
#[derive(Debug)]
pub(super) struct LiveInstance {
    folder: PathBuf,
    instance: String,
    _locked: File,
}

impl LiveInstance {
    /// Takes the lock. Call this before the consumer becomes a member, so that every member has a lock. `members` are
    /// the instances that are members already.
    pub(super) fn begin(log_folder: &Path, instance: &str, members: &BTreeSet<String>) -> Result<LiveInstance> {
        let folder = log_folder.join(FOLDER);
        let path = file_of(&folder, instance);
        let locked = std::fs::create_dir_all(&folder).and_then(|()| File::create(&path)).and_then(|file| file.lock().map(|()| file));
        let locked = locked.map_err(|error| Error::from(error).with("file", path.display()))?;
        sweep(&folder, members);
        Ok(LiveInstance { folder, instance: instance.to_owned(), _locked: locked })
    }

    /// True if the process of another consumer is gone. False for one without a file: its leases expire.
    pub(super) fn is_dead(&self, instance: &str) -> bool {
        instance != self.instance && is_unlocked(&file_of(&self.folder, instance))
    }

    /// Removes the file of a consumer that is no longer in any table.
    pub(super) fn forget(&self, instance: &str) {
        if let Err(error) = std::fs::remove_file(file_of(&self.folder, instance)) {
            tracing::debug!(%error, instance, "the lock file of a former consumer was not removed");
        }
    }
}

fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

/// Deletes old files that nobody holds. Those of members stay, however old they are: by its file the others see that a
/// member is dead.
fn sweep(folder: &Path, members: &BTreeSet<String>) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files.filter(|file| is_old(file) && !is_of_member(file, members) && is_unlocked(&file.path())) {
        let _ = std::fs::remove_file(file.path());
    }
}

fn is_old(file: &DirEntry) -> bool {
    let age = file.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > SWEEP_AFTER)
}

fn is_of_member(file: &DirEntry, members: &BTreeSet<String>) -> bool {
    file.path().file_stem().and_then(|instance| instance.to_str()).is_some_and(|instance| members.contains(instance))
}

fn file_of(folder: &Path, instance: &str) -> PathBuf {
    folder.join(format!("{instance}.lock"))
}
