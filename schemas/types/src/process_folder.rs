//! A folder of temporary files that belongs to one process. It is deleted when the process ends, and after a SIGKILL by
//! the next process that makes such a folder beside it: each holds the lock of its own folder, and of a file in it.
//!
//! Either may be missing. Not every file system locks folders, and a cleaner of temporary files may delete the file
//! while the process runs. `systemd-tmpfiles` leaves alone what is in a locked folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use crate::{Error, Result};

const LOCK: &str = "lock";
/// A lock file has this name until it is locked, so that no other process takes its folder for that of a dead one.
const NEW_LOCK: &str = "lock.new";
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
/// A folder has its lock within moments. One that has none for this long is of a process that was killed before that,
/// or after it had removed the lock.
const LOCKED_WITHIN: Duration = Duration::from_secs(60 * 60);

/// A folder that other processes leave alone as long as this value lives.
#[derive(Debug)]
pub struct ProcessFolder {
    path: PathBuf,
    _locked_folder: Option<File>,
    _lock: File,
}

impl ProcessFolder {
    /// Creates a folder in `parent` whose name begins with `prefix`, and removes those with this prefix whose processes
    /// are gone. Folders of other machines stay: not every network file system passes locks on.
    ///
    /// The error names the file or folder, and has the source of the system.
    pub fn create(parent: &Path, prefix: &str) -> Result<Self> {
        std::fs::create_dir_all(parent).map_err(at(parent))?;
        let suffix = suffix_of_this_machine();
        remove_left(parent, prefix, &suffix);
        let path = parent.join(format!("{prefix}{}{suffix}", Uuid::new_v4().simple()));
        std::fs::create_dir(&path).map_err(at(&path))?;
        let locked_folder = lock_folder(&path);
        match lock_in(&path) {
            Ok(lock) => Ok(Self { path, _locked_folder: locked_folder, _lock: lock }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&path);
                Err(at(&path)(error))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ProcessFolder {
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::from(error).with("file", path.display())
}

fn lock_folder(path: &Path) -> Option<File> {
    let folder = File::open(path).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

fn lock_in(folder: &Path) -> io::Result<File> {
    let new = folder.join(NEW_LOCK);
    let lock = File::create(&new)?;
    lock.lock()?;
    std::fs::rename(&new, folder.join(LOCK))?;
    Ok(lock)
}

fn suffix_of_this_machine() -> String {
    let host = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    format!("@{}", host.trim())
}

/// Removes the folders of processes of this machine that are gone. What cannot be removed stays until the next start.
fn remove_left(parent: &Path, prefix: &str, suffix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix)) {
            let _ = remove_if_left(&entry.path());
        }
    }
}

/// Removes a folder if neither of its locks is held.
fn remove_if_left(folder: &Path) -> io::Result<()> {
    // Locked until it is removed.
    let opened = File::open(folder).ok();
    if opened.as_ref().is_some_and(|opened| matches!(opened.try_lock(), Err(TryLockError::WouldBlock))) {
        return Ok(());
    }
    let lock = match File::open(folder.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return remove_if_old(folder),
        opened => opened?,
    };
    match lock.try_lock() {
        Ok(()) => remove(folder),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn remove_if_old(folder: &Path) -> io::Result<()> {
    let changed = std::fs::metadata(folder)?.modified()?;
    match changed.elapsed() {
        Ok(age) if age > LOCKED_WITHIN => std::fs::remove_dir_all(folder),
        _ => Ok(()),
    }
}

/// Removes a folder and its lock last: where a process is killed meanwhile, the next one goes on.
fn remove(folder: &Path) -> io::Result<()> {
    for path in lock_last(folder)? {
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::remove_dir(folder)
}

fn lock_last(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort_by_key(|path| path.file_name().is_some_and(|name| name == LOCK));
    Ok(paths)
}

#[cfg(test)]
mod tests;
