//! `list`: shows the newest dead letters, and how many there are of each reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::events::format_timestamp;
use serde::Serialize;
use types::Result;
use types::vector::Offset;

use super::ranges::Replayed;
use super::read::{Letters, files_of};
use super::{DamagedFile, DeadLetter, PINNED_BY, Selection};
use crate::installation::Installation;
use crate::pin::pinned;
use crate::reason;

/// How many characters of a key and of a value are shown.
const KEY_SHOWN: usize = 40;
const VALUE_SHOWN: usize = 120;

/// The result of `list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DeadLetterListing {
    /// Newest first.
    pub dead_letters: Vec<ListedLetter>,
    /// How many match, shown or not.
    pub count: i64,
    /// The reasons of all matches, the most frequent first.
    pub reasons: Vec<ReasonCount>,
    pub damaged: Vec<DamagedFile>,
}

/// A dead letter as it is displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedLetter {
    pub stream: Arc<str>,
    pub partition: i32,
    pub offset: Offset,
    pub timestamp: Option<String>,
    pub reason: String,
    pub key: Option<String>,
    /// The beginning of the value, as text.
    pub value: Option<String>,
    pub value_bytes: usize,
    /// Whether it was appended to the log again.
    pub replayed: bool,
}

/// How often a reason occurs. Reasons that differ only in the value found count as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    pub stream: Arc<str>,
    pub reason: String,
    pub count: i64,
    pub replayed: i64,
}

/// Reads the dead letters of one stream, or of all, and keeps the newest `limit` that match. `progress` is called with
/// the number read.
///
/// A damaged file is reported in the result. Errors: `NotFound` for an unknown stream; those of catalog and storage.
pub async fn list(
    installation: &Installation,
    stream: Option<&str>,
    selection: &Selection,
    limit: usize,
    progress: impl FnMut(u64),
) -> Result<DeadLetterListing> {
    pinned(&installation.catalog, PINNED_BY, list_pinned(installation, stream, selection, limit, progress)).await
}

async fn list_pinned(
    installation: &Installation,
    stream: Option<&str>,
    selection: &Selection,
    limit: usize,
    mut progress: impl FnMut(u64),
) -> Result<DeadLetterListing> {
    let state = installation.catalog.state().await?;
    let files = files_of(&state, stream)?;
    let mut replayed: BTreeMap<Arc<str>, Replayed> = BTreeMap::new();
    let mut counted = Counted::default();
    let mut damaged = Vec::new();
    let mut read = 0;
    for file in files {
        let name: Arc<str> = file.subject.clone().unwrap_or_else(|| "".into());
        if !replayed.contains_key(&name) {
            replayed.insert(name.clone(), Replayed::new(&installation.catalog.replayed_dead_letters(&name).await?));
        }
        let mut letters = Letters::new(file);
        while let Some(some) = letters.next_or_note(&installation.storage, &mut damaged).await? {
            read += some.len() as u64;
            progress(read);
            for letter in some.iter().filter(|letter| selection.fits(letter)) {
                counted.add(letter, replayed[&name].holds(letter.partition, letter.offset));
            }
            counted.keep_newest(limit);
        }
    }
    Ok(DeadLetterListing { damaged, ..counted.finish() })
}

#[derive(Default)]
struct Counted {
    newest: Vec<(Option<i64>, ListedLetter)>,
    count: i64,
    reasons: BTreeMap<(Arc<str>, String), CountedReason>,
}

#[derive(Default)]
struct CountedReason {
    count: i64,
    replayed: i64,
}

impl Counted {
    fn add(&mut self, letter: &DeadLetter, replayed: bool) {
        self.count += 1;
        let counted = self.reasons.entry((letter.stream.clone(), reason::class(&letter.reason))).or_default();
        counted.count += 1;
        counted.replayed += i64::from(replayed);
        self.newest.push((letter.timestamp, listed(letter, replayed)));
    }

    fn keep_newest(&mut self, limit: usize) {
        let order = |(time, listed): &(Option<i64>, ListedLetter)| (*time, listed.partition, listed.offset);
        self.newest.sort_by(|a, b| order(b).cmp(&order(a)).then_with(|| a.1.stream.cmp(&b.1.stream)));
        self.newest.truncate(limit);
    }

    fn finish(self) -> DeadLetterListing {
        let count = |((stream, reason), CountedReason { count, replayed })| ReasonCount { stream, reason, count, replayed };
        let mut reasons: Vec<ReasonCount> = self.reasons.into_iter().map(count).collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        DeadLetterListing {
            dead_letters: self.newest.into_iter().map(|(_, listed)| listed).collect(),
            count: self.count,
            reasons,
            damaged: Vec::new(),
        }
    }
}

fn listed(letter: &DeadLetter, replayed: bool) -> ListedLetter {
    ListedLetter {
        stream: letter.stream.clone(),
        partition: letter.partition,
        offset: letter.offset,
        timestamp: letter.timestamp.map(format_timestamp),
        reason: letter.reason.clone(),
        key: letter.key.as_ref().map(|key| shortened(key, KEY_SHOWN)),
        value: letter.value.as_ref().map(|value| shortened(value, VALUE_SHOWN)),
        value_bytes: letter.value.as_ref().map_or(0, Bytes::len),
        replayed,
    }
}

/// Returns the beginning of arbitrary bytes, as one line of text.
fn shortened(bytes: &[u8], most: usize) -> String {
    // A character has at most four bytes, so the rest of a large value need not be read.
    let start = &bytes[..bytes.len().min(4 * (most + 1))];
    let text = String::from_utf8_lossy(start);
    let mut shown: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if start.len() < bytes.len() || text.chars().nth(most).is_some() {
        shown.push_str("..");
    }
    shown
}
