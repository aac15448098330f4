//! The reading side of an ingest: a thread that reads records, checks them and packs them into batches, as far ahead as
//! the queue allows.

use std::collections::BTreeSet;

use bytes::Bytes;
use engine::events::Decoder;
use event_log::NewRecord;
use tokio::sync::mpsc;
use types::{Error, Result};

use super::Rejected;
use super::fingerprint::FilePosition;
use super::reasons::RejectedReasons;
use super::records::{InputRecord, Records};

/// How many batches may wait for the log.
const QUEUE_BATCHES: usize = 3;
/// A batch is full at this many bytes, regardless of its number of records.
const BATCH_BYTES: usize = 8 << 20;
/// How many rejected records are reported with their errors; all are counted.
pub(super) const REJECTED_LISTED: usize = 20;

/// Records for one append.
#[derive(Debug, Default)]
pub(super) struct AppendBatch {
    pub(super) records: Vec<NewRecord>,
    /// How many records of the input the batch covers, including rejected ones.
    pub(super) consumed: i64,
    pub(super) rejected: i64,
    /// Which of the consumed records are not in `records`, because they are no events; counted in the input, from 0.
    pub(super) left_out: Vec<i64>,
    /// For each of `records` which record of the input it is, counted from 0. Those before the position of earlier runs
    /// are records that these left out.
    pub(super) indices: Vec<i64>,
    /// How many of the consumed records an earlier run appended.
    pub(super) ahead: i64,
    pub(super) first_rejected: Vec<Rejected>,
    pub(super) reasons: RejectedReasons,
    /// The rejected last line, if it lacks a line end. It is not consumed.
    pub(super) unfinished: Option<u64>,
    pub(super) bytes: usize,
    /// Bytes of the input read so far.
    pub(super) bytes_done: u64,
}

pub(super) enum ReaderMessage {
    /// Which records an earlier run left out, of those that it only counted. Sent before all batches.
    Listed(BTreeSet<i64>),
    /// How many records earlier runs had appended.
    Skipped(i64),
    Batch(AppendBatch),
    /// The end of the input.
    End,
    Failed {
        error: Error,
        /// How many bytes precede the wrong record, if a record is the reason.
        sound_bytes: Option<u64>,
    },
}

/// The inputs of the reading thread.
pub(super) struct Reading {
    pub(super) decoder: Decoder,
    /// What earlier runs did.
    pub(super) place: FilePosition,
    /// To list the records that an earlier run left out and only counted.
    pub(super) unlisted: Option<Unlisted>,
    pub(super) batch_records: usize,
    pub(super) produce_invalid: bool,
}

/// Records that an earlier run left out: the last ones before the saved position that are no events.
pub(super) struct Unlisted {
    /// The same input again, from its beginning.
    pub(super) records: Box<dyn Records>,
    pub(super) count: usize,
}

