//! The reading side of an ingest: a thread that reads, checks and packs records into batches, as far ahead as the queue allows.

use bytes::Bytes;
use engine::events::Decoder;
use event_log::NewRecord;
use tokio::sync::mpsc;
use types::{Error, Result};

use super::Rejected;
use super::records::{InputRecord, Records};

/// Batches that may wait for the log.
const QUEUE_BATCHES: usize = 3;
/// A batch is full at this many bytes, whatever its number of records.
const BATCH_BYTES: usize = 8 << 20;
/// How many rejected records are told with their errors; all are counted.
pub(super) const REJECTED_TOLD: usize = 20;

/// Records for one append.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<NewRecord>,
    /// How many records of the input these are, rejected ones with them.
    pub(super) consumed: i64,
    pub(super) rejected: i64,
    /// Of the consumed ones, not among the records: they are no events.
    pub(super) left_out: i64,
    /// Of the records, left out by an earlier run.
    pub(super) made_up: i64,
    pub(super) first_rejected: Vec<Rejected>,
    pub(super) bytes: usize,
    /// Bytes of the input read so far.
    pub(super) bytes_done: u64,
}

pub(super) enum Message {
    /// So many records were read by an earlier run. It comes before all batches.
    Skipped(u64),
    Batch(Batch),
    /// The end of the input.
    End,
    Failed {
        error: Error,
        /// How many bytes come before the record that is wrong, where a record is why.
        sound_bytes: Option<u64>,
    },
}

/// What the reading thread needs to know.
pub(super) struct Reading {
    pub(super) decoder: Decoder,
    pub(super) skip: u64,
    /// What is to be made up for, of the records to skip.
    pub(super) left_out: Option<LeftOut>,
    pub(super) batch_records: usize,
    pub(super) produce_invalid: bool,
}

/// What an earlier run left out and this one is to send.
pub(super) struct LeftOut {
    /// The same input once more, from its beginning.
    pub(super) records: Box<dyn Records>,
    /// So many, the last before the place that are no events.
    pub(super) count: u64,
}

impl Reading {
    /// Begins on a thread of its own. It ends with the input, or when nobody listens any more; a thread and not a task of the
    /// runtime, as one that waits for standard input cannot be ended and must not hold up the process.
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
        loop {
            // What was read before the input broke is still sent.
            let next = records.next();
            let ended = !matches!(next, Ok(Some(_)));
            let mut failure = None;
            match next {
                Ok(Some(record)) => self.add(record, &mut batch),
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
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

    /// Passes over the records of earlier runs, and sends those that were left out; false when nobody listens any more.
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
                    batch.send_invalid(record);
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
        batch.consumed += 1;
        match event {
            Ok(new) => {
                batch.bytes += record.value.len();
                batch.records.push(new);
            }
            Err(error) => {
                batch.reject(record.number, error);
                if record.unterminated {
                    // Perhaps half written: a repeat reads it again.
                    batch.consumed -= 1;
                } else if self.produce_invalid {
                    batch.send_invalid(record);
                } else {
                    batch.left_out += 1;
                }
            }
        }
    }

    /// The record as our producers hand it to the log: by the key, and by the id where the key is null.
    fn produced(&self, value: &Bytes) -> Result<NewRecord, engine::events::DecodeError> {
        let event = self.decoder.decode(Some(value))?;
        let bytes = |text: std::borrow::Cow<'_, str>| Bytes::from(text.into_owned());
        let (key, partition_by) = (event.key().map(bytes), event.id().map(bytes));
        Ok(NewRecord { key, partition_by, value: Some(value.clone()), headers: Vec::new() })
    }
}

/// Puts what is at hand into one batch, up to a full one: the slower the log, the fuller its batches.
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
        if self.first_rejected.len() < REJECTED_TOLD {
            self.first_rejected.push(Rejected { number, error });
        }
    }

    fn send_invalid(&mut self, record: InputRecord) {
        self.bytes += record.value.len();
        self.records.push(NewRecord { value: Some(record.value), ..NewRecord::default() });
    }

    fn extend(&mut self, more: Batch) {
        self.records.extend(more.records);
        self.consumed += more.consumed;
        self.rejected += more.rejected;
        self.left_out += more.left_out;
        self.made_up += more.made_up;
        self.first_rejected.extend(more.first_rejected);
        self.bytes += more.bytes;
        self.bytes_done = more.bytes_done;
    }
}
