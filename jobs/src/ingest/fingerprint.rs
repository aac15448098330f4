//! Identifies a file by its content, so a repeat continues where the last run stopped, even if the file was moved or
//! lines were appended.
//!
//! A text file has two names. Its *body* is the hash of its first MiB (or of the whole file, if it is smaller) with the
//! hashed length; the position reached is stored under it. Its *head* is the hash of its first record; the length of
//! each body with this head is stored under a name that begins with it, so a small file that grew is found again by
//! hashing the same number of bytes. Two files that only begin alike are never confused, because the whole body must be
//! equal, and neither hides the other. These numbers are stored:
//!
//! | Name | Number |
//! |---|---|
//! | `HEAD-N` | `N`: the length of a body (older versions stored only that of the last one, under `HEAD`) |
//! | `BODY` | how many records were read: the position |
//! | `BODY-left-out` | how many of these are not in the log |
//! | `BODY-left-out-N` | which: bit `b` is record `60 * N + b`, counted from 0 (older versions stored only how many) |
//! | `BODY-left-out-lost` | of how many of these it is not known which, nor can it be found |
//! | `BODY-ahead` | the number of records up to the last after the position that is in the log |
//! | `BODY-ahead-N` | which of the records after the position are in the log |
//! | `BODY-log` | a hash of the identity of the topic (older versions did not store it) |
//! | `BODY-log-end` | how many offsets it had given out, at least |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use event_log::Log;
use types::{Error, Result};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::PositionStore;
use super::bytes::is_packed;
use super::input::Format;
use crate::input_file::open_input_file;
use crate::output::count_of;

const BODY_BYTES: usize = 1 << 20;
/// A Parquet file's footer, which describes all of its rows, is in its last bytes.
const FOOTER_BYTES: u64 = 64 << 10;
/// A compressed file has no visible lines: its head is this many bytes.
const COMPRESSED_HEAD_BYTES: usize = 1 << 10;

/// How much of an input earlier runs have processed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FilePosition {
    /// How many of its records were read.
    pub(super) done: i64,
    /// Which of these are not in the log, counted from 0: they were no events of the stream when they were read.
    pub(super) left_out: BTreeSet<i64>,
    /// How many more are not: an older version stored only their number. They are the last ones that were no events.
    pub(super) unlisted: i64,
    /// How many of these cannot be found any more: they are events by now.
    pub(super) lost: i64,
    /// The records after the position that are in the log: it took only some of a batch.
    pub(super) ahead: BTreeSet<i64>,
    /// The log that has them. `None` before it was asked, and of an older version.
    pub(super) log: Option<IngestedLog>,
}

/// What shows whether a log still has what was appended to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IngestedLog {
    /// A hash of the topic's identity.
    pub(super) identity: i64,
    /// How many offsets it has given out, at least.
    pub(super) end: i64,
}

impl IngestedLog {
    pub(super) async fn ask(log: &dyn Log, topic: &str) -> Result<IngestedLog> {
        let identity = xxh3_64(log.identity(topic).await?.as_bytes()) as i64;
        Ok(IngestedLog { identity, end: log.offsets_given(topic).await? })
    }

    /// Why a log does not have what was appended to this one, if it does not.
    fn differs_from(self, found: IngestedLog) -> Option<&'static str> {
        match self.identity == found.identity {
            false => Some("the log is another one"),
            true => (found.end < self.end).then_some("the log has lost records since"),
        }
    }
}

impl FilePosition {
    /// Whether an earlier run read a record, or appended one.
    pub(super) fn has_begun(&self) -> bool {
        self.done > 0 || !self.ahead.is_empty()
    }

    /// Refuses a log that does not have what an earlier run appended: a repeat would leave it out.
    pub(super) fn check_log(&self, found: IngestedLog) -> Result<()> {
        let differs = self.log.filter(|_| self.has_begun()).and_then(|then| then.differs_from(found));
        let Some(differs) = differs else { return Ok(()) };
        let records = count_of(self.appended(), "record");
        let message = format!("an earlier run appended {records} of this file, and {differs}");
        Err(Error::conflict(message).with("help", "`--again` appends all records of the file once more"))
    }

    /// How many records of the file are in the log.
    pub(super) fn appended(&self) -> i64 {
        self.done - self.left_out_count() + self.ahead.len() as i64
    }

    /// How many of the records read are not in the log.
    pub(super) fn left_out_count(&self) -> i64 {
        self.left_out.len() as i64 + self.unlisted + self.lost
    }
}

/// Replaces a word in the name of a number: [`FilePosition::lost`].
const LOST: &str = "lost";
/// How many records one saved number remembers: a bit for each.
const BITS: i64 = 60;

