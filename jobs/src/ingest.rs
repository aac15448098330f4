//! Implements `ingest`: appends files of JSON lines, CSV or Parquet (or standard input) to a stream's log.
//!
//! ```text
//! reader -> JSON value -> decode (the same rules as the speed layer's) -> append to the log -> save the position
//! ```
//!
//! A repeat appends nothing twice: after each acknowledged batch the position in the file is saved under a name derived
//! from the file's content, and while that fails, `ingest` waits. Where the log took only some records of a batch,
//! which ones is saved instead. After a crash between the log's acknowledgement and that save, one batch is appended
//! again. Deduplication removes it if the stream has an id and the repeat comes within `dedup_within`.
//!
//! Which records were left out is saved with the position. A repeat looks at these again, and sends those that are
//! events by now, because the stream or `--numbers` is another.
//!
//! One append is in flight at a time, so in each partition the records have the order of the file. Meanwhile the next
//! batches are read and checked.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use definitions::StreamDefinition;
use engine::events::Decoder;
use event_log::Log;
use tokio::sync::mpsc;
use types::{Error, Result, failpoint};

mod appending;
mod arrow_json;
mod bytes;
mod cell;
mod column_names;
mod csv_rows;
mod fingerprint;
mod guess;
mod input;
mod json_lines;
mod layout;
mod number_detection;
mod numbers;
mod parquet_rows;
mod quotes;
mod read;
mod reasons;
mod records;
mod survey;

pub(crate) use csv_rows::guess_delimiter;
pub use guess::Guessed;
pub(crate) use guess::guess_stream;
pub use input::{Format, Input, Shape};
pub use numbers::NumberFormat;
pub(crate) use quotes::Watched;
pub use reasons::RejectedReasons;
pub use survey::{FileSurvey, survey};

use crate::output::count_of;

use appending::{Stopped, append_records, until_saved};
use fingerprint::{FilePosition, Fingerprint, IngestedLog};
use read::{AppendBatch, REJECTED_LISTED, ReaderMessage, Reading, Unlisted, merge};

/// For how long a log that takes nothing is waited for, unless [`IngestOptions::patience`] says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Remembers how much of each file is in the log.
#[async_trait]
pub trait PositionStore: Send + Sync {
    /// Returns all numbers whose names begin so, by their names.
    async fn load_all(&self, stream: &str, prefix: &str) -> Result<HashMap<String, i64>>;

    /// Saves numbers under their names: all of them, or none if it fails.
    async fn save(&self, stream: &str, numbers: Vec<(String, i64)>) -> Result<()>;
}

/// How to read an input.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    pub shape: Shape,
    /// Also append records that are not events of the stream. They become dead letters.
    pub produce_invalid: bool,
    /// The maximum number of records of one append.
    pub batch_records: usize,
    /// For how long an append that the log does not take is tried again.
    pub patience: Duration,
    /// Append all records, also those that an earlier run appended.
    pub again: bool,
    /// Streams that were removed and had the same topic: what they appended is in it.
    pub removed: Vec<Arc<str>>,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            produce_invalid: false,
            batch_records: 5_000,
            patience: PATIENCE,
            again: false,
            removed: Vec::new(),
        }
    }
}

/// The progress of an ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IngestProgress {
    /// Records that the log acknowledged in this run.
    pub records: i64,
    pub rejected: i64,
    /// Bytes read of the stored (possibly compressed) input.
    pub bytes_done: u64,
    /// `None` for standard input.
    pub bytes_total: Option<u64>,
}

/// A record that is no event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its line (Parquet: row), counted from 1.
    pub number: u64,
    pub error: String,
}

/// The result of an ingest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Records that the log acknowledged in this run.
    pub records: i64,
    /// Records that an earlier run had appended.
    pub skipped: i64,
    /// Records read in this run that are not events of the stream.
    pub rejected: i64,
    /// Records of the file that are not in the log because they are not events of the stream, of this run and of
    /// earlier ones.
    pub left_out: i64,
    /// The first rejected records, at most 20.
    pub first_rejected: Vec<Rejected>,
    /// Why records were rejected in this run.
    pub reasons: RejectedReasons,
    /// The last line, if it is no event and has no line end: it may still be being written. It was neither sent nor
    /// counted as left out, and is read again by a repeat.
    pub unfinished: Option<u64>,
    pub elapsed: Duration,
}

