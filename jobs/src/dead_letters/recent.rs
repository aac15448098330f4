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

/// Reads the dead letters of the checkpoints since `since`; if nothing was replayed, only those of the newest file.
pub async fn recent(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &str,
    replays: &[ReplayedDeadLetters],
    since: Micros,
) -> Result<RecentDeadLetters> {
    let checkpoints: BTreeSet<_> = state.checkpoints.iter().filter(|c| c.committed_at >= since).map(|c| Some(c.id)).collect();
    let files = files_of(state, Some(stream))?;
    let files: Vec<&FileRecord> = match replays {
        [] => files.into_iter().last().into_iter().collect(),
        _ => files.into_iter().filter(|file| checkpoints.contains(&file.checkpoint)).collect(),
    };
    let again = Replayed::new(replays);
    let (mut replayed, mut reasons) = (0, ReasonTally::default());
    for file in files {
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
    }
    Ok(RecentDeadLetters { replayed, reason: reasons.most_frequent().map(Ok) })
}