impl Reading {
    /// Starts a thread, which ends with the input or when the receiver is dropped. It is a thread and not a task of the
    /// runtime because a read of standard input cannot be cancelled and must not keep the process from exiting.
    pub(super) fn start(mut self, mut records: Box<dyn Records>) -> Result<mpsc::Receiver<ReaderMessage>> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let run = move || {
            let last = match self.run(&mut *records, &sender) {
                Ok(()) => ReaderMessage::End,
                Err(error) => ReaderMessage::Failed { error, sound_bytes: records.sound_bytes() },
            };
            let _ = sender.blocking_send(last);
        };
        std::thread::Builder::new().name("ingest-read".into()).spawn(run)?;
        Ok(receiver)
    }

    fn run(&mut self, records: &mut dyn Records, sender: &mpsc::Sender<ReaderMessage>) -> Result<()> {
        if !self.list(sender)? || !self.make_up(records, sender)? {
            return Ok(());
        }
        let mut batch = AppendBatch::default();
        let mut index = self.place.done;
        loop {
            // Records read before the failure are still sent.
            let next = records.next();
            let ended = !matches!(next, Ok(Some(_)));
            let mut failure = None;
            match next {
                Ok(Some(_)) if self.place.ahead.contains(&index) => {
                    batch.consumed += 1;
                    batch.ahead += 1;
                }
                Ok(Some(record)) => self.add(record, index, &mut batch),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
            index += 1;
            if batch.is_full(self.batch_records) || ended || records.may_wait() {
                batch.bytes_done = records.bytes_done();
                if sender.blocking_send(ReaderMessage::Batch(std::mem::take(&mut batch))).is_err() {
                    return Ok(());
                }
            }
            match failure {
                Some(error) => return Err(error),
                None if ended => return Ok(()),
                None => {}
            }
        }
    }

    /// Lists the records that an earlier run only counted; false if the receiver is dropped.
    fn list(&mut self, sender: &mpsc::Sender<ReaderMessage>) -> Result<bool> {
        let Some(Unlisted { mut records, count }) = self.unlisted.take() else { return Ok(true) };
        let mut candidates = Vec::new();
        for index in 0..self.place.done {
            let Some(record) = records.next()? else { break };
            if !self.place.left_out.contains(&index) && self.event(&record).is_err() {
                candidates.push(index);
            }
        }
        let found: BTreeSet<i64> = candidates.into_iter().rev().take(count).collect();
        self.place.left_out.extend(&found);
        self.place.unlisted -= found.len() as i64;
        Ok(sender.blocking_send(ReaderMessage::Listed(found)).is_ok())
    }

    /// Skips the records of earlier runs, and sends those that were left out and are events now, or go to the dead
    /// letters; false if the receiver is dropped.
    fn make_up(&self, records: &mut dyn Records, sender: &mpsc::Sender<ReaderMessage>) -> Result<bool> {
        let mut batch = AppendBatch::default();
        let mut skipped = 0_i64;
        for index in &self.place.left_out {
            skipped += records.skip((*index - skipped) as u64)? as i64;
            let Some(record) = records.next()? else { break };
            skipped += 1;
            match self.event(&record) {
                Ok(new) => batch.send(new, *index),
                Err(error) if self.produce_invalid => {
                    batch.reject(record.number, error);
                    batch.send(invalid(record), *index);
                }
                Err(_) => {}
            }
            if batch.is_full(self.batch_records) {
                batch.bytes_done = records.bytes_done();
                if sender.blocking_send(ReaderMessage::Batch(std::mem::take(&mut batch))).is_err() {
                    return Ok(false);
                }
            }
        }
        skipped += records.skip((self.place.done - skipped) as u64)? as i64;
        batch.bytes_done = records.bytes_done();
        if !batch.records.is_empty() && sender.blocking_send(ReaderMessage::Batch(batch)).is_err() {
            return Ok(false);
        }
        let in_log = (skipped - self.place.left_out_count()).max(0);
        Ok(sender.blocking_send(ReaderMessage::Skipped(in_log)).is_ok())
    }

    fn event(&self, record: &InputRecord) -> Result<NewRecord, String> {
        match &record.error {
            Some(error) => Err(error.clone()),
            None => self.produced(&record.value).map_err(|error| error.to_string()),
        }
    }

    fn add(&self, record: InputRecord, index: i64, batch: &mut AppendBatch) {
        let event = self.event(&record);
        batch.consumed += 1;
        match event {
            Ok(new) => batch.send(new, index),
            Err(error) => {
                batch.reject(record.number, error);
                if record.unterminated {
                    // The record may be incomplete: a repeat reads it again.
                    batch.consumed -= 1;
                    batch.unfinished = Some(record.number);
                } else if self.produce_invalid {
                    batch.send(invalid(record), index);
                } else {
                    batch.left_out.push(index);
                }
            }
        }
    }

    /// Returns the record as our producers append it to the log: partitioned by the key, or by the id if the key is
    /// null.
    fn produced(&self, value: &Bytes) -> Result<NewRecord, engine::events::DecodeError> {
        let event = self.decoder.decode(Some(value))?;
        let bytes = |text: std::borrow::Cow<'_, str>| Bytes::from(text.into_owned());
        let (key, partition_by) = (event.key().map(bytes), event.id().map(bytes));
        Ok(NewRecord { key, partition_by, value: Some(value.clone()), headers: Vec::new() })
    }
}

/// Merges the waiting batches into one, until it is full: the slower the log, the fuller its batches.
pub(super) fn merge(batch: &mut AppendBatch, receiver: &mut mpsc::Receiver<ReaderMessage>, batch_records: usize) -> Option<ReaderMessage> {
    while !batch.is_full(batch_records) {
        match receiver.try_recv() {
            Ok(ReaderMessage::Batch(more)) => batch.extend(more),
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

/// A record that becomes a dead letter.
fn invalid(record: InputRecord) -> NewRecord {
    NewRecord { value: Some(record.value), ..NewRecord::default() }
}

impl AppendBatch {
    fn is_full(&self, batch_records: usize) -> bool {
        self.records.len().max(self.consumed as usize) >= batch_records || self.bytes >= BATCH_BYTES
    }

    fn reject(&mut self, number: u64, error: String) {
        self.rejected += 1;
        self.reasons.note(&error);
        if self.first_rejected.len() < REJECTED_LISTED {
            self.first_rejected.push(Rejected { number, error });
        }
    }

    fn send(&mut self, record: NewRecord, index: i64) {
        self.bytes += record.value.as_ref().map_or(0, Bytes::len);
        self.records.push(record);
        self.indices.push(index);
    }

    fn extend(&mut self, more: AppendBatch) {
        self.records.extend(more.records);
        self.indices.extend(more.indices);
        self.ahead += more.ahead;
        self.consumed += more.consumed;
        self.rejected += more.rejected;
        self.left_out.extend(more.left_out);
        self.first_rejected.extend(more.first_rejected);
        self.reasons.merge(more.reasons);
        self.unfinished = self.unfinished.or(more.unfinished);
        self.bytes += more.bytes;
        self.bytes_done = more.bytes_done;
    }
}
