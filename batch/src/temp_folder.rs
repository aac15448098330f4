//! The folder that a run spills to.

use std::path::Path;

use types::Error;

/// Names the folder and its setting: the errors of the system and of DataFusion name neither.
pub(crate) fn at_folder(folder: &Path, error: impl Into<Error>) -> Error {
    error.into().with("folder", folder.display()).with("setting", "batch.temp_dir")
}
