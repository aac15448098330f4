//! Names that survive a power loss: a file's name is durable once its folder is synchronised, a folder's once the one above it is.

use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Makes a folder, with those above it that are missing, and synchronises all of them; answers its path without links.
pub fn make_folder(folder: &Path) -> Result<PathBuf> {
    let existing = folder.ancestors().find(|ancestor| ancestor.exists()).map(Path::to_path_buf);
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    // A relative path's last ancestor is the empty one: where the process stands.
    let existing = existing.map(|existing| if existing.as_os_str().is_empty() { PathBuf::from(".") } else { existing });
    let stop = existing.and_then(|existing| existing.canonicalize().ok()).unwrap_or_else(|| folder.clone());
    for made in folder.ancestors().take_while(|ancestor| ancestor.starts_with(&stop)) {
        match sync_folder(made) {
            // One that was there and may be entered, but not read.
            Err(error) if made == stop && error.kind() == ErrorKind::PermissionDenied => {}
            outcome => outcome?,
        }
    }
    Ok(folder)
}

/// Synchronises `folder` and the folders above it up to and including `stop`. All of them every time: a folder that was there already
/// may have been made by another process that has not synchronised it yet.
pub fn sync_folders(folder: &Path, stop: &Path) -> Result<()> {
    folder.ancestors().take_while(|ancestor| ancestor.starts_with(stop)).try_for_each(sync_folder)
}

/// Synchronises the names in one folder.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Only Unix opens folders as files.
#[cfg(not(unix))]
pub fn sync_folder(_folder: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
