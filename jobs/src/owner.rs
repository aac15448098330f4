//! Whether the files of the object storage are those of this catalog. The collector deletes what no transaction of its
//! catalog named: over the files of another one it would delete their whole archive.

use std::time::Duration;

use catalog::Catalog;
use storage::ObjectStorage;
use tracing::warn;
use types::{Error, ErrorKind, Result};

/// How long a start waits for the storage.
const PATIENCE: Duration = Duration::from_secs(2);

/// Refuses to start over the files of another catalog. If the storage does not answer now, the start goes on: the
/// collector checks again before it deletes anything.
pub(crate) async fn check_at_start(catalog: &Catalog, storage: &ObjectStorage) -> Result<()> {
    let unknown = match tokio::time::timeout(PATIENCE, check(catalog, storage)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if error.kind() == ErrorKind::Input => return Err(error),
        Ok(Err(error)) => error,
        Err(_) => Error::unavailable("the object storage or the catalog has not answered").with("after_s", PATIENCE.as_secs()),
    };
    warn!(error = %unknown, "it is not known yet whether the files of the object storage are those of this catalog");
    Ok(())
}

/// Takes a storage that belongs to no catalog: a new one, or one of an earlier release, whose files are not those of a
/// catalog that names none.
///
/// Errors: `Input` if the files are those of another catalog.
pub(crate) async fn check(catalog: &Catalog, storage: &ObjectStorage) -> Result<()> {
    match is_taken(catalog, storage).await? {
        true => Ok(()),
        false => storage.take_for(catalog.identity()).await,
    }
}

/// Whether the storage belongs to this catalog; otherwise it belongs to none. Writes nothing.
///
/// Errors: likewise.
pub(crate) async fn is_taken(catalog: &Catalog, storage: &ObjectStorage) -> Result<bool> {
    match storage.owner().await? {
        Some(owner) if owner == catalog.identity() => return Ok(true),
        Some(owner) => return Err(foreign_files().with("found", owner).with("expected", catalog.identity())),
        None => {}
    }
    if catalog.state().await?.files.is_empty() && !storage.list("archive").await?.is_empty() {
        return Err(foreign_files().with("found", "an archive").with("expected", "no archive, as this catalog names no file"));
    }
    Ok(false)
}

fn foreign_files() -> Error {
    Error::input("the files of the object storage are those of another catalog").with(
        "help",
        "point catalog.url at that catalog, or storage.url at an empty folder or prefix: files that a catalog does not name are deleted",
    )
}
