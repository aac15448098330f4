//! Decodes a stream's archive again from its raw records: a column that was added is filled, and a corrected type or
//! path holds for all events.
//!
//! ```text
//! archive files --survey--> what is decoded, its cost --decode--> new files beside the old ones --apply--> the switch
//! ```
//!
//! Which records are events was decided before, and stays: the files keep their rows, order and offsets. Nothing here
//! changes the catalog. A new file that no switch names is an orphan, which the collector deletes.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{CatalogState, RedecodedFile};
use definitions::StreamDefinition;
use engine::events::OnMisfit;
use futures::{StreamExt, TryStreamExt};
use storage::{ArchiveFacts, ObjectStorage};
use tracing::{info, warn};
use types::files::FileRecord;
use types::{Result, failpoint};

mod changed_columns;
mod file_decoder;
mod misfits;
mod readers;
mod redecoders;
mod survey;

pub use changed_columns::ChangedColumn;
pub use misfits::{ListedMisfit, Misfits};
pub use readers::ReadingView;
pub use survey::{Survey, survey};

pub(crate) use changed_columns::changed_columns;
pub(crate) use readers::{views_over, views_that_read};

use file_decoder::{Decoded, DecodedFile, FileDecoder};
use redecoders::{redecoder_of, redecoders};

/// How many files are decoded concurrently at most.
const FILES_AT_ONCE: usize = 4;

/// A stream's definition by which its archive is decoded.
#[derive(Debug, Clone)]
pub struct BackfillTarget {
    pub definition: Arc<StreamDefinition>,
    pub version: u32,
    pub on_misfit: OnMisfit,
}

/// The progress of a decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodingProgress {
    /// How many more bytes are to be read.
    Total(u64),
    Read(u64),
}

/// Whether decoded events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Write,
    /// They are decoded to list the records that do not fit.
    List,
}

/// Receives the progress of a decoding.
pub type OnProgress<'a> = dyn Fn(DecodingProgress) + Send + Sync + 'a;

/// How archived files are decoded again.
#[derive(Clone, Copy)]
pub struct FileDecoding<'a> {
    pub storage: &'a ObjectStorage,
    pub mode: Mode,
    pub progress: &'a OnProgress<'a>,
}

/// The new files so far. Another survey of the stream goes on after them.
#[derive(Debug, Default)]
pub struct Staged {
    facts: BTreeMap<String, ArchiveFacts>,
    /// By the path of the file that is replaced.
    files: BTreeMap<String, RedecodedFile>,
}

impl BackfillTarget {
    fn stream(&self) -> &Arc<str> {
        &self.definition.name
    }
}

impl Staged {
    /// Decodes the surveyed files that are not written yet, and writes them again with [`Mode::Write`]; returns how
    /// many were written. From the first record on that does not fit, the rest is read only to list the others.
    pub async fn decode(
        &mut self,
        state: &CatalogState,
        target: &BackfillTarget,
        survey: &mut Survey,
        decoding: FileDecoding<'_>,
    ) -> Result<usize> {
        let FileDecoding { storage, mode, progress } = decoding;
        let redecoders = redecoders(state, target)?;
        let waiting: Vec<&(FileRecord, ArchiveFacts)> =
            survey.work.iter().filter(|(file, _)| !self.files.contains_key(&file.path)).collect();
        if waiting.is_empty() {
            return Ok(0);
        }
        info!(stream = %survey.stream, version = survey.version, files = waiting.len(), "the archive is decoded again");
        progress(DecodingProgress::Total(waiting.iter().map(|(file, _)| file.bytes.max(0) as u64).sum()));
        let files = FileDecoder::new(storage, target.version, mode == Mode::Write);
        let mut decoding = Vec::with_capacity(waiting.len());
        for (file, facts) in waiting {
            let redecoder = redecoder_of(&redecoders, file, *facts)?.clone();
            decoding.push(files.decode(file.clone(), *facts, redecoder));
        }
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(FILES_AT_ONCE);
        let mut decoded = futures::stream::iter(decoding).buffered(at_once);
        let (mut written, mut misfits) = (0, Misfits::default());
        while let Some(DecodedFile { old, outcome }) = decoded.try_next().await? {
            progress(DecodingProgress::Read(old.bytes.max(0) as u64));
            match outcome {
                Decoded::Written(new) => {
                    self.files.insert(old.path.clone(), RedecodedFile { old, new });
                    written += 1;
                }
                Decoded::Fits => {}
                Decoded::Misfits(found) => misfits.append(found),
            }
            failpoint::hit("backfill.file_decoded")?;
        }
        drop(decoded);
        survey.misfits = (misfits.count > 0).then_some(misfits);
        Ok(written)
    }

    /// Returns each surveyed file with the one that was written for it.
    pub fn replaced(&self, survey: &Survey) -> Vec<RedecodedFile> {
        survey.work.iter().filter_map(|(file, _)| self.files.get(&file.path)).cloned().collect()
    }

    /// Deletes the new files except those of `kept`. What cannot be deleted is an orphan.
    pub async fn discard(self, storage: &ObjectStorage, kept: &[&Survey]) {
        let is_kept = |old: &str| kept.iter().any(|survey| survey.work.iter().any(|(file, _)| file.path == old));
        for (_, file) in self.files.iter().filter(|(old, _)| !is_kept(old)) {
            if let Err(error) = storage.delete(&file.new.path).await {
                warn!(file = %file.new.path, %error, "a file that is not needed was not deleted; the collector does it");
            }
        }
    }
}

#[cfg(test)]
mod tests;
