//! Benchmarks of decoding and deciding records.

use std::sync::Arc;
use std::time::Duration;

use basestream_bench::payments::{Kept, Payments, stream_sql};
use bytes::Bytes;
use definitions::StreamDefinition;
use definitions::parse::parse_stream;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use engine::events::{Decoder, EventBatchBuilder};
use speed::{Decider, Decision, DedupSettings, IdSpace};
use types::record::Record;
use types::vector::Offset;

use crate::site::scaled;

/// The number of records in a micro-batch: 50 ms at 100,000 a second.
fn records() -> u64 {
    scaled(50, 5_000)
}

fn record(offset: u64, value: Bytes) -> Record {
    Record { offset: Offset(offset as i64), timestamp: offset as i64, key: None, value: Some(value), headers: Vec::new() }
}

fn payments() -> (Arc<StreamDefinition>, Vec<Record>) {
    let payments = Payments { records: records(), accounts: 100_000 };
    let definition = parse_stream(&stream_sql("payments", Kept::EVERYTHING)).expect("a stream");
    (Arc::new(definition), (0..records()).map(|number| record(number, payments.payment(number).json())).collect())
}

fn bytes_of(records: &[Record]) -> usize {
    records.iter().filter_map(|record| record.value.as_ref()).map(Bytes::len).sum()
}

/// Decodes JSON of 11 members to typed values.
#[divan::bench]
fn decode(bencher: Bencher<'_, '_>) {
    let (definition, records) = payments();
    let decoder = Decoder::new(definition).expect("a decoder");
    let counted = bencher.counter(ItemsCount::new(records.len())).counter(BytesCount::new(bytes_of(&records)));
    counted.bench_local(|| records.iter().filter(|record| decoder.decode(record.value.as_deref()).is_ok()).count());
}

/// Decodes the same and builds the Arrow batch that is archived.
#[divan::bench]
fn decode_and_build(bencher: Bencher<'_, '_>) {
    let (definition, records) = payments();
    let decoder = Decoder::new(definition.clone()).expect("a decoder");
    bencher.counter(ItemsCount::new(records.len())).counter(BytesCount::new(bytes_of(&records))).bench_local(|| {
        let mut builder = EventBatchBuilder::new(&definition);
        for record in &records {
            let event = decoder.decode(record.value.as_deref()).expect("an event");
            builder.append(&event, 0, record).expect("a row");
        }
        builder.finish().expect("a batch")
    });
}

/// Decides events that have little more than an id: this measures the check whether the id is known.
fn decide(bencher: Bencher<'_, '_>, id_of: fn(u64) -> u64, accepted: fn(u64) -> u64) {
    let sql = "CREATE STREAM e (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us')) WITH (event_time = 'ts', id = 'id')";
    let decoder = Decoder::new(Arc::new(parse_stream(sql).expect("a stream"))).expect("a decoder");
    let value = |number: u64| Bytes::from(format!(r#"{{"id":"{:032x}","ts":{number}}}"#, id_of(number)));
    let records: Vec<Record> = (0..records()).map(|number| record(number, value(number))).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let space = IdSpace::new(DedupSettings { memory_bytes: 64 << 20, folder: folder.path().to_owned() });
    let decider = || Decider::new(None, None, Duration::from_secs(600), Some(Duration::from_secs(600)), &space);
    bencher.counter(ItemsCount::new(records.len())).with_inputs(decider).bench_local_values(|mut decider| {
        let is_accepted = |record: &&Record| matches!(decider.decide(&decoder, record), Ok(Decision::Accept(_)));
        let found = records.iter().filter(is_accepted).count();
        assert_eq!(found as u64, accepted(records.len() as u64));
        decider
    });
}

#[divan::bench]
fn decide_fresh_ids(bencher: Bencher<'_, '_>) {
    decide(bencher, |number| number, |records| records);
}

#[divan::bench]
fn decide_duplicates(bencher: Bencher<'_, '_>) {
    decide(bencher, |_| 7, |_| 1);
}