/// The names of one file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// The first MiB.
    start: Vec<u8>,
    head: Option<String>,
    body: String,
}

impl Fingerprint {
    pub(super) fn compute(path: &Path, format: Format) -> Result<Self> {
        let mut file = open_input_file(path)?;
        let mut start = Vec::new();
        (&mut file).take(BODY_BYTES as u64).read_to_end(&mut start)?;
        if format == Format::Parquet {
            let body = format!("{}-{}", body(&start), footer(&mut file)?);
            return Ok(Self { start, head: None, body });
        }
        let head = match (is_packed(&start), format) {
            (true, _) => start.get(..COMPRESSED_HEAD_BYTES).map(<[u8]>::to_vec),
            // Many files have the same header.
            (false, Format::Csv) => lines(&start, 2),
            (false, _) => lines(&start, 1),
        };
        let head = head.map(|head| format!("head-{:032x}", xxh3_128(&head)));
        Ok(Self { head, body: body(&start), start })
    }

    /// Returns the names of this file once the content after `bytes` is corrected: those of a file that grew from the
    /// first `bytes`. `None` if its names do not depend on later content, and for a compressed file, which changes as a
    /// whole.
    pub(super) fn corrected_after(&self, bytes: u64) -> Option<Self> {
        let start = self.start.get(..usize::try_from(bytes).ok()?)?;
        let is_same = self.is_packed() || start.len() == self.start.len();
        (!is_same).then(|| Self { start: start.to_vec(), head: self.head.clone(), body: body(start) })
    }

    pub(super) fn is_packed(&self) -> bool {
        is_packed(&self.start)
    }

    /// Returns how much of this file earlier runs have processed.
    pub(super) async fn load(&self, progress: &dyn PositionStore, stream: &str) -> Result<FilePosition> {
        let found = load(progress, stream, &self.body).await?;
        let Some(head) = self.head.as_ref().filter(|_| !found.has_begun()) else { return Ok(found) };
        let lengths: BTreeSet<i64> = progress.load_all(stream, head).await?.into_values().collect();
        // The longest is the last one that this file had.
        for length in lengths.into_iter().rev() {
            let earlier = usize::try_from(length).ok().and_then(|length| self.start.get(..length));
            let Some(earlier) = earlier.filter(|earlier| !earlier.is_empty()) else { continue };
            let place = load(progress, stream, &body(earlier)).await?;
            if place.has_begun() {
                return Ok(place);
            }
        }
        Ok(found)
    }

    /// Saves the names, so the file is found after it has grown, and what earlier runs did under another name.
    pub(super) async fn begin(&self, progress: &dyn PositionStore, stream: &str, place: &FilePosition) -> Result<()> {
        let saved = progress.load_all(stream, &self.body).await?;
        let mut numbers = self.numbers(place);
        // Under this name an earlier run may have left out records that are in the log by now.
        let of_earlier_run = |name: &str| name.starts_with(&left_out_word(&self.body, "")) || name.starts_with(&ahead_to(&self.body));
        for (name, number) in &saved {
            if *number != 0 && of_earlier_run(name) {
                numbers.entry(name.clone()).or_insert(0);
            }
        }
        numbers.retain(|name, number| saved.get(name).copied().unwrap_or(0) != *number);
        let length = self.start.len();
        numbers.extend(self.head.as_ref().map(|head| (format!("{head}-{length}"), length as i64)));
        match numbers.is_empty() {
            true => Ok(()),
            false => progress.save(stream, numbers.into_iter().collect()).await,
        }
    }

    /// Saves the position, and of the records left out those that changed.
    pub(super) async fn save(
        &self,
        progress: &dyn PositionStore,
        stream: &str,
        place: &FilePosition,
        changed: &BTreeSet<i64>,
    ) -> Result<()> {
        let mut numbers = self.position(place);
        for word in changed.iter().map(|index| index / BITS).collect::<BTreeSet<i64>>() {
            let bits = place.left_out.range(word * BITS..(word + 1) * BITS).fold(0, |bits, index| bits | bit(*index));
            numbers.insert(left_out_word(&self.body, word), bits);
        }
        progress.save(stream, numbers.into_iter().collect()).await
    }

    /// All numbers that are saved of a position, by their names.
    fn numbers(&self, place: &FilePosition) -> BTreeMap<String, i64> {
        let mut numbers = self.position(place);
        numbers.extend(words(place.left_out.iter()).into_iter().map(|(word, bits)| (left_out_word(&self.body, word), bits)));
        numbers
    }

