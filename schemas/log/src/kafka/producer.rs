//! Appends to Kafka: idempotent, acknowledged by all in-sync replicas, with partitions chosen by us.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::mpsc;

use super::client::{self, DetachedDrop, Reasons, lock};
use super::settings::{self, KafkaSettings};
use crate::NewRecord;
use crate::record::{partition_for, random_of};
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// How long to wait between two looks at a full queue.
const QUEUE_FULL_FIRST_WAIT: Duration = Duration::from_millis(5);
const QUEUE_FULL_LAST_WAIT: Duration = Duration::from_millis(200);

type Client = ThreadedProducer<Acks, NoCustomPartitioner>;
/// A record's index in its append, and its partition and offset.
type Ack = (usize, Result<(i32, Offset), KafkaError>);

/// Holds the producer, and replaces it after a fatal error (the idempotent producer's sequence is broken then).
pub(super) struct Appender {
    settings: KafkaSettings,
    producer: Mutex<Option<Arc<DetachedDrop<Client>>>>,
}

impl Appender {
    pub(super) fn new(settings: KafkaSettings) -> Appender {
        Appender { settings, producer: Mutex::new(None) }
    }

    /// Appends to a topic of `partitions` partitions and waits for every outcome: each record's place, or why it was
    /// not acknowledged.
    pub(super) async fn append(&self, topic: &str, partitions: u32, records: &[NewRecord], random: u64) -> Vec<Result<(i32, Offset)>> {
        let producer = self.producer();
        let client = match producer.as_ref().map_err(Error::copied).and_then(|producer| producer.get()) {
            Ok(client) => client,
            Err(error) => return records.iter().map(|_| Err(error.copied())).collect(),
        };
        let mut outcomes: Vec<Option<Result<(i32, Offset)>>> = records.iter().map(|_| None).collect();
        let (sender, mut acks) = mpsc::channel(records.len().max(1));
        for (index, record) in records.iter().enumerate() {
            let partition = partition_for(record, partitions, random_of(random, index));
            let receipt = Box::new(Receipt { index, acks: sender.clone() });
            if let Err(error) = self.send(client, topic, partition, record, receipt).await {
                let is_gone = error.kind() == ErrorKind::Unavailable;
                outcomes[index] = Some(Err(error));
                // The others would wait for as long.
                if is_gone {
                    break;
                }
            }
        }
        drop(sender);
        while let Some((index, outcome)) = acks.recv().await {
            outcomes[index] = Some(outcome.map_err(|error| self.failed(client, topic, error)));
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(self.not_acknowledged(topic)))).collect()
    }

    async fn send(&self, client: &Client, topic: &str, partition: i32, record: &NewRecord, receipt: Box<Receipt>) -> Result<()> {
        let mut message = BaseRecord::<[u8], [u8], Box<Receipt>>::with_opaque_to(topic, receipt).partition(partition);
        message.key = record.key.as_deref();
        message.payload = record.value.as_deref();
        message.headers = headers_of(record)?;
        let failed = |error| self.failed(client, topic, error);
        let began = Instant::now();
        let mut wait = QUEUE_FULL_FIRST_WAIT;
        while let Some(returned) = client::enqueue(client, message, began).map_err(failed)? {
            message = returned;
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(QUEUE_FULL_LAST_WAIT);
        }
        Ok(())
    }

    fn producer(&self) -> Result<Arc<DetachedDrop<Client>>> {
        let mut producer = lock(&self.producer);
        let works = |client: &Client| client.client().fatal_error().is_none();
        if let Some(producer) = producer.as_ref().filter(|producer| producer.get().is_ok_and(works)) {
            return Ok(producer.clone());
        }
        let fresh = Client::from_config_and_context(&self.settings.producer(), Acks::default()).map_err(settings::refusal)?;
        Ok(producer.insert(Arc::new(DetachedDrop::new(fresh))).clone())
    }

    fn failed(&self, client: &Client, topic: &str, error: KafkaError) -> Error {
        let reasons = &client.client().context().reasons;
        client::failed("appending to the log", error, &self.settings.addresses, reasons).with("topic", topic)
    }

    fn not_acknowledged(&self, topic: &str) -> Error {
        Error::unavailable("the log did not acknowledge an append").with("topic", topic).with("brokers", &self.settings.addresses)
    }
}

/// Travels with each record through librdkafka and carries its acknowledgement back.
struct Receipt {
    index: usize,
    acks: mpsc::Sender<Ack>,
}

/// The producer's callbacks.
#[derive(Default)]
struct Acks {
    reasons: Reasons,
}

impl ClientContext for Acks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level, facility, message);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.reasons.note(&error, reason);
    }
}

impl ProducerContext for Acks {
    type DeliveryOpaque = Box<Receipt>;

    fn delivery(&self, result: &DeliveryResult<'_>, receipt: Box<Receipt>) {
        let outcome = match result {
            Ok(message) => Ok((message.partition(), Offset(message.offset()))),
            Err((error, _)) => Err(error.clone()),
        };
        // There is room for one of each record.
        receipt.acks.try_send((receipt.index, outcome)).ok();
    }
}

pub(super) fn headers_of(record: &NewRecord) -> Result<Option<OwnedHeaders>> {
    if record.headers.is_empty() {
        return Ok(None);
    }
    let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
    for (name, value) in &record.headers {
        if name.contains('\0') {
            return Err(Error::input("a header's name holds a zero byte").with("header", format!("{name:?}")));
        }
        headers = headers.insert(Header { key: name, value: Some(value.as_ref()) });
    }
    Ok(Some(headers))
}
