//! Shared by all our Kafka clients: passes librdkafka's log lines and errors to `tracing`, maps its error codes to our
//! kinds, and drops producers on a thread of their own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, NoCustomPartitioner, ProducerContext, ThreadedProducer};

use types::{Error, ErrorKind, Result};

/// How long to wait for a full queue.
const QUEUE_FULL_TIMEOUT: Duration = Duration::from_secs(30);

/// A record on its way into a producer's queue.
type QueuedRecord<'a, C> = BaseRecord<'a, [u8], [u8], <C as ProducerContext>::DeliveryOpaque>;

/// Keeps the newest reason that librdkafka logged: it often says more than the error code (a failed TLS handshake, a
/// name that does not resolve).
#[derive(Debug, Default)]
pub(super) struct Reasons {
    last: Mutex<Option<String>>,
}

impl Reasons {
    pub(super) fn note(&self, error: &KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::debug!(%error, reason, "kafka client error");
        }
        *lock(&self.last) = Some(reason.to_owned());
    }

    pub(super) fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }
}

/// Locks a mutex, ignoring poison from a panic elsewhere: the data it guards is valid after every statement.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A producer. Its drop waits for its thread, so another thread does it. Where none can be started, the producer is
/// dropped in place.
pub(super) struct DetachedDrop<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DetachedDrop<T> {
    pub(super) fn new(producer: T) -> Self {
        Self(Some(producer))
    }

    pub(super) fn get(&self) -> Result<&T> {
        self.0.as_ref().ok_or_else(|| Error::internal("a producer was dropped already"))
    }
}

impl<T: Send + 'static> Drop for DetachedDrop<T> {
    fn drop(&mut self) {
        if let Some(producer) = self.0.take() {
            let _ = thread::Builder::new().name("kafka-drop".into()).spawn(move || drop(producer));
        }
    }
}

/// Puts a record into the queue of a producer. Returns the record if the queue is full: the caller waits a moment, and
/// tries again. `began` is when it was first tried.
///
/// Errors: what librdkafka refuses, and a queue that stays full.
pub(super) fn enqueue<'a, C: ProducerContext + 'static>(
    producer: &ThreadedProducer<C, NoCustomPartitioner>,
    record: QueuedRecord<'a, C>,
    began: Instant,
) -> Result<Option<QueuedRecord<'a, C>>, KafkaError> {
    let Err((error, returned)) = producer.send(record) else { return Ok(None) };
    let is_full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
    if is_full && began.elapsed() <= QUEUE_FULL_TIMEOUT { Ok(Some(returned)) } else { Err(error) }
}

/// The context of a client without its own callbacks.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    pub(super) reasons: Reasons,
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.reasons.note(&error, reason);
    }
}

impl ConsumerContext for Quiet {}

pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::warn!(target: "kafka", facility, message, "librdkafka error");
        }
        RDKafkaLogLevel::Warning => tracing::info!(target: "kafka", facility, message, "librdkafka warning"),
        _ => tracing::debug!(target: "kafka", facility, message, "librdkafka"),
    }
}

/// Converts a librdkafka error, with the kind that fits its code and the brokers that it is about.
pub(super) fn failed(doing: &str, error: KafkaError, addresses: &str, reasons: &Reasons) -> Error {
    let code = error.rdkafka_error_code();
    let kind = code.map_or(ErrorKind::Unavailable, kind_of);
    let mut failed = Error::new(kind, format!("{doing} failed")).with("brokers", addresses);
    if let Some(reason) = reasons.last() {
        failed = failed.with("reason", reason);
    }
    if let Some(help) = code.and_then(help_for) {
        failed = failed.with("help", help);
    }
    failed.caused_by(error)
}

/// What the brokers do not say of a record that they refuse.
fn help_for(code: RDKafkaErrorCode) -> Option<&'static str> {
    match code {
        RDKafkaErrorCode::InvalidRecord => Some(
            "a compacted topic takes no record without a key: set `key` to a column that is never NULL, or change its `cleanup.policy`",
        ),
        RDKafkaErrorCode::MessageSizeTooLarge => {
            Some("raise `max.message.bytes` of the topic, or `message.max.bytes` in log.properties, or make the records smaller")
        }
        _ => None,
    }
}

pub(super) fn kind_of(code: RDKafkaErrorCode) -> ErrorKind {
    use RDKafkaErrorCode as Code;
    match code {
        Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition => ErrorKind::NotFound,
        Code::AutoOffsetReset | Code::OffsetOutOfRange => ErrorKind::NotFound,
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::InvalidTopic
        | Code::InvalidArgument
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidConfig
        | Code::InvalidSessionTimeout
        | Code::InvalidGroupId
        | Code::InconsistentGroupProtocol
        | Code::UnsupportedVersion
        | Code::IllegalSASLState
        | Code::PolicyViolation => ErrorKind::Input,
        Code::BadMessage | Code::InvalidMessage | Code::BadCompression => ErrorKind::Corrupt,
        Code::MessageSizeTooLarge => ErrorKind::Limit,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_producer_is_dropped_on_another_thread() {
        struct Producer(mpsc::Sender<thread::ThreadId>);

        impl Drop for Producer {
            fn drop(&mut self) {
                self.0.send(thread::current().id()).unwrap();
            }
        }

        let (sender, dropped_on) = mpsc::channel();
        let producer = DetachedDrop::new(Producer(sender));
        assert!(producer.get().is_ok());
        drop(producer);
        assert_ne!(dropped_on.recv().unwrap(), thread::current().id());
    }
}
