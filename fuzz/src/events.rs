//! Fuzzes event decoding: a record's bytes become a row of the archive, or a dead letter's reason.

use std::sync::{Arc, OnceLock};

use arrow::array::Array;
use bytes::Bytes;
use definitions::StreamDefinition;
use definitions::parse::parse_stream;
use engine::events::{Decoder, EventBatchBuilder, canonical_text, headers_from_json, headers_to_json};
use types::record::Record;
use types::vector::Offset;

/// Every column type, nested paths and units; a nullable id, a numeric id, and an event time given as a date.
const STREAMS: [&str; 3] = [
    "CREATE STREAM every_type (id TEXT, ts TIMESTAMPTZ NOT NULL, flag BOOLEAN, small INT, big BIGINT, x DOUBLE, amount DECIMAL(18,2), \
        wide DECIMAL(38,10), day DATE, name UUID, bytes BYTEA, document JSON, tags TEXT[], numbers BIGINT[], times TIMESTAMPTZ[], \
        inner TEXT OPTIONS (path = '$.a.b.c'), other INT OPTIONS (path = '$.a.b.d')) \
        WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', keep_raw = true)",
    "CREATE STREAM numeric (id BIGINT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'ms'), price DECIMAL(10,4) NOT NULL) \
        WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1h', key = 'id')",
    "CREATE STREAM daily (day DATE NOT NULL, who UUID, amounts DECIMAL(18,2)[]) \
        WITH (format = 'json', event_time = 'day', id = 'who', dedup_within = '1d')",
];

fn streams() -> &'static [(Arc<StreamDefinition>, Decoder)] {
    static STREAMS_READ: OnceLock<Vec<(Arc<StreamDefinition>, Decoder)>> = OnceLock::new();
    STREAMS_READ.get_or_init(|| {
        let read = |sql: &&str| {
            let stream = Arc::new(parse_stream(sql).expect("the streams of this file parse"));
            (stream.clone(), Decoder::new(stream).expect("the streams of this file are decoded"))
        };
        STREAMS.iter().map(read).collect()
    })
}

pub fn run(data: &[u8]) {
    let Some((choice, value)) = data.split_first() else { return };
    let (stream, decoder) = &streams()[usize::from(*choice) % STREAMS.len()];
    let headers = vec![(String::from_utf8_lossy(&value[..value.len().min(9)]).into_owned(), Bytes::copy_from_slice(value))];
    let text = headers_to_json(&headers);
    assert_eq!(headers_from_json(text.as_deref().map(str::as_bytes)).expect("headers are read back"), headers);
    let _ = headers_from_json(Some(value));

    let event = match decoder.decode(Some(value)) {
        Ok(event) => event,
        Err(reason) => {
            let reason = reason.to_string();
            assert!(!reason.is_empty() && reason.len() < 4_000, "a dead letter's reason of {} bytes", reason.len());
            return;
        }
    };
    assert_eq!(decoder.decode(Some(value)).as_ref(), Ok(&event), "decoding depends on nothing else");
    let parsed: serde_json::Result<serde::de::IgnoredAny> = serde_json::from_slice(value);
    assert!(parsed.is_ok(), "what is decoded is valid JSON");

    let record =
        Record { offset: Offset(7), timestamp: 1_700_000_000_000_000, key: None, value: Some(Bytes::copy_from_slice(value)), headers };
    let mut builder = EventBatchBuilder::new(stream);
    builder.append(&event, 3, &record).expect("one event fits a batch");
    let batch = builder.finish().expect("a decoded event becomes a batch");
    for column in batch.columns() {
        column.to_data().validate_full().expect("the batch is valid");
    }
    let id = stream.id.as_deref().and_then(|id| batch.column_by_name(id)).and_then(|ids| canonical_text(ids, 0));
    assert_eq!(id, event.id(), "the archive gives the id back that the decoder saw");
}
