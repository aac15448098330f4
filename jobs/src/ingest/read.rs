//! The reading side of an ingest: a thread that reads records, checks them and packs them into batches, as far ahead as
//! the queue allows.

use bytes::Bytes;
use engine::events::Decoder;
use event_log::NewRecord;
use tokio::sync::mpsc;
use types::{Error, Result};

use super::Rejected;
use super::fingerprint::Ahead;
use super::records::{InputRecord, Records};

/// How many batches may wait for the log.
const QUEUE_BATCHES: usize = 3;
/// A batch is full at this many bytes, regardless of its number of records.
const BATCH_BYTES: usize = 8 << 20;
/// How many rejected records are reported with their errors; all are counted.
pub(super) const REJECTED_LISTED: usize = 20;

/// Records for one append.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<NewRecord>,
    /// How many records of the input the batch covers, including rejected ones.
    pub(super) consumed: i64,
    pub(super) rejected: i64,
    /// How many of the consumed records are not in `records`, because they are no events.
    pub(super) left_out: i64,
    /// For each of `records`, how many consumed records precede it; `None` if an earlier run left it out.
    pub(super) places: Vec<Option<i64>>,
    /// How many of the consumed records an earlier run appended.
    pub(super) ahead: i64,
    /// How many of `records` an earlier run left out.
    pub(super) made_up: i64,
    pub(super) first_rejected: Vec<Rejected>,
    pub(super) bytes: usize,
    /// Bytes of the input read so far.
    pub(super) bytes_done: u64,
}

/// The records of a batch that are in the log, where it did not take the whole batch.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// How many consumed records of the batch precede each.
    pub(super) consumed: Vec<i64>,
    /// How many of the first ones an earlier run left out.
    pub(super) made_up: i64,
}

pub(super) enum Message {
    /// How many records an earlier run had read. Sent before all batches.
    Skipped(u64),
    Batch(Batch),
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
    pub(super) skip: u64,
    /// Records after those that an earlier run appended.
    pub(super) ahead: Ahead,
    /// The records to send among those to skip.
    pub(super) left_out: Option<LeftOut>,
    pub(super) batch_records: usize,
    pub(super) produce_invalid: bool,
}

/// The records that an earlier run left out and this run sends.
pub(super) struct LeftOut {
    /// The same input again, from its beginning.
    pub(super) records: Box<dyn Records>,
    /// How many records: the last ones before the saved position that are no events.
    pub(super) count: u64,
}

