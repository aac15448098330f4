//! Converts a Kafka message to our record. Its bytes are copied, because a kept message pins its whole fetch batch.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Headers, Message};

use types::record::Record;
use types::vector::Offset;

pub(super) fn record_of(message: &BorrowedMessage<'_>) -> Record {
    Record {
        offset: Offset(message.offset()),
        timestamp: message.timestamp().to_millis().unwrap_or(0).saturating_mul(1000),
        key: message.key().map(Bytes::copy_from_slice),
        value: message.payload().map(Bytes::copy_from_slice),
        headers: headers_of(message),
    }
}

/// rdkafka panics on a header name that is not UTF-8. Such a record keeps its key and value and loses its headers.
fn headers_of(message: &BorrowedMessage<'_>) -> Vec<(String, Bytes)> {
    let Some(headers) = message.headers() else { return Vec::new() };
    let copy =
        || headers.iter().map(|header| (header.key.to_owned(), header.value.map(Bytes::copy_from_slice).unwrap_or_default())).collect();
    catch_unwind(AssertUnwindSafe(copy)).unwrap_or_else(|_| {
        tracing::warn!(topic = message.topic(), partition = message.partition(), offset = message.offset(), "a header's name is not UTF-8");
        Vec::new()
    })
}
