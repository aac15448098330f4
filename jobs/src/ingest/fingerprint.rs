//! Identifies a file by its content, so a repeat continues where the last run stopped, even if the file was moved or
//! lines were appended.
//!
//! A text file has two names. Its *body* is the hash of its first MiB (or of the whole file, if it is smaller) with the
//! hashed length; the position reached is stored under it. Its *head* is the hash of its first record; the length of
//! the body is stored under it, so a small file that grew is found again by hashing the same number of bytes. Two files
//! that only begin alike are never confused, because the whole body must be equal. The number of records before the
//! position that were left out of the log is stored with the position, and so are the records after it that are in the
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use types::Result;
use xxhash_rust::xxh3::xxh3_128;

use super::PositionStore;
use super::bytes::{is_packed, open_file};
use super::input::Format;

const BODY_BYTES: usize = 1 << 20;
/// A Parquet file's footer, which describes all of its rows, is in its last bytes.
const FOOTER_BYTES: u64 = 64 << 10;
/// A compressed file has no visible lines: its head is this many bytes.
const COMPRESSED_HEAD_BYTES: usize = 1 << 10;

/// How much of an input earlier runs have processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FilePosition {
    /// How many of its records were read.
    pub(super) done: i64,
    /// How many of these are not in the log: the last ones that are not events of the stream.
    pub(super) left_out: i64,
}

/// The records, counted from 0, that are in the log although a record before them is not.
pub(super) type Ahead = BTreeSet<i64>;

/// So many records are remembered by one saved number: a bit for each.
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
        let mut file = open_file(path)?;
        let mut start = Vec::new();
        (&mut file).take(BODY_BYTES as u64).read_to_end(&mut start)?;
        if format == Format::Parquet {
            let body = format!("{}-{}", body(&start), footer(&mut file)?);
            return Ok(Self { start, head: None, body });
        }
        let head = match (is_packed(&start), format) {
            (true, _) => start.get(..COMPRESSED_HEAD_BYTES),
            // Many files have the same header.
            (false, Format::Csv) => lines(&start, 2),
            (false, _) => lines(&start, 1),
        };
        let head = head.map(|head| format!("head-{:032x}", xxh3_128(head)));
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
    pub(super) async fn load(&self, progress: &dyn PositionStore, stream: &str) -> Result<(FilePosition, Ahead)> {
        let found = load(progress, stream, &self.body).await?;
        let Some(head) = self.head.as_ref().filter(|_| found.0.done == 0) else { return Ok(found) };
        let earlier_bytes = usize::try_from(progress.load(stream, head).await?).unwrap_or(0);
        match self.start.get(..earlier_bytes) {
            Some(earlier) if earlier_bytes > 0 => load(progress, stream, &body(earlier)).await,
            _ => Ok(found),
        }
    }

    /// Saves the names, so the file is found after it has grown. The position is saved first: a head without it would
    /// lose it.
    pub(super) async fn begin(&self, progress: &dyn PositionStore, stream: &str, place: FilePosition, ahead: &Ahead) -> Result<()> {
        self.save_ahead(progress, stream, place, ahead).await?;
        if place.left_out > 0 {
            self.save_left_out(progress, stream, place).await?;
        }
        self.save_done(progress, stream, place).await?;
        match &self.head {
            Some(head) => progress.save(stream, head, self.start.len() as i64).await,
            None => Ok(()),
        }
    }

    pub(super) async fn save_done(&self, progress: &dyn PositionStore, stream: &str, place: FilePosition) -> Result<()> {
        progress.save(stream, &self.body, place.done).await
    }

    pub(super) async fn save_left_out(&self, progress: &dyn PositionStore, stream: &str, place: FilePosition) -> Result<()> {
        progress.save(stream, &left_out(&self.body), place.left_out).await
    }

    /// Saves which records after the position are in the log; how far they reach last.
    pub(super) async fn save_ahead(&self, progress: &dyn PositionStore, stream: &str, place: FilePosition, ahead: &Ahead) -> Result<()> {
        let mut words: BTreeMap<i64, i64> = BTreeMap::new();
        for index in ahead.range(place.done..) {
            *words.entry(index / BITS).or_default() |= 1_i64 << (index % BITS);
        }
        for (word, bits) in words {
            progress.save(stream, &word_of(&self.body, word), bits).await?;
        }
        match ahead.range(place.done..).next_back() {
            Some(last) => progress.save(stream, &ahead_to(&self.body), last + 1).await,
            None => Ok(()),
        }
    }
}

async fn load(progress: &dyn PositionStore, stream: &str, body: &str) -> Result<(FilePosition, Ahead)> {
    let (done, left_out) = (progress.load(stream, body).await?.max(0), progress.load(stream, &left_out(body)).await?);
    let mut ahead = Ahead::new();
    let end = progress.load(stream, &ahead_to(body)).await?;
    if end > done {
        for word in done / BITS..=(end - 1) / BITS {
            let bits = progress.load(stream, &word_of(body, word)).await?;
            let indices = (0..BITS).filter(|bit| (bits >> bit) & 1 == 1).map(|bit| word * BITS + bit);
            ahead.extend(indices.filter(|index| *index >= done));
        }
    }
    Ok((FilePosition { done, left_out: left_out.clamp(0, done) }, ahead))
}

/// The name of the number that has a bit for each of [`BITS`] records.
fn word_of(body: &str, word: i64) -> String {
    format!("{body}-ahead-{word}")
}

/// The name of the number of records up to the last that is ahead.
fn ahead_to(body: &str) -> String {
    format!("{body}-ahead")
}

fn left_out(body: &str) -> String {
    format!("{body}-left-out")
}

fn body(start: &[u8]) -> String {
    format!("{}-{:032x}", start.len(), xxh3_128(start))
}

/// Returns the first `count` lines with their ends; `None` if there are fewer.
fn lines(start: &[u8], count: usize) -> Option<&[u8]> {
    let mut ends = start.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.nth(count - 1).map(|(end, _)| &start[..=end])
}

fn footer(file: &mut File) -> Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(FOOTER_BYTES)))?;
    let mut footer = Vec::new();
    file.read_to_end(&mut footer)?;
    Ok(format!("{length}-{:032x}", xxh3_128(&footer)))
}
