//! Summarises the recent dead letters: how many are in the log again, and why the others failed.

use std::collections::BTreeSet;

use catalog::{CatalogState, ReplayedDeadLetters};
use storage::ObjectStorage;
use types::Result;
use types::files::FileRecord;
use types::tiles::Micros;

use super::ranges::Replayed;
use super::read::{Letters, files_of};
use super::reasons::{FrequentReason, ReasonTally};

/// The recent dead letters of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentDeadLetters {
    /// How many were appended to the log again.
    pub replayed: i64,
    /// The most frequent reason of the others, or why they cannot be read; `None` if there are no others.
    pub reason: Option<Result<FrequentReason, String>>,
}

/// If nothing was replayed, the newest files are read until they have this many letters.
const ENOUGH_LETTERS: i64 = 1_000;
/// At most this many files are read then: each checkpoint may have one, with a single letter.
const MOST_FILES: usize = 16;

/// Reads the dead letters of the checkpoints since `since`; if nothing was replayed, only the newest ones.
pub async fn recent(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &str,
    replays: &[ReplayedDeadLetters],
    since: Micros,
) -> Result<RecentDeadLetters> {
    let checkpoints: BTreeSet<_> = state.checkpoints.iter().filter(|c| c.committed_at >= since).map(|c| Some(c.id)).collect();
    let files = files_of(state, Some(stream))?.into_iter().filter(|file| checkpoints.contains(&file.checkpoint));
    let reads_all = !replays.is_empty();
    let again = Replayed::new(replays);
    let (mut replayed, mut reasons) = (0, ReasonTally::default());
    for file in files.rev().take(if reads_all { usize::MAX } else { MOST_FILES }) {
        if !reads_all && reasons.count() >= ENOUGH_LETTERS {
            break;
        }
        match add_letters(storage, file, &again, &mut reasons).await {
            Ok(count) => replayed += count,
            Err(error) if reads_all || reasons.count() == 0 => return Err(error),
            // What the newer ones say is enough.
            Err(_) => break,
        }
    }
    Ok(RecentDeadLetters { replayed, reason: reasons.most_frequent().map(Ok) })
}

/// Counts the reasons of the letters of a file that were not replayed. Returns how many were.
async fn add_letters(storage: &ObjectStorage, file: &FileRecord, again: &Replayed, reasons: &mut ReasonTally) -> Result<i64> {
    let mut replayed = 0;
    let mut letters = Letters::new(file);
    while let Some(some) = letters.next(storage).await? {
        for letter in some {
            if again.holds(letter.partition, letter.offset) {
                replayed += 1;
            } else {
                reasons.add(letter.reason);
            }
        }
    }
    Ok(replayed)
}
