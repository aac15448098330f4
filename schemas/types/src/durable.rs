//! Makes file and folder names survive a power loss: a name is durable once the folder that contains it is synced.

use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Creates a folder and its missing parents, and syncs all of them. Returns its path with links resolved.
pub fn make_folder(folder: &Path) -> Result<PathBuf> {
    let existing = folder.ancestors().find(|ancestor| ancestor.exists()).map(Path::to_path_buf);
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    // The last ancestor of a relative path is empty: the working directory.
    let existing = existing.map(|existing| if existing.as_os_str().is_empty() { PathBuf::from(".") } else { existing });
    let stop = existing.and_then(|existing| existing.canonicalize().ok()).unwrap_or_else(|| folder.clone());
    for made in folder.ancestors().take_while(|ancestor| ancestor.starts_with(&stop)) {
        match sync_folder(made) {
            // It existed before, and may be entered but not read.
            Err(error) if made == stop && error.kind() == ErrorKind::PermissionDenied => {}
            outcome => outcome?,
        }
    }
    Ok(folder)
}

/// Syncs `folder` and its ancestors up to and including `stop`. Syncs all of them every time: an existing folder may
/// have been created by another process that has not synced it yet.
pub fn sync_folders(folder: &Path, stop: &Path) -> Result<()> {
    folder.ancestors().take_while(|ancestor| ancestor.starts_with(stop)).try_for_each(sync_folder)
}

/// Syncs the names in one folder.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Only Unix can open folders as files.
#[cfg(not(unix))]
pub fn sync_folder(_folder: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests;
