//! The outputs of sinks: transactions that append records and note how far they are.
//!
//! Each output has a producer of its own with a transactional id. A new owner gets a newer epoch of that id: the former
//! producer can commit nothing any more, and the transaction that it left open is aborted. The position of an output is
//! a record of a compacted topic, written in the transaction of the output's records.
//!
//! Whose records count is decided by the brokers' transaction coordinator, which adds partitions to a transaction and
//! commits it for the newest epoch alone. It gives a new epoch out only after a transaction of the one before has
//! ended, so the position that is read then includes it. The lock of an owner only keeps its own appends apart.
//!
//! A producer has one transactional id and one transaction at a time. When another process takes over the id, Kafka
//! fences the first producer. Partitions move between workers one at a time. If several partitions shared a producer,
//! the new owner of one of them would fence it, and the outputs of the others would stop too. All sinks of one
//! partition could share a producer, but then a sink whose topic takes no records would hold up the others. So a
//! process has one producer for each sink and partition that it owns, each with a thread of its own. A worker that
//! takes over from another one of its process makes a new producer too: Kafka fences the first one all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, NoCustomPartitioner, Producer, ThreadedProducer};
use uuid::Uuid;

use super::client::{self, DetachedDrop, Reasons, lock};
use super::cluster::{Cluster, UncommittedReader};
use super::producer::headers_of;
use super::reader;
use super::settings::{self, KafkaSettings};
use crate::record::{partition_for, random_of};
use crate::{LogOutput, NewRecord, TopicPartition};
use types::tiles::Clock;
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How long a step of a transaction may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A transaction that its producer left open is aborted by the broker after this time, and a record that is not
/// delivered fails before that.
const TRANSACTION_MS: u64 = 15_000;
const DELIVERY_MS: u64 = 10_000;
/// How long positions may be unreadable: as long as a transaction is open that began before them. Brokers look for
/// those that took too long every ten seconds.
const UNREADABLE: Duration = Duration::from_secs(40);
const QUEUE_FULL_WAIT: Duration = Duration::from_millis(5);
/// Records of the topic of positions that are read at once.
const POSITIONS_AT_ONCE: usize = 10_000;

type Client = ThreadedProducer<DefaultProducerContext, NoCustomPartitioner>;

/// Takes outputs over.
pub(super) struct Outputs {
    settings: KafkaSettings,
    clock: Clock,
    /// What was read of each topic of positions: it is read once, and then what was added.
    positions: Mutex<HashMap<Arc<str>, Positions>>,
}

#[derive(Default)]
struct Positions {
    read_to: Offset,
    /// The newest record of each output, by its key.
    newest: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The owner of an output, with its producer.
pub(super) struct OutputOwner {
    output: LogOutput,
    addresses: String,
    client: DetachedDrop<Client>,
    /// The lock lasts as long as a transaction.
    progress: Mutex<Progress>,
}

/// How far an owner's output is.
#[derive(Clone, Copy)]
enum Progress {
    /// The events before it are settled.
    Next(Option<Offset>),
    /// It is not known whether the last transaction was committed. The next takeover finds out.
    Unknown,
}

/// What is appended in one transaction.
pub(super) struct Appended<'a> {
    pub(super) topic: &'a str,
    pub(super) partitions: u32,
    pub(super) records: &'a [(Offset, NewRecord)],
    /// The events before it are settled with these records.
    pub(super) next: Offset,
}

/// The topic in which the outputs of a group's sinks note how far they are.
pub fn positions_topic(group: &str) -> String {
    format!("{group}-outputs")
}

impl Outputs {
    pub(super) fn new(settings: KafkaSettings, clock: Clock) -> Outputs {
        Outputs { settings, clock, positions: Mutex::default() }
    }