/// Appends all records of an input to a stream's topic, which must exist.
///
/// Errors: `Input` if the file is not of its format, lacks a NOT NULL column, or writes numbers in a format that the
/// options do not name; `Conflict` if the log does not have what an earlier run appended. Nothing is appended then.
/// After a later error what was acknowledged stays in the log and is remembered, so a repeat continues from there.
pub async fn ingest(
    log: &dyn Log,
    progress: &dyn PositionStore,
    stream: Arc<StreamDefinition>,
    input: &Input,
    options: &IngestOptions,
    mut on_progress: impl FnMut(IngestProgress) + Send,
) -> Result<Summary> {
    let begun = Instant::now();
    let in_file = |error: Error| if error.context().iter().any(|(key, _)| *key == "file") { error } else { error.with("file", input) };
    let format = input.format(options.shape.format)?;
    let records = input.open(format, options.shape, &stream).map_err(in_file)?;
    if format == Format::Csv && options.shape.numbers.is_none() {
        number_detection::refuse_other_formats(input, options.shape.delimiter, &stream).map_err(in_file)?;
    }
    let taken = Taken::find(progress, &stream, (input, format), log, options).await.map_err(in_file)?;
    let unlisted = match options.produce_invalid && taken.place.unlisted > 0 {
        true => {
            let records = input.open(format, options.shape, &stream).map_err(in_file)?;
            Some(Unlisted { records, count: taken.place.unlisted as usize })
        }
        false => None,
    };
    let reading = Reading {
        decoder: Decoder::new(stream.clone())?,
        place: taken.place.clone(),
        unlisted,
        batch_records: options.batch_records.max(1),
        produce_invalid: options.produce_invalid,
    };
    let receiver = reading.start(records)?;
    let (summary, bytes_total, patience) = (Summary::default(), input.bytes_total(), options.patience);
    let mut run = Run { log, stream: &stream, taken, summary, bytes_total, patience };
    run.append_all(receiver, options.batch_records.max(1), &mut on_progress).await.map_err(in_file)?;
    let mut summary = run.summary;
    summary.left_out = run.taken.place.left_out_count();
    summary.elapsed = begun.elapsed();
    tracing::info!(
        stream = %stream.name, file = %input, records = summary.records, skipped = summary.skipped, rejected = summary.rejected,
        seconds = summary.elapsed.as_secs_f64(), "file ingested"
    );
    Ok(summary)
}

/// Refuses a file that a stream which was removed appended to the topic.
async fn check_removed(progress: &dyn PositionStore, file: &Fingerprint, removed: &[Arc<str>], log: IngestedLog) -> Result<()> {
    for stream in removed {
        let place = file.load(progress, stream).await?;
        if place.has_begun() && place.check_log(log).is_ok() {
            let records = count_of(place.appended(), "record");
            let message =
                format!("the topic has {records} of this file already: the stream \"{stream}\", which was removed, appended them");
            return Err(Error::conflict(message).with("help", "`--again` appends all records of the file once more"));
        }
    }
    Ok(())
}

/// The position in a file, and where it is saved. Standard input has no name and its position is not saved.
struct Taken<'a> {
    progress: &'a dyn PositionStore,
    stream: Arc<str>,
    fingerprint: Option<Fingerprint>,
    place: FilePosition,
}

impl<'a> Taken<'a> {
    async fn find(
        progress: &'a dyn PositionStore,
        stream: &StreamDefinition,
        (input, format): (&Input, Format),
        log: &dyn Log,
        options: &IngestOptions,
    ) -> Result<Self> {
        let fingerprint = match input {
            Input::File(path) => Some(Fingerprint::compute(path, format)?),
            Input::Stdin => None,
        };
        let mut taken = Self { progress, stream: stream.name.clone(), fingerprint, place: FilePosition::default() };
        if let Some(fingerprint) = &taken.fingerprint {
            if !options.again {
                taken.place = fingerprint.load(progress, &taken.stream).await?;
            }
            let log = IngestedLog::ask(log, &stream.topic).await?;
            taken.place.check_log(log)?;
            if !options.again && !taken.place.has_begun() {
                check_removed(progress, fingerprint, &options.removed, log).await?;
            }
            taken.place.log = Some(log);
            fingerprint.begin(progress, &taken.stream, &taken.place).await?;
        }
        Ok(taken)
    }

    /// Notes that the log took this many records: its ends are past them.
    fn note_appended(&mut self, records: i64) {
        if let Some(log) = &mut self.place.log {
            log.end += records;
        }
    }

    /// Handles an error of the reader: saves the position also under the name that the file will have once the wrong
    /// record is corrected, and adds to the error what a repeat does.
    async fn stopped(&self, error: Error, sound_bytes: Option<u64>) -> Result<Error> {
        let (done, left_out) = (self.place.done, self.place.left_out_count());
        let corrected = match (&self.fingerprint, sound_bytes) {
            (Some(fingerprint), Some(bytes)) if done > 0 => fingerprint.corrected_after(bytes),
            _ => None,
        };
        if let Some(corrected) = corrected {
            until_saved(|| corrected.begin(self.progress, &self.stream, &self.place)).await?;
        }
        let repeat = match &self.fingerprint {
            None => "standard input is not remembered, so a repeat sends them again",
            Some(fingerprint) if sound_bytes.is_some() && fingerprint.is_packed() => {
                "a corrected compressed file counts as a new file, so remove them from it"
            }
            Some(_) => "a repeat continues after them and sends nothing twice",
        };
        let error = error.with("in the log", format!("{} before it; {repeat}", count_of(done - left_out, "record")));
        let left_out = (left_out > 0).then(|| match left_out {
            1 => "1 record before it that is not an event of the stream".to_owned(),
            _ => format!("{left_out} records before it that are not events of the stream"),
        });
        Ok(left_out.into_iter().fold(error, |error, reason| error.with("left out", reason)))
    }