    /// All but which records were left out.
    fn position(&self, place: &FilePosition) -> BTreeMap<String, i64> {
        let ahead = place.ahead.range(place.done..);
        let last = ahead.clone().next_back().map(|last| (ahead_to(&self.body), last + 1));
        let ahead = words(ahead).into_iter().map(|(word, bits)| (ahead_word(&self.body, word), bits));
        let counts = [(self.body.clone(), place.done), (left_out(&self.body), place.left_out_count())];
        let lost = (place.lost > 0).then(|| (left_out_word(&self.body, LOST), place.lost));
        let log = place.log.map(|log| [(log_word(&self.body), log.identity), (log_end_word(&self.body), log.end)]);
        counts.into_iter().chain(lost).chain(ahead).chain(last).chain(log.into_iter().flatten()).collect()
    }
}

async fn load(progress: &dyn PositionStore, stream: &str, body: &str) -> Result<FilePosition> {
    let saved = progress.load_all(stream, body).await?;
    let number = |name: &str| saved.get(name).copied().unwrap_or(0);
    let done = number(body).max(0);
    let mut place = FilePosition { done, ..FilePosition::default() };
    let end = number(&ahead_to(body));
    for (name, bits) in &saved {
        if let Some(word) = word_of(name, &ahead_word(body, "")) {
            place.ahead.extend(indices(word, *bits).filter(|index| (done..end).contains(index)));
        } else if let Some(word) = word_of(name, &left_out_word(body, "")) {
            place.left_out.extend(indices(word, *bits).filter(|index| *index < done));
        }
    }
    let unknown = (number(&left_out(body)).min(done) - place.left_out.len() as i64).max(0);
    place.lost = number(&left_out_word(body, LOST)).clamp(0, unknown);
    place.unlisted = unknown - place.lost;
    let log = saved.get(&log_word(body)).zip(saved.get(&log_end_word(body)));
    place.log = log.map(|(identity, end)| IngestedLog { identity: *identity, end: *end });
    Ok(place)
}

/// Each [`BITS`] records that hold one of these are a word.
fn words<'a>(indices: impl Iterator<Item = &'a i64>) -> BTreeMap<i64, i64> {
    let mut words: BTreeMap<i64, i64> = BTreeMap::new();
    for index in indices {
        *words.entry(index / BITS).or_default() |= bit(*index);
    }
    words
}

fn bit(index: i64) -> i64 {
    1 << (index % BITS)
}

fn indices(word: i64, bits: i64) -> impl Iterator<Item = i64> {
    (0..BITS).filter(move |bit| (bits >> bit) & 1 == 1).map(move |bit| word * BITS + bit)
}

/// The word that a name with this beginning has at its end.
fn word_of(name: &str, beginning: &str) -> Option<i64> {
    name.strip_prefix(beginning)?.parse().ok()
}

/// The name of the number that has a bit for each of [`BITS`] records after the position.
fn ahead_word(body: &str, word: impl Display) -> String {
    format!("{body}-ahead-{word}")
}

/// The name of the number of records up to the last that is ahead.
fn ahead_to(body: &str) -> String {
    format!("{body}-ahead")
}

/// The name of the number of records before the position that are not in the log.
fn left_out(body: &str) -> String {
    format!("{body}-left-out")
}

/// The name of the number that has a bit for each of [`BITS`] records before the position that are not in the log.
fn left_out_word(body: &str, word: impl Display) -> String {
    format!("{body}-left-out-{word}")
}

/// The name of the hash of the topic's identity.
fn log_word(body: &str) -> String {
    format!("{body}-log")
}

/// The name of the number that the ends of the topic had reached.
fn log_end_word(body: &str) -> String {
    format!("{body}-log-end")
}

fn body(start: &[u8]) -> String {
    format!("{}-{:032x}", start.len(), xxh3_128(start))
}

/// Returns the first `count` lines with their ends; `None` if there are fewer. The last line of a file gets the end
/// that it has once the file has grown.
fn lines(start: &[u8], count: usize) -> Option<Vec<u8>> {
    let found: Vec<&[u8]> = start.split_inclusive(|byte| *byte == b'\n').take(count).collect();
    if found.len() < count {
        return None;
    }
    let mut head = found.concat();
    if !head.ends_with(b"\n") {
        head.push(b'\n');
    }
    (head.len() <= BODY_BYTES).then_some(head)
}

fn footer(file: &mut File) -> Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(FOOTER_BYTES)))?;
    let mut footer = Vec::new();
    file.read_to_end(&mut footer)?;
    Ok(format!("{length}-{:032x}", xxh3_128(&footer)))
}
