//! A stored file as the catalog knows it, its name for the object storage, and the errors for a file that differs.

use object_store::path::Path;
use types::{Error, ErrorKind, Result};

/// A file of the object storage and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    pub path: String,
    pub bytes: i64,
    /// CRC-32 of the whole file.
    pub checksum: u32,
}

/// Returns the name of an object, as the object storage takes it.
pub(super) fn object_path(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|error| Error::input(format!("\"{path}\" cannot name an object: {error}")))
}

/// Returns the store's error, with the object's name.
pub(super) fn about(error: object_store::Error, path: &str) -> Error {
    match error {
        object_store::Error::NotFound { .. } => Error::not_found("the object storage has no such file").with("file", path),
        object_store::Error::AlreadyExists { .. } => {
            Error::conflict("the object storage already has a file with this name").with("file", path)
        }
        other => Error::from(other).with("file", path),
    }
}

/// Converts the error for a file that the catalog names and that is not there, or that its disk cannot read: the file
/// is damaged, the request was not wrong, and the storage answers.
pub(super) fn known_to_be_there(error: Error, path: &str, bytes: i64) -> Error {
    let (message, found) = match (error.kind(), error.unreadable_file()) {
        (ErrorKind::NotFound, _) => ("a stored file is missing", "no such file".to_owned()),
        (_, Some(found)) => ("a stored file cannot be read", found.to_string()),
        _ => return error,
    };
    Error::corrupt(message).with("file", path).with("found", found).with("expected", format_args!("{bytes} bytes"))
}

/// Returns the error for a stored file that is not what was written.
pub(super) fn damaged(path: &str, what: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("a stored file is damaged in {what}")).with("file", path).with("found", found).with("expected", expected)
}

pub(super) fn check_length(path: &str, found: u64, expected: i64) -> Result<()> {
    if i64::try_from(found) == Ok(expected) { Ok(()) } else { Err(damaged(path, "its length in bytes", found, expected)) }
}
