//! Which files of a stream's archive are decoded again, from their footers.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{ArchiveBounds, CatalogState, archive_files};
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use storage::{ArchiveFacts, ObjectStorage, archive_facts};
use types::files::FileRecord;
use types::{ErrorKind, Result};

use super::changed_columns::{ChangedColumn, changed_columns, changes_between};
use super::misfits::Misfits;
use super::redecoders::{redecoder_of, redecoders};
use super::{BackfillTarget, Staged};

/// How many footers are read concurrently.
const FOOTERS_AT_ONCE: usize = 16;

/// What is decoded again of one stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Survey {
    pub stream: Arc<str>,
    /// The version of the definition that decodes.
    pub version: u32,
    pub columns: Vec<ChangedColumn>,
    pub files: usize,
    pub events: i64,
    /// The size of the files that are read; the new ones have about the same.
    pub bytes: i64,
    /// Events that were archived without their raw records: added columns stay NULL in them, changed ones do not fit.
    pub without_raw: i64,
    /// Records that do not fit, once they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfits: Option<Misfits>,
    #[serde(skip)]
    pub(super) work: Vec<(FileRecord, ArchiveFacts)>,
}

impl Survey {
    /// The names of the columns.
    pub fn column_names(&self) -> BTreeSet<String> {
        self.columns.iter().map(|changed| changed.column.clone()).collect()
    }
}

/// Finds out which archive files are to be decoded, from their footers.
pub async fn survey(storage: &ObjectStorage, state: &CatalogState, target: &BackfillTarget, staged: &mut Staged) -> Result<Survey> {
    let redecoders = redecoders(state, target)?;
    let mut columns = changed_columns(state, target)?;
    let mut survey = Survey { stream: target.stream().clone(), version: target.version, ..Survey::default() };
    for (file, facts) in files_of(storage, state, target.stream(), staged).await? {
        let redecoder = redecoder_of(&redecoders, &file, facts)?;
        if redecoder.columns().next().is_none() {
            continue;
        }
        if !facts.keeps_raw {
            survey.without_raw += file.rows;
            if redecoder.lost_without_raw().is_empty() {
                continue;
            }
        }
        columns.extend(changes_between(redecoder.before(), &target.definition));
        survey.files += 1;
        survey.events += file.rows;
        survey.bytes += file.bytes;
        survey.work.push((file, facts));
    }
    survey.columns = columns.into_iter().collect();
    Ok(survey)
}

/// Returns the stream's readable archive files in the order of their checkpoints, each with its facts. A damaged file
/// ends it.
async fn files_of(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &Arc<str>,
    staged: &mut Staged,
) -> Result<Vec<(FileRecord, ArchiveFacts)>> {
    let mut files = archive_files(state, std::slice::from_ref(stream), ArchiveBounds::default());
    files.sort_by_key(|file| file.checkpoint.and_then(|id| state.checkpoints.get(id)).map(|checkpoint| checkpoint.revision));
    let unknown: Vec<FileRecord> = files.iter().filter(|file| !staged.facts.contains_key(&file.path)).map(|file| (*file).clone()).collect();
    // Collected first: with a closure in the stream this future could not be spawned.
    let reading: Vec<_> = unknown.into_iter().map(|file| facts_of(storage, file)).collect();
    let read: Vec<(String, ArchiveFacts)> = futures::stream::iter(reading).buffered(FOOTERS_AT_ONCE).try_collect().await?;
    staged.facts.extend(read);
    Ok(files.into_iter().filter_map(|file| Some((file.clone(), *staged.facts.get(&file.path)?))).collect())
}

async fn facts_of(storage: &ObjectStorage, file: FileRecord) -> Result<(String, ArchiveFacts)> {
    let facts = archive_facts(storage, &file).await.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => error.with("help", "`basestream repair` rebuilds what is damaged; then try again"),
        _ => error,
    })?;
    Ok((file.path, facts))
}
