//! Reads every byte of every file that the catalog names.

use std::sync::Arc;

use catalog::CatalogState;
use committed::registry::Registry;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use storage::{ObjectStorage, check_file};
use types::files::{FileKind, FileRecord};
use types::{ErrorKind, Result};

/// How many files are read concurrently.
const AT_ONCE: usize = 4;

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckProgress {
    /// The total number of bytes.
    Total(u64),
    Read(u64),
}

/// A file whose content is not what was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Damaged {
    pub file: FileRecord,
    /// What is wrong: path, position, found and expected.
    pub error: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckedFiles {
    pub damaged: Vec<Damaged>,
    pub whole: Vec<String>,
    pub bytes: u64,
}

/// Returns the files to check: all that the catalog names, or those of one stream and those derived from it.
pub(super) fn chosen(state: &CatalogState, registry: &Registry, stream: Option<&Arc<str>>) -> Vec<FileRecord> {
    let Some(stream) = stream else { return named(state).cloned().collect() };
    let has_stream = |file: &FileRecord| {
        let checkpoint = file.checkpoint.and_then(|id| state.checkpoints.get(id));
        checkpoint.is_some_and(|checkpoint| checkpoint.ranges.iter().any(|range| range.partition.stream == *stream))
    };
    let reads_stream =
        |view: &str| registry.views.iter().any(|live| &*live.name == view && live.plan.streams.iter().any(|s| s.name == *stream));
    let is_chosen = |file: &&FileRecord| match file.kind {
        FileKind::Archive | FileKind::Superseded | FileKind::DeadLetters => file.subject.as_ref() == Some(stream),
        FileKind::States => has_stream(file),
        FileKind::Snapshot | FileKind::Manifest => file.subject.as_deref().is_some_and(reads_stream),
    };
    named(state).filter(is_chosen).cloned().collect()
}

/// Returns the files of these records that are not marked for deletion.
pub(super) fn named(state: &CatalogState) -> impl Iterator<Item = &FileRecord> {
    state.files.iter().filter(|file| !file.marked_for_deletion)
}

pub(super) async fn check(
    storage: &ObjectStorage,
    files: &[FileRecord],
    progress: &(dyn Fn(CheckProgress) + Send + Sync),
) -> Result<CheckedFiles> {
    progress(CheckProgress::Total(files.iter().map(|file| file.bytes.max(0) as u64).sum()));
    // Collected first: with a closure in the stream this future could not be spawned.
    let checks: Vec<_> = files.iter().map(|file| check_one(storage, file, progress)).collect();
    let found: Vec<Option<Damaged>> = futures::stream::iter(checks).buffered(AT_ONCE).try_collect().await?;
    let mut checked = CheckedFiles { bytes: files.iter().map(|file| file.bytes.max(0) as u64).sum(), ..CheckedFiles::default() };
    for (file, damaged) in files.iter().zip(found) {
        match damaged {
            Some(damaged) => checked.damaged.push(damaged),
            None => checked.whole.push(file.path.clone()),
        }
    }
    Ok(checked)
}

async fn check_one(
    storage: &ObjectStorage,
    file: &FileRecord,
    progress: &(dyn Fn(CheckProgress) + Send + Sync),
) -> Result<Option<Damaged>> {
    match check_file(storage, file, |bytes| progress(CheckProgress::Read(bytes))).await {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Some(Damaged { file: file.clone(), error: error.to_string() })),
        Err(error) => Err(error),
    }
}