    /// Blocks.
    pub(super) fn take_over(&self, cluster: &Cluster, output: LogOutput) -> Result<OutputOwner> {
        let mut config = self.settings.producer();
        config.set("transactional.id", format!("{} {} {}", output.group, output.sink, output.source));
        config.remove("delivery.timeout.ms");
        config.set("message.timeout.ms", DELIVERY_MS.to_string()).set("transaction.timeout.ms", TRANSACTION_MS.to_string());
        let client = Client::from_config_and_context(&config, DefaultProducerContext).map_err(settings::refusal)?;
        let addresses = self.settings.addresses.clone();
        let mut owner = OutputOwner { output, addresses, client: DetachedDrop::new(client), progress: Mutex::new(Progress::Unknown) };
        owner.client.get()?.init_transactions(TIMEOUT).map_err(|error| owner.failed("taking an output over", error))?;
        owner.progress = Mutex::new(Progress::Next(self.position(cluster, &owner.output)?));
        Ok(owner)
    }

    /// Reads the topic of positions, which is compacted. Nobody else writes this output's any more.
    fn position(&self, cluster: &Cluster, output: &LogOutput) -> Result<Option<Offset>> {
        let source = TopicPartition { topic: positions_topic(&output.group).into(), partition: 0 };
        self.wait_until_readable(cluster, &source)?;
        let bounds = cluster.bounds_of(&source)?;
        let mut all = lock(&self.positions);
        let known = all.entry(source.topic.clone()).or_default();
        if bounds.end < known.read_to {
            // The topic was created again.
            *known = Positions::default();
        }
        let mut from = known.read_to.max(bounds.begin);
        loop {
            let fetched = reader::read(&self.settings, &self.clock, cluster, &source, from, POSITIONS_AT_ONCE)?;
            let keyed = fetched.records.into_iter().filter_map(|record| Some((record.key?.to_vec(), record.value)));
            known.newest.extend(keyed.map(|(key, value)| (key, value.map(|value| value.to_vec()))));
            known.read_to = known.read_to.max(fetched.position);
            if fetched.at_end || fetched.position <= from {
                break;
            }
            from = fetched.position;
        }
        let newest = known.newest.get(position_key(output).as_bytes());
        newest.map(|value| position_of(value.as_deref(), output)).transpose()
    }

    /// Readers of what is committed see nothing behind a transaction that is open, also if that is of another output
    /// whose process was killed. What was written before now has to be seen.
    fn wait_until_readable(&self, cluster: &Cluster, source: &TopicPartition) -> Result<()> {
        let written = UncommittedReader::new(&self.settings)?.end(source)?;
        let began = Instant::now();
        while cluster.bounds_of(source)?.end < written {
            if began.elapsed() > UNREADABLE {
                let message = "the positions of outputs cannot be read: a transaction before them is open";
                return Err(Error::unavailable(message).with("topic", &source.topic).with("waited_s", UNREADABLE.as_secs()));
            }
            std::thread::sleep(QUEUE_FULL_WAIT * 4);
        }
        Ok(())
    }
}

impl OutputOwner {
    pub(super) fn output(&self) -> &LogOutput {
        &self.output
    }

    /// The events before it are settled.
    pub(super) fn next(&self) -> Option<Offset> {
        match *lock(&self.progress) {
            Progress::Next(next) => next,
            Progress::Unknown => None,
        }
    }

    /// Blocks until the transaction is committed.
    pub(super) fn append(&self, appended: &Appended<'_>) -> Result<()> {
        let mut progress = lock(&self.progress);
        let Progress::Next(next) = *progress else {
            let message = "an output was appended to after an error, without being taken over again";
            return Err(Error::conflict(message).with("sink", &self.output.sink));
        };
        if next >= Some(appended.next) {
            return Ok(());
        }
        let settled = next.map_or(0, |next| appended.records.partition_point(|(offset, _)| *offset < next));
        let outcome = self.transaction(appended, &appended.records[settled..]);
        *progress = match &outcome {
            Ok(()) => Progress::Next(Some(appended.next)),
            Err(_) => Progress::Unknown,
        };
        outcome
    }

