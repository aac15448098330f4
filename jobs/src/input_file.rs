//! Opens and reads files that arguments of commands name.

use std::fs::File;
use std::path::Path;

use types::{Error, Result};

/// Opens a file.
///
/// Errors: `NotFound` and `Input`, with the path.
pub(crate) fn open_input_file(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    if file.metadata().map_err(|error| unreadable(path, &error))?.is_dir() {
        return Err(Error::input("this is a folder: expected a file").with("file", path.display()));
    }
    Ok(file)
}

/// Reads a file of text. The errors are those of [`open_input_file`].
pub(crate) fn read_input_text(path: &Path) -> Result<String> {
    std::io::read_to_string(open_input_file(path)?).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("the file cannot be read: {error}");
    let error = if error.kind() == std::io::ErrorKind::NotFound { Error::not_found(message) } else { Error::input(message) };
    error.with("file", path.display())
}