impl Reading {
    /// Starts a thread, which ends with the input or when the receiver is dropped. It is a thread and not a task of the
    /// runtime because a read of standard input cannot be cancelled and must not keep the process from exiting.
    pub(super) fn start(mut self, mut records: Box<dyn Records>) -> Result<mpsc::Receiver<Message>> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let run = move || {
            let last = match self.run(&mut *records, &sender) {
                Ok(()) => Message::End,
                Err(error) => Message::Failed { error, sound_bytes: records.sound_bytes() },
            };
            let _ = sender.blocking_send(last);
        };
        std::thread::Builder::new().name("ingest-read".into()).spawn(run)?;
        Ok(receiver)
    }

    fn run(&mut self, records: &mut dyn Records, sender: &mpsc::Sender<Message>) -> Result<()> {
        let heard = match self.left_out.take() {
            Some(left_out) => self.make_up(left_out, records, sender)?,
            None => sender.blocking_send(Message::Skipped(records.skip(self.skip)?)).is_ok(),
        };
        if !heard {
            return Ok(());
        }
        let mut batch = Batch::default();
        let mut index = self.skip as i64;
        loop {
            // Records read before the failure are still sent.
            let next = records.next();
            let ended = !matches!(next, Ok(Some(_)));
            let mut failure = None;
            match next {
                Ok(Some(_)) if self.ahead.contains(&index) => {
                    batch.consumed += 1;
                    batch.ahead += 1;
                }
                Ok(Some(record)) => self.add(record, &mut batch),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
            index += 1;
            if batch.is_full(self.batch_records) || ended || records.may_wait() {
                batch.bytes_done = records.bytes_done();
                if sender.blocking_send(Message::Batch(std::mem::take(&mut batch))).is_err() {
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

    /// Skips the records of earlier runs, and sends those that were left out; false if the receiver is dropped.
    fn make_up(&self, mut left_out: LeftOut, records: &mut dyn Records, sender: &mpsc::Sender<Message>) -> Result<bool> {
        let (mut skipped, mut invalid) = (0, 0u64);
        while skipped < self.skip {
            let Some(record) = left_out.records.next()? else { break };
            skipped += 1;
            invalid += u64::from(self.event(&record).is_err());
        }
        if sender.blocking_send(Message::Skipped(skipped)).is_err() {
            return Ok(false);
        }
        let mut in_the_log = invalid.saturating_sub(left_out.count);
        let mut batch = Batch::default();
        for number in 1..=skipped {
            let Some(record) = records.next()? else { break };
            match self.event(&record) {
                Err(_) if in_the_log > 0 => in_the_log -= 1,
                Err(error) => {
                    batch.made_up += 1;
                    batch.reject(record.number, error);
                    batch.send_invalid(record, None);
                }
                Ok(_) => {}
            }
            if batch.is_full(self.batch_records) || number == skipped {
                batch.bytes_done = records.bytes_done();
                if sender.blocking_send(Message::Batch(std::mem::take(&mut batch))).is_err() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn event(&self, record: &InputRecord) -> Result<NewRecord, String> {
        match &record.error {
            Some(error) => Err(error.clone()),
            None => self.produced(&record.value).map_err(|error| error.to_string()),
        }
    }

    fn add(&self, record: InputRecord, batch: &mut Batch) {
        let event = self.event(&record);
        let place = Some(batch.consumed);
        batch.consumed += 1;
        match event {
            Ok(new) => {
                batch.bytes += record.value.len();
                batch.records.push(new);
                batch.places.push(place);
            }
            Err(error) => {
                batch.reject(record.number, error);
                if record.unterminated {
                    // The record may be incomplete: a repeat reads it again.
                    batch.consumed -= 1;
                } else if self.produce_invalid {
                    batch.send_invalid(record, place);
                } else {
                    batch.left_out += 1;
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
pub(super) fn merge(batch: &mut Batch, receiver: &mut mpsc::Receiver<Message>, batch_records: usize) -> Option<Message> {
    while !batch.is_full(batch_records) {
        match receiver.try_recv() {
            Ok(Message::Batch(more)) => batch.extend(more),
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

impl Batch {
    fn is_full(&self, batch_records: usize) -> bool {
        self.records.len().max(self.consumed as usize) >= batch_records || self.bytes >= BATCH_BYTES
    }

    fn reject(&mut self, number: u64, error: String) {
        self.rejected += 1;
        if self.first_rejected.len() < REJECTED_LISTED {
            self.first_rejected.push(Rejected { number, error });
        }
    }

    fn send_invalid(&mut self, record: InputRecord, place: Option<i64>) {
        self.bytes += record.value.len();
        self.records.push(NewRecord { value: Some(record.value), ..NewRecord::default() });
        self.places.push(place);
    }

    /// Returns what is to be remembered if only these of the records are in the log. Of those that an earlier run left
    /// out, only how many of the first ones can be.
    pub(super) fn part(&self, in_log: &[bool]) -> Part {
        let mut part = Part::default();
        let mut is_first = true;
        for (place, in_log) in self.places.iter().zip(in_log) {
            match place {
                Some(place) if *in_log => part.consumed.push(*place),
                Some(_) => {}
                None => {
                    is_first &= *in_log;
                    part.made_up += i64::from(is_first);
                }
            }
        }
        part
    }

    fn extend(&mut self, more: Batch) {
        self.records.extend(more.records);
        self.places.extend(more.places.into_iter().map(|place| place.map(|place| self.consumed + place)));
        self.ahead += more.ahead;
        self.consumed += more.consumed;
        self.rejected += more.rejected;
        self.left_out += more.left_out;
        self.made_up += more.made_up;
        self.first_rejected.extend(more.first_rejected);
        self.bytes += more.bytes;
        self.bytes_done = more.bytes_done;
    }
}
