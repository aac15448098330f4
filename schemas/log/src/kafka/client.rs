//! Shared by all our Kafka clients: passes librdkafka's log lines and errors to `tracing`, and maps its error codes to
//! our kinds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use types::{Error, ErrorKind};

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
    let kind = error.rdkafka_error_code().map_or(ErrorKind::Unavailable, kind_of);
    let mut failed = Error::new(kind, format!("{doing} failed")).with("brokers", addresses);
    if let Some(reason) = reasons.last() {
        failed = failed.with("reason", reason);
    }
    failed.caused_by(error)
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
