use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use bytes::Bytes;

use super::super::tests::stream_of;
use super::super::{Decoder, event_schema};
use super::*;
use types::vector::Offset;

fn record(offset: i64, value: &str) -> Record {
    Record {
        offset: Offset(offset),
        timestamp: 1_000 + offset,
        key: None,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: vec![("h".into(), Bytes::from_static(b"v"))],
    }
}

#[test]
fn a_batch_holds_values_positions_and_raw_bytes() {
    let stream = Arc::new(stream_of(&[ColumnType::Array(Box::new(ColumnType::Decimal { precision: 10, scale: 2 }))]));
    let decoder = Decoder::new(stream.clone()).unwrap();
    let mut builder = EventBatchBuilder::new(&stream);
    let values = [r#"{"ts":"1970-01-01T00:00:01Z","id":"a","c0":[1.5,null]}"#, r#"{"ts":"1970-01-01T00:00:02Z"}"#];
    for (offset, value) in values.iter().enumerate() {
        let record = record(offset as i64 + 7, value);
        let event = decoder.decode(record.value.as_deref()).unwrap();
        builder.append(&event, 3, &record).unwrap();
    }
    assert_eq!(builder.len(), 2);
    assert!(builder.bytes() > values[0].len() + values[1].len());
    let batch = builder.finish().unwrap();
    assert_eq!(batch.schema(), event_schema(&stream));
    let column = |name: &str| batch.column_by_name(name).unwrap().clone();
    assert_eq!(column("__event_time").as_primitive::<TimestampMicrosecondType>().values(), &[1_000_000, 2_000_000]);
    assert_eq!(column("__source").as_string::<i32>().value(1), "payments");
    assert_eq!(column("__partition").as_primitive::<Int32Type>().values(), &[3, 3]);
    assert_eq!(column("__offset").as_primitive::<Int64Type>().values(), &[7, 8]);
    assert_eq!(column("__timestamp").as_primitive::<TimestampMicrosecondType>().values(), &[1_007, 1_008]);
    assert_eq!(column("__value").as_binary::<i32>().value(0), values[0].as_bytes());
    assert_eq!(column("__headers").as_binary::<i32>().value(0), br#"[["h","dg=="]]"#);
    assert!(column("__key").is_null(0));
    let lists = column("c0");
    assert_eq!((lists.as_list::<i32>().value(0).len(), lists.is_null(1)), (2, true));
}

#[test]
fn a_finished_builder_is_empty_and_goes_on() {
    let mut stream = stream_of(&[ColumnType::Array(Box::new(ColumnType::Array(Box::new(ColumnType::Int))))]);
    stream.keep_raw = false;
    let decoder = Decoder::new(Arc::new(stream.clone())).unwrap();
    let mut builder = EventBatchBuilder::new(&stream);
    assert_eq!(builder.finish().unwrap().num_rows(), 0);
    for round in 1..4 {
        for offset in 0..round {
            let record = record(offset, r#"{"ts":"1970-01-01T00:00:01Z","c0":[[1],null,[]]}"#);
            builder.append(&decoder.decode(record.value.as_deref()).unwrap(), 0, &record).unwrap();
        }
        let batch = builder.finish().unwrap();
        assert_eq!((batch.num_rows() as i64, batch.schema()), (round, event_schema(&stream)));
        assert!(builder.is_empty() && builder.bytes() == 0);
    }
}

#[test]
fn an_event_of_another_stream_is_refused() {
    let decoder = Decoder::new(Arc::new(stream_of(&[ColumnType::Int]))).unwrap();
    let record = record(0, r#"{"ts":"1970-01-01T00:00:01Z"}"#);
    let event = decoder.decode(record.value.as_deref()).unwrap();
    let mut other = EventBatchBuilder::new(&stream_of(&[]));
    assert!(other.append(&event, 0, &record).is_err());
    assert!(other.is_empty());
}
