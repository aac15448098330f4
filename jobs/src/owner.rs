//! Whether the files of the object storage are those of this catalog. The collector deletes what no transaction of its
//! catalog named: over the files of another one it would delete their whole archive. A worker commits what it has
//! written: in another storage than that of the other processes, they would not find it.

use std::time::Duration;

use catalog::{Catalog, CatalogState};
use storage::ObjectStorage;
use tracing::warn;
use types::files::FileKind;
use types::{Error, ErrorKind, Result};

/// How long a start waits for the storage.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many archive files are looked for in a storage that belongs to no catalog.
const LOOKED_FOR: usize = 4;

/// Refuses to start over the files of another catalog, or without those of this one. If the storage does not answer
/// now, the start goes on: the collector checks again before it deletes anything.
pub(crate) async fn check_at_start(catalog: &Catalog, storage: &ObjectStorage) -> Result<()> {
    unless_refused(check(catalog, storage)).await
}

/// The same for a process that writes no files.
pub(crate) async fn check_before_reading(catalog: &Catalog, storage: &ObjectStorage) -> Result<()> {
    unless_refused(async { is_taken(catalog, storage).await.map(drop) }).await
}

async fn unless_refused(checking: impl Future<Output = Result<()>>) -> Result<()> {
    let unknown = match tokio::time::timeout(PATIENCE, checking).await {
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
/// Errors: `Input` if the files are those of another catalog, or lack those of this one.
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
    let state = catalog.state().await?;
    if state.files.is_empty() && !storage.list("archive").await?.is_empty() {
        return Err(foreign_files().with("found", "an archive").with("expected", "no archive, as this catalog names no file"));
    }
    check_has_files(&state, storage).await?;
    Ok(false)
}

/// A storage without an owner is new, and so is its catalog; or an earlier release has written files there.
async fn check_has_files(state: &CatalogState, storage: &ObjectStorage) -> Result<()> {
    let mut missing = None;
    for file in state.readable(FileKind::Archive).take(LOOKED_FOR) {
        match storage.length(&file.path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => missing = Some(&file.path),
            found => return found.map(drop),
        }
    }
    let Some(missing) = missing else { return Ok(()) };
    let refused = Error::input("the object storage has none of the files that the catalog names").with("expected", missing);
    Err(refused.with("help", "correct storage.url; only if the files are lost, `basestream repair` makes them again from the log"))
}

fn foreign_files() -> Error {
    Error::input("the files of the object storage are those of another catalog").with(
        "help",
        "point catalog.url at that catalog, or storage.url at an empty folder or prefix: files that a catalog does not name are deleted",
    )
}