    /// Moves the position past a batch that is in the log, and saves it however long that takes: a repeat from an
    /// earlier position would append the batch again.
    async fn advance(&mut self, batch: &AppendBatch) -> Result<()> {
        let made_up = batch.indices.iter().filter(|index| **index < self.place.done);
        let changed: BTreeSet<i64> = made_up.chain(&batch.left_out).copied().collect();
        for index in &batch.indices {
            self.place.left_out.remove(index);
        }
        self.place.left_out.extend(&batch.left_out);
        self.place.done += batch.consumed;
        if batch.consumed == 0 && changed.is_empty() {
            return Ok(());
        }
        self.save(&changed).await
    }

    /// Saves which records of a batch are in the log, although the batch is not.
    async fn save_part(&mut self, in_log: BTreeSet<i64>) -> Result<()> {
        for index in &in_log {
            self.place.left_out.remove(index);
        }
        self.place.ahead.extend(in_log.range(self.place.done..));
        let made_up: BTreeSet<i64> = in_log.range(..self.place.done).copied().collect();
        self.save(&made_up).await
    }

    /// Saves which records an earlier run left out, of those of which it saved only how many.
    async fn list_left_out(&mut self, found: BTreeSet<i64>) -> Result<()> {
        self.place.lost += self.place.unlisted - found.len() as i64;
        self.place.unlisted = 0;
        self.place.left_out.extend(&found);
        self.save(&found).await
    }

    /// Saves the position, and of the records left out those that changed.
    async fn save(&self, changed: &BTreeSet<i64>) -> Result<()> {
        match &self.fingerprint {
            Some(fingerprint) => until_saved(|| fingerprint.save(self.progress, &self.stream, &self.place, changed)).await,
            None => Ok(()),
        }
    }
}

struct Run<'a> {
    log: &'a dyn Log,
    stream: &'a StreamDefinition,
    taken: Taken<'a>,
    summary: Summary,
    bytes_total: Option<u64>,
    patience: Duration,
}

impl Run<'_> {
    async fn append_all(
        &mut self,
        mut receiver: mpsc::Receiver<ReaderMessage>,
        batch_records: usize,
        on_progress: &mut (impl FnMut(IngestProgress) + Send),
    ) -> Result<()> {
        let mut waiting = None;
        loop {
            let message = match waiting.take() {
                Some(message) => Some(message),
                None => receiver.recv().await,
            };
            match message {
                Some(ReaderMessage::Batch(mut batch)) => {
                    waiting = merge(&mut batch, &mut receiver, batch_records);
                    on_progress(self.append(batch).await?);
                }
                Some(ReaderMessage::Listed(found)) => self.taken.list_left_out(found).await?,
                Some(ReaderMessage::Skipped(records)) => self.summary.skipped = records,
                Some(ReaderMessage::End) => return Ok(()),
                Some(ReaderMessage::Failed { error, sound_bytes }) => return Err(self.taken.stopped(error, sound_bytes).await?),
                None => return Err(Error::internal("the reading thread ended abnormally")),
            }
        }
    }

    async fn append(&mut self, mut batch: AppendBatch) -> Result<IngestProgress> {
        let records = std::mem::take(&mut batch.records);
        let count = records.len() as i64;
        if count > 0 {
            if let Err(Stopped { error, in_log }) = append_records(self.log, &self.stream.topic, &records, self.patience).await {
                if in_log.contains(&true) {
                    self.taken.note_appended(in_log.iter().filter(|in_log| **in_log).count() as i64);
                    let indices = batch.indices.iter().zip(in_log).filter(|(_, in_log)| *in_log);
                    self.taken.save_part(indices.map(|(index, _)| *index).collect()).await?;
                }
                return Err(error.with("records_done", self.taken.place.done));
            }
            self.taken.note_appended(count);
            failpoint::hit("ingest.between_batches")?;
        }
        self.taken.advance(&batch).await?;
        self.summary.records += count;
        self.summary.skipped += batch.ahead;
        self.summary.rejected += batch.rejected;
        self.summary.unfinished = batch.unfinished;
        let room = REJECTED_LISTED.saturating_sub(self.summary.first_rejected.len());
        self.summary.first_rejected.extend(batch.first_rejected.into_iter().take(room));
        self.summary.reasons.merge(batch.reasons);
        Ok(IngestProgress {
            records: self.summary.records,
            rejected: self.summary.rejected,
            bytes_done: batch.bytes_done,
            bytes_total: self.bytes_total,
        })
    }
}

#[cfg(test)]
mod tests;
