//! Reports damaged files to the catalog: whichever process finds one records it, and the scheduler and `repair` act on
//! it.

use catalog::{Add, Catalog, CatalogState, Commit, DamageRecord};
use storage::{ObjectStorage, check_file};
use types::tiles::Micros;
use types::{Error, ErrorKind};
use uuid::Uuid;

/// Who found damage, and when.
#[derive(Debug, Clone, Copy)]
pub struct Finder<'a> {
    pub name: &'a str,
    pub now: Micros,
}

/// Checks the files that these errors name against their checksums, and records those that are really damaged. What
/// cannot be recorded is logged; reporting the error itself is left to the caller.
pub async fn report_damage(catalog: &Catalog, storage: &ObjectStorage, state: &CatalogState, errors: &[Error], finder: Finder<'_>) {
    for path in suspects(state, errors) {
        let Some(file) = state.files.get(path) else { continue };
        let Err(error) = check_file(storage, file, |_| {}).await else { continue };
        if error.kind() != ErrorKind::Corrupt {
            continue;
        }
        tracing::error!(file = path, %error, "a stored file is damaged");
        metrics::counter!("basestream_damaged_files_total").increment(1);
        let damage =
            DamageRecord { path: path.to_owned(), error: error.to_string(), found_by: finder.name.to_owned(), found_at: finder.now };
        let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Damage(damage)], ..Commit::default() };
        if let Err(error) = catalog.commit_with_retry(commit).await {
            tracing::warn!(file = path, %error, "a damaged file could not be recorded");
        }
    }
}

/// Adds to the error of an unreadable file what to do about it; returns other errors unchanged.
pub fn with_help(error: Error) -> Error {
    let of_a_file = error.kind() == ErrorKind::Corrupt && error.fact("file").is_some();
    match of_a_file && error.fact("help").is_none() {
        true => error.with("help", "`basestream repair` rebuilds what is damaged"),
        false => error,
    }
}

/// Returns the files that errors call damaged, that the catalog names, and whose damage it does not know of yet.
fn suspects<'e>(state: &CatalogState, errors: &'e [Error]) -> Vec<&'e str> {
    let mut paths: Vec<&str> =
        errors.iter().filter(|error| error.kind() == ErrorKind::Corrupt).filter_map(|error| error.fact("file")).collect();
    paths.sort_unstable();
    paths.dedup();
    paths.retain(|path| state.files.get(path).is_some_and(|file| !file.marked_for_deletion));
    paths.retain(|path| state.damages.iter().all(|known| known.path != *path));
    paths
}

#[cfg(test)]
mod tests;
