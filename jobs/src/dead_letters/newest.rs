//! The most frequent reason of the newest dead letters, for reports that are made every few seconds: each file is read
//! once, and only if that is cheap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::CatalogState;
use storage::ObjectStorage;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::{ErrorKind, Result};
use uuid::Uuid;

use super::read::Letters;
use super::reasons::{FrequentReason, ReasonTally};

/// A larger file is not read.
const MAX_BYTES: i64 = 4 << 20;
/// The most files that are read for one report. The others are read for the next ones.
const FILES_AT_ONCE: usize = 16;
/// How long a report waits for a file.
const WAIT: Duration = Duration::from_secs(1);

/// What was found in the newest dead-letter file of each stream, by the file's path. Where the file could not be
/// fetched there is nothing yet; `None` stands for one that is empty or damaged.
#[derive(Debug, Default)]
pub(crate) struct NewestDeadLetters(BTreeMap<Arc<str>, (String, Option<FrequentReason>)>);

impl NewestDeadLetters {
    /// Returns the most frequent reason in the newest file of each stream of which records became dead letters at
    /// `since` or later, as far as it is known.
    pub(crate) async fn reasons(
        &mut self,
        storage: &ObjectStorage,
        state: &CatalogState,
        since: Micros,
    ) -> BTreeMap<Arc<str>, FrequentReason> {
        let newest = newest_files(state, since);
        self.0.retain(|stream, (path, _)| newest.get(stream).is_some_and(|file| file.path == *path));
        let unread = newest.iter().filter(|(stream, file)| !self.0.contains_key(*stream) && file.bytes <= MAX_BYTES);
        let reading: Vec<_> = unread.take(FILES_AT_ONCE).map(|(stream, file)| read(storage, stream, file)).collect();
        self.0.extend(futures::future::join_all(reading).await.into_iter().flatten());
        self.0.iter().filter_map(|(stream, (_, reason))| Some((stream.clone(), reason.clone()?))).collect()
    }
}

type ReadFile = (Arc<str>, (String, Option<FrequentReason>));

/// Returns what is in a file, or `None` if it may be there next time.
async fn read(storage: &ObjectStorage, stream: &Arc<str>, file: &FileRecord) -> Option<ReadFile> {
    let found = match tokio::time::timeout(WAIT, most_frequent(storage, file)).await.ok()? {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) => None,
        Err(_) => return None,
    };
    Some((stream.clone(), (file.path.clone(), found)))
}

async fn most_frequent(storage: &ObjectStorage, file: &FileRecord) -> Result<Option<FrequentReason>> {
    let (mut letters, mut reasons) = (Letters::new(file), ReasonTally::default());
    while let Some(some) = letters.next(storage).await? {
        some.into_iter().for_each(|letter| reasons.add(letter.reason));
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
