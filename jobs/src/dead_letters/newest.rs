//! The most frequent reason of the newest dead letters, for reports that are made every few seconds: each file is read
//! once, and only if that is cheap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray};
use catalog::CatalogState;
use futures::TryStreamExt;
use storage::{ObjectStorage, read_dead_letter_reasons};
use tokio::time::{Instant, timeout_at};
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::reasons::{FrequentReason, ReasonTally};

/// A larger file is not read.
const MAX_BYTES: i64 = 4 << 20;
/// The most letters of a file that are read.
const MAX_LETTERS: usize = 10_000;
/// The most files that are read for one report. The others are read for the next ones.
const FILES_PER_REPORT: usize = 16;
/// How long a report waits for all of its files.
const WAIT: Duration = Duration::from_secs(1);

/// What was found in the newest dead-letter files.
#[derive(Debug, Default)]
pub(crate) struct NewestDeadLetters {
    /// By stream: the path of the file, and what was found in it. There is nothing yet where the file could not be
    /// fetched; `None` stands for one that is empty or damaged, or takes longer than a report waits.
    found: BTreeMap<Arc<str>, (String, Option<FrequentReason>)>,
    /// The stream whose file was tried last. The next report begins with the one after it.
    last: Option<Arc<str>>,
}

impl NewestDeadLetters {
    /// Returns the most frequent reason in the newest file of each stream of which records became dead letters at
    /// `since` or later, as far as it is known.
    pub(crate) async fn reasons(
        &mut self,
        storage: &ObjectStorage,
        state: &CatalogState,
        since: Micros,
    ) -> BTreeMap<Arc<str>, FrequentReason> {
        self.read(&newest_files(state, since), |file| most_frequent(storage, file)).await;
        self.found.iter().filter_map(|(stream, (_, reason))| Some((stream.clone(), reason.clone()?))).collect()
    }

    /// Reads the files that are not read yet, one after the other, until the report has waited long enough.
    async fn read<R: Future<Output = Result<Option<FrequentReason>>>>(
        &mut self,
        newest: &BTreeMap<Arc<str>, &FileRecord>,
        reason_in: impl Fn(FileRecord) -> R,
    ) {
        self.found.retain(|stream, (path, _)| newest.get(stream).is_some_and(|file| file.path == *path));
        let deadline = Instant::now() + WAIT;
        for (index, (stream, file)) in self.unread(newest).into_iter().take(FILES_PER_REPORT).enumerate() {
            let read = timeout_at(deadline, reason_in(file.clone())).await;
            let is_late = read.is_err();
            if is_late && index > 0 {
                // The files before it took the time. It is the first one of the next report.
                return;
            }
            let may_be_there_later = matches!(&read, Ok(Err(error)) if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound));
            if !may_be_there_later {
                let reason = read.ok().and_then(Result::ok).flatten();
                self.found.insert(stream.clone(), (file.path.clone(), reason));
            }
            self.last = Some(stream);
            if is_late {
                return;
            }
        }
    }

    /// Returns the files that are small enough and not read yet, beginning after the stream that was tried last.
    fn unread<'f>(&self, newest: &BTreeMap<Arc<str>, &'f FileRecord>) -> Vec<(Arc<str>, &'f FileRecord)> {
        let is_unread = |stream: &Arc<str>, file: &FileRecord| !self.found.contains_key(stream) && file.bytes <= MAX_BYTES;
        let unread = newest.iter().filter(|(stream, file)| is_unread(stream, file));
        let mut unread: Vec<(Arc<str>, &FileRecord)> = unread.map(|(stream, file)| (stream.clone(), *file)).collect();
        let tried = unread.partition_point(|(stream, _)| self.last.as_ref().is_some_and(|last| stream <= last));
        unread.rotate_left(tried);
        unread
    }
}

async fn most_frequent(storage: &ObjectStorage, file: FileRecord) -> Result<Option<FrequentReason>> {
    let lacking = || Error::corrupt("a dead-letter file lacks a column").with("column", "reason").with("file", &file.path);
    let (mut batches, mut reasons) = (read_dead_letter_reasons(storage, &file).await?, ReasonTally::default());
    let mut unread = MAX_LETTERS;
    while unread > 0 {
        let Some(batch) = batches.try_next().await? else { break };
        let column = batch.column(0).as_string_opt::<i32>().ok_or_else(lacking)?;
        (0..column.len().min(unread)).for_each(|row| reasons.add(column.value(row).to_owned()));
        unread = unread.saturating_sub(column.len());
    }
    Ok(reasons.most_frequent())
}

/// The newest dead-letter file of each stream of which records became dead letters at `since` or later.
fn newest_files(state: &CatalogState, since: Micros) -> BTreeMap<Arc<str>, &FileRecord> {
    let mut newest: BTreeMap<&Arc<str>, Uuid> = BTreeMap::new();
    for checkpoint in state.checkpoints.iter().filter(|checkpoint| checkpoint.committed_at >= since) {
        for range in checkpoint.ranges.iter().filter(|range| range.dead_lettered > 0) {
            let known = newest.entry(&range.partition.stream).or_insert(checkpoint.id);
            *known = checkpoint.id.max(*known);
        }
    }
    let mut files = BTreeMap::new();
    for (stream, checkpoint) in newest {
        let mut of_checkpoint = state.readable_of(checkpoint, FileKind::DeadLetters);
        files.extend(of_checkpoint.find(|file| file.subject.as_ref() == Some(stream)).map(|file| (stream.clone(), file)));
    }
    files
}

#[cfg(test)]
mod tests;
