//! Summarises the recent dead letters: how many are in the log again, and why the others failed.

use std::collections::{BTreeMap, BTreeSet};

use catalog::{CatalogState, ReplayedDeadLetters};
use storage::ObjectStorage;
use types::Result;
use types::files::FileRecord;
use types::tiles::Micros;

use super::ranges::Replayed;
use super::read::{Letters, files_of};
use crate::reason;

/// The recent dead letters of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentDeadLetters {
    /// How many were appended to the log again.
    pub replayed: i64,
    /// The full reason of one of the others, chosen from the most frequent reason.
    pub reason: Option<String>,
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
    let mut found = RecentDeadLetters::default();
    let mut reasons: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for file in files {
        let mut letters = Letters::new(file);
        while let Some(some) = letters.next(storage).await? {
            for letter in some {
                if again.holds(letter.partition, letter.offset) {
                    found.replayed += 1;
                } else {
                    reasons.entry(reason::class(&letter.reason)).or_insert((0, letter.reason)).0 += 1;
                }
            }
        }
    }
    found.reason = reasons.into_values().max_by_key(|(count, _)| *count).map(|(_, example)| example);
    Ok(found)
}
