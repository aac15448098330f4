//! The reading side of an ingest: a thread that reads, checks and packs records into batches, as far ahead as the queue allows.

use bytes::Bytes;
use schemas::events::Decoder;
use schemas::log::NewRecord;
use schemas::{Error, Result};
use tokio::sync::mpsc;

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
    pub(super) first_rejected: Vec<Rejected>,
    pub(super) bytes: usize,
    /// Bytes of the input read so far.
    pub(super) bytes_done: u64,
}

pub(super) enum Message {
    /// The first records were left out: they are in the log already.
    Skipped(u64),
    Batch(Batch),
    /// The end of the input.
    End,
    Failed(Error),
}

/// What the reading thread needs to know.
pub(super) struct Reading {
    pub(super) decoder: Decoder,
    pub(super) skip: u64,
    pub(super) batch_records: usize,
    pub(super) produce_invalid: bool,
}

impl Reading {
    /// Begins on a thread of its own. It ends with the input, or when nobody listens any more; a thread and not a task of the
    /// runtime, as one that waits for standard input cannot be ended and must not hold up the process.
    pub(super) fn start(self, records: Box<dyn Records>) -> Result<mpsc::Receiver<Message>> {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let run = move || {
            let last = match self.run(records, &sender) {
                Ok(()) => Message::End,
                Err(error) => Message::Failed(error),
            };
            let _ = sender.blocking_send(last);
        };
        std::thread::Builder::new().name("ingest-read".into()).spawn(run)?;
        Ok(receiver)
    }

    fn run(&self, mut records: Box<dyn Records>, sender: &mpsc::Sender<Message>) -> Result<()> {
        let skipped = records.skip(self.skip)?;
        if sender.blocking_send(Message::Skipped(skipped)).is_err() {
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
            let full = batch.consumed as usize >= self.batch_records || batch.bytes >= BATCH_BYTES;
            if full || ended || records.may_wait() {
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

    fn add(&self, record: InputRecord, batch: &mut Batch) {
        let event = match record.error {
            Some(error) => Err(error),
            None => self.produced(&record.value).map_err(|error| error.to_string()),
        };
        batch.consumed += 1;
        match event {
            Ok(new) => {
                batch.bytes += record.value.len();
                batch.records.push(new);
            }
            Err(error) => {
                batch.rejected += 1;
                if record.unterminated {
                    // Perhaps half written: a repeat reads it again.
                    batch.consumed -= 1;
                } else if self.produce_invalid {
                    batch.bytes += record.value.len();
                    batch.records.push(NewRecord { value: Some(record.value), ..NewRecord::default() });
                }
                if batch.first_rejected.len() < REJECTED_TOLD {
                    batch.first_rejected.push(Rejected { number: record.number, error });
                }
            }
        }
    }

    /// The record as our producers hand it to the log: by the key, and by the id where the key is null.
    fn produced(&self, value: &Bytes) -> Result<NewRecord, schemas::events::DecodeError> {
        let event = self.decoder.decode(Some(value))?;
        let bytes = |text: std::borrow::Cow<'_, str>| Bytes::from(text.into_owned());
        let (key, partition_by) = (event.key().map(bytes), event.id().map(bytes));
        Ok(NewRecord { key, partition_by, value: Some(value.clone()), headers: Vec::new() })
    }
}

/// Puts what is at hand into one batch, up to a full one: the slower the log, the fuller its batches.
pub(super) fn merge(batch: &mut Batch, receiver: &mut mpsc::Receiver<Message>, batch_records: usize) -> Option<Message> {
    while (batch.consumed as usize) < batch_records && batch.bytes < BATCH_BYTES {
        match receiver.try_recv() {
            Ok(Message::Batch(more)) => batch.extend(more),
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

impl Batch {
    fn extend(&mut self, more: Batch) {
        self.records.extend(more.records);
        self.consumed += more.consumed;
        self.rejected += more.rejected;
        self.first_rejected.extend(more.first_rejected);
        self.bytes += more.bytes;
        self.bytes_done = more.bytes_done;
    }
}
