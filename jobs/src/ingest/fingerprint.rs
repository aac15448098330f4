//! Names a file by its content, so that a repeat goes on where the last run stopped, also when the file was moved, and also when
//! lines were appended.
//!
//! A file of text has two names. Its *body* is the hash of its first MiB (or of all of it, when it is smaller), with the length
//! hashed: the place reached is kept under it. Its *head* is the hash of its first record: under it the length of the body is
//! kept, so that a small file which grew is found again by the hash of the same many bytes. Two files that merely begin alike
//! are never taken for one another, as all of the body must be the same. Beside the place lies the number of records before it that were
//! left out of the log.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use types::Result;
use xxhash_rust::xxh3::xxh3_128;

use super::Progress;
use super::input::{Format, is_packed, open_file};

const BODY_BYTES: usize = 1 << 20;
/// A Parquet file's footer, which says all about its rows, lies in its last bytes.
const FOOTER_BYTES: u64 = 64 << 10;
/// A compressed file has no lines to see: its head is this many bytes.
const COMPRESSED_HEAD_BYTES: usize = 1 << 10;

/// How far an input is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// So many of its records were read.
    pub(super) done: i64,
    /// So many of these, the last that are not events of the stream, are not in the log.
    pub(super) left_out: i64,
}

/// The names of one file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// The first MiB.
    start: Vec<u8>,
    head: Option<String>,
    body: String,
}

impl Fingerprint {
    pub(super) fn of(path: &Path, format: Format) -> Result<Self> {
        let mut file = open_file(path)?;
        let mut start = Vec::new();
        (&mut file).take(BODY_BYTES as u64).read_to_end(&mut start)?;
        if format == Format::Parquet {
            let body = format!("{}-{}", body(&start), footer(&mut file)?);
            return Ok(Self { start, head: None, body });
        }
        let head = match (is_packed(&start), format) {
            (true, _) => start.get(..COMPRESSED_HEAD_BYTES),
            // The header alone is the same in many files.
            (false, Format::Csv) => lines(&start, 2),
            (false, _) => lines(&start, 1),
        };
        let head = head.map(|head| format!("head-{:032x}", xxh3_128(head)));
        Ok(Self { head, body: body(&start), start })
    }

    /// The names it has once what comes after so many bytes is corrected: a file that grew from them. `None` where nothing of
    /// its name lies behind them, and for a compressed file, which is another one as a whole.
    pub(super) fn corrected_after(&self, bytes: u64) -> Option<Self> {
        let start = self.start.get(..usize::try_from(bytes).ok()?)?;
        let is_same = self.is_packed() || start.len() == self.start.len();
        (!is_same).then(|| Self { start: start.to_vec(), head: self.head.clone(), body: body(start) })
    }

    pub(super) fn is_packed(&self) -> bool {
        is_packed(&self.start)
    }

    /// How far earlier runs took this file in.
    pub(super) async fn load(&self, progress: &dyn Progress, stream: &str) -> Result<Place> {
        let place = load(progress, stream, &self.body).await?;
        let Some(head) = self.head.as_ref().filter(|_| place.done == 0) else { return Ok(place) };
        let earlier_bytes = usize::try_from(progress.load(stream, head).await?).unwrap_or(0);
        match self.start.get(..earlier_bytes) {
            Some(earlier) if earlier_bytes > 0 => load(progress, stream, &body(earlier)).await,
            _ => Ok(Place::default()),
        }
    }

    /// Keeps the names, so that the file is found when it has grown. The place goes first: a head without one would lose it.
    pub(super) async fn begin(&self, progress: &dyn Progress, stream: &str, place: Place) -> Result<()> {
        if place.left_out > 0 {
            self.save_left_out(progress, stream, place).await?;
        }
        self.save_done(progress, stream, place).await?;
        match &self.head {
            Some(head) => progress.save(stream, head, self.start.len() as i64).await,
            None => Ok(()),
        }
    }

    pub(super) async fn save_done(&self, progress: &dyn Progress, stream: &str, place: Place) -> Result<()> {
        progress.save(stream, &self.body, place.done).await
    }

    pub(super) async fn save_left_out(&self, progress: &dyn Progress, stream: &str, place: Place) -> Result<()> {
        progress.save(stream, &left_out(&self.body), place.left_out).await
    }
}

async fn load(progress: &dyn Progress, stream: &str, body: &str) -> Result<Place> {
    let (done, left_out) = (progress.load(stream, body).await?.max(0), progress.load(stream, &left_out(body)).await?);
    Ok(Place { done, left_out: left_out.clamp(0, done) })
}

fn left_out(body: &str) -> String {
    format!("{body}-left-out")
}

fn body(start: &[u8]) -> String {
    format!("{}-{:032x}", start.len(), xxh3_128(start))
}

/// The first `count` lines with their ends; `None` when there are fewer.
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
