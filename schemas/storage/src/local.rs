//! Durable local files: each is written in a separate folder, synced, and linked to its name in one step.
//!
//! `object_store` 0.13 never syncs local files, so a power loss could destroy a file that the catalog names.

use std::fs::{self, File};
use std::io::{ErrorKind as IoKind, Write};
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use types::durable::{make_folder, sync_folder, sync_folders};
use types::{Error, Result};

/// The folder of unfinished files. It is on the same file system as the finished ones, and never listed.
pub(super) const PARTIAL_FOLDER: &str = ".partial";

/// How often a file is given its name while its folders are removed.
const ATTEMPTS: u32 = 5;

/// A folder used as object storage. Its functions block: call them outside the runtime's threads.
#[derive(Debug, Clone)]
pub(super) struct LocalFolder {
    root: PathBuf,
}

/// A file that has no name yet; it is removed unless published.
#[derive(Debug)]
pub(super) struct PartialFile {
    path: PathBuf,
}

impl LocalFolder {
    /// Opens the folder, creating it if missing.
    pub(super) fn open(root: &FilePath) -> Result<Self> {
        let failed = |error: std::io::Error| Error::from(error).with("folder", root.display());
        make_folder(&root.join(PARTIAL_FOLDER)).map_err(failed)?;
        Ok(Self { root: root.canonicalize().map_err(failed)? })
    }

    pub(super) fn root(&self) -> &FilePath {
        &self.root
    }

    /// Writes a whole file under a new name.
    pub(super) fn write_new(&self, target: &FilePath, content: &[u8]) -> Result<()> {
        let (mut file, partial) = self.create_partial()?;
        file.write_all(content).map_err(|error| Error::from(error).with("file", target.display()))?;
        self.publish(&file, partial, target)
    }

    pub(super) fn create_partial(&self) -> Result<(File, PartialFile)> {
        let path = self.root.join(PARTIAL_FOLDER).join(Uuid::new_v4().to_string());
        let file = File::create_new(&path).map_err(|error| Error::from(error).with("file", path.display()))?;
        Ok((file, PartialFile { path }))
    }

    /// Gives a written file its name. When this returns, the file and its name survive a power loss. If the name is
    /// taken, nothing changes and the error is a conflict.
    pub(super) fn publish(&self, file: &File, partial: PartialFile, target: &FilePath) -> Result<()> {
        let failed = |error: std::io::Error| match error.kind() {
            IoKind::AlreadyExists => Error::conflict("the object storage already has a file with this name").with("file", target.display()),
            _ => Error::from(error).with("file", target.display()),
        };
        file.sync_all().map_err(failed)?;
        link_to_new_name(&partial.path, target).map_err(failed)?;
        self.sync_name(target).map_err(failed)
    }

    /// Syncs the folders above a file's name, up to the root.
    pub(super) fn sync_name(&self, target: &FilePath) -> std::io::Result<()> {
        match target.parent() {
            Some(folder) => sync_folders(folder, &self.root),
            None => Ok(()),
        }
    }

    /// After a deletion: removes the folders above the file that are empty now, and makes the deletion durable.
    pub(super) fn tidy_after_delete(&self, target: &FilePath) {
        let is_inside = |folder: &&FilePath| folder.starts_with(&self.root) && **folder != *self.root;
        let mut changed = None;
        for folder in target.ancestors().skip(1).take_while(is_inside) {
            changed = Some(folder);
            // Fails on a folder that is not empty, as intended; a deleted file that reappears is only an orphan.
            if fs::remove_dir(folder).is_err() {
                break;
            }
            changed = folder.parent();
        }
        let Some(changed) = changed else { return };
        if let Err(error) = sync_folder(changed) {
            tracing::debug!(folder = %changed.display(), %error, "a folder was not synchronised after a deletion");
        }
    }

    /// Removes what crashed writers left behind: unfinished files that were not written to for `age`.
    pub(super) fn remove_partial_files(&self, now: SystemTime, age: Duration) -> Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(self.root.join(PARTIAL_FOLDER))? {
            let entry = entry?;
            let idle = entry.metadata().and_then(|meta| meta.modified()).map(|time| now.duration_since(time).unwrap_or_default());
            if idle.is_ok_and(|idle| idle >= age) && fs::remove_file(entry.path()).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != IoKind::NotFound
        {
            tracing::warn!(file = %self.path.display(), %error, "an unfinished file was not removed");
        }
    }
}

/// A hard link is created in one step and never replaces a file. The collector may remove folders above the name before
/// they have something in them, so missing folders are created again.
fn link_to_new_name(partial: &FilePath, target: &FilePath) -> std::io::Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match target.parent().map_or(Ok(()), fs::create_dir_all) {
            Err(error) if error.kind() == IoKind::NotFound && attempts < ATTEMPTS => continue,
            made => made?,
        }
        match fs::hard_link(partial, target) {
            Err(error) if error.kind() == IoKind::NotFound && attempts < ATTEMPTS => continue,
            Err(error) if matches!(error.kind(), IoKind::Unsupported | IoKind::PermissionDenied) => {
                return rename_to_new_name(partial, target);
            }
            result => return result,
        }
    }
}

/// For file systems without hard links. Names are fresh, so checking for the name before the rename is enough.
fn rename_to_new_name(partial: &FilePath, target: &FilePath) -> std::io::Result<()> {
    if target.try_exists()? {
        return Err(IoKind::AlreadyExists.into());
    }
    fs::rename(partial, target)
}

#[cfg(test)]
mod tests;