    fn transaction(&self, appended: &Appended<'_>, records: &[(Offset, NewRecord)]) -> Result<()> {
        let client = self.client.get()?;
        let failed = |error| self.failed("appending the records of a sink", error);
        client.begin_transaction().map_err(failed)?;
        let sent = self.send_all(client, appended, records);
        let commit = || {
            deliver(client);
            client.commit_transaction(TIMEOUT).map_err(failed)
        };
        let outcome = sent.and_then(|()| commit());
        if outcome.is_err() {
            // If this fails too, the next owner's first step aborts the transaction.
            let _ = client.abort_transaction(TIMEOUT);
        }
        outcome
    }

    fn send_all(&self, client: &Client, appended: &Appended<'_>, records: &[(Offset, NewRecord)]) -> Result<()> {
        let random = Uuid::new_v4().as_u128() as u64;
        for (index, (_, record)) in records.iter().enumerate() {
            let partition = partition_for(record, appended.partitions, random_of(random, index));
            let mut message = BaseRecord::<[u8], [u8]>::to(appended.topic).partition(partition);
            message.key = record.key.as_deref();
            message.payload = record.value.as_deref();
            message.headers = headers_of(record)?;
            self.send(client, message)?;
        }
        let (topic, key, value) = (positions_topic(&self.output.group), position_key(&self.output), appended.next.to_string());
        self.send(client, BaseRecord::<[u8], [u8]>::to(&topic).partition(0).key(key.as_bytes()).payload(value.as_bytes()))
    }

    fn send(&self, client: &Client, mut message: BaseRecord<'_, [u8], [u8]>) -> Result<()> {
        let failed = |error| self.failed("appending the records of a sink", error);
        let began = Instant::now();
        while let Some(returned) = client::enqueue(client, message, began).map_err(failed)? {
            message = returned;
            std::thread::sleep(QUEUE_FULL_WAIT);
        }
        Ok(())
    }

    fn failed(&self, doing: &str, error: KafkaError) -> Error {
        let error = self.cause(error);
        let code = error.rdkafka_error_code();
        let is_fenced =
            matches!(code, Some(RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch));
        let failed = client::failed(doing, error, &self.addresses, &Reasons::default());
        let failed = match is_fenced {
            true => Error::new(ErrorKind::Conflict, "the output was taken over by another worker").caused_by(failed),
            false => failed,
        };
        failed.with("sink", &self.output.sink).with("partition", &self.output.source)
    }

    /// Once the brokers have refused a producer, each of its steps fails, and some do not say why.
    fn cause(&self, error: KafkaError) -> KafkaError {
        let refusal = self.client.get().ok().and_then(|client| client.client().fatal_error());
        match refusal {
            Some((code, _)) if error.rdkafka_error_code() != Some(code) => KafkaError::Global(code),
            _ => error,
        }
    }
}

/// Waits until each record is delivered or has failed, which the commit then says. A commit of rdkafka waits for them
/// too, but it looks for them again only after a tenth of a second.
#[allow(unsafe_code)]
fn deliver(client: &Client) {
    let timeout_ms = TIMEOUT.as_millis() as i32;
    // SAFETY: the native client lives as long as this borrow of it. Its own thread takes the delivery reports
    // meanwhile.
    unsafe { rdkafka::bindings::rd_kafka_flush(client.client().native_ptr(), timeout_ms) };
}

fn position_key(output: &LogOutput) -> String {
    format!("{} {} {}", output.sink, output.identity, output.source)
}

fn position_of(value: Option<&[u8]>, output: &LogOutput) -> Result<Offset> {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    let offset = text.and_then(|text| text.parse().ok()).map(Offset);
    offset.ok_or_else(|| {
        Error::corrupt("the position of an output is no offset")
            .with("topic", positions_topic(&output.group))
            .with("found", format!("{text:?}"))
    })
}
