//! The folder that queries spill to where they need more memory than they may have.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use tracing::debug;
use types::{Error, Result};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct SpillFolder(Arc<Path>);

impl SpillFolder {
    /// Makes it in the folder of a node's copies.
    pub(crate) fn make_in(cache: &Path) -> Result<Self> {
        let folder = Self(cache.join("spill").into());
        std::fs::create_dir_all(&folder.0).map_err(|error| folder.located(error))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it again, with these folders in it, where somebody has removed them: a cleaner of temporary files may do
    /// so while the node runs. Nothing fails here, because most queries need none of them.
    pub(crate) fn restore(&self, folders: &[PathBuf]) {
        for folder in folders {
            if let Err(error) = std::fs::create_dir_all(folder) {
                debug!(folder = %folder.display(), %error, "a folder that queries spill to cannot be made again");
            }
        }
    }

    /// Adds the folder and its setting to an error of the disk; other errors stay as they are. An error of the disk
    /// comes from this folder: a query reads mapped files and the storage, whose errors are our own.
    pub(crate) fn named(&self, error: DataFusionError) -> DataFusionError {
        let of_the_disk = match Error::datafusion_root(&error) {
            DataFusionError::IoError(of_the_disk) => Some(of_the_disk.kind()),
            DataFusionError::ArrowError(error, _) => match &**error {
                ArrowError::IoError(_, of_the_disk) => Some(of_the_disk.kind()),
                _ => None,
            },
            _ => None,
        };
        let Some(kind) = of_the_disk else { return error };
        let refused = Error::unavailable("the query needs more memory than it may have, and cannot spill to the disk");
        let help = match kind {
            ErrorKind::NotFound => "somebody removed the folder or a file in it: try again, and keep cleaners of temporary files away",
            _ => "free space in the folder, select less, or raise serving.limits.query_memory",
        };
        let located = self.located(refused.caused_by(Error::from(error)));
        let located = if located.is_of_full_disk() { located.with("disk", "full") } else { located };
        located.with("help", help).into()
    }

    fn located(&self, error: impl Into<Error>) -> Error {
        error.into().with("folder", self.0.display()).with("setting", "serving.cache_dir")
    }
}

#[cfg(test)]
mod tests;
