//! The folder that runs spill to.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::prelude::SessionConfig;
use types::process_folder::ProcessFolder;
use types::{Error, Result};

/// The prefix of the folders' names.
const PREFIX: &str = "basestream-run-";

/// The folder of one session. `None` if the system has no temporary folder that can be written: a session that does not
/// spill needs none.
pub struct SessionFolder(Option<ProcessFolder>);

impl SessionFolder {
    /// Creates it in `parent`, or in the system's temporary folder.
    pub fn create(parent: Option<&Path>) -> Result<Self> {
        Ok(Self(match parent {
            Some(parent) => Some(ProcessFolder::create(parent, PREFIX).map_err(|error| at_folder(parent, error))?),
            None => ProcessFolder::create(&std::env::temp_dir(), PREFIX).ok(),
        }))
    }

    /// The disk to which the session's operators spill.
    pub fn disk(&self) -> DiskManagerBuilder {
        let mode = match &self.0 {
            Some(folder) => DiskManagerMode::Directories(vec![folder.path().to_owned()]),
            None => DiskManagerMode::OsTmpDirectory,
        };
        DiskManagerBuilder::default().with_mode(mode)
    }

    /// Keeps the folder as long as sessions and tasks with this configuration exist.
    pub fn kept_in(self, config: SessionConfig) -> SessionConfig {
        match self.0 {
            Some(folder) => config.with_extension(Arc::new(folder)),
            None => config,
        }
    }
}

/// Adds the folder and its setting to an error, because those of the system and of DataFusion name neither.
pub(crate) fn at_folder(folder: &Path, error: impl Into<Error>) -> Error {
    error.into().with("folder", folder.display()).with("setting", "batch.temp_dir")
}
