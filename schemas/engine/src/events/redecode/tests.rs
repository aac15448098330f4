use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use definitions::ColumnType;
use types::record::Record;

use super::super::tests::stream_of;
use super::super::{Decoder, EventBatchBuilder};
use super::*;

/// The events of these records, as a worker archives them.
fn archived(stream: &StreamDefinition, records: &[&str]) -> RecordBatch {
    let decoder = Decoder::new(Arc::new(stream.clone())).unwrap();
    let mut builder = EventBatchBuilder::new(stream);
    for (offset, value) in records.iter().enumerate() {
        let record = Record {
            offset: Offset(offset as i64 * 10),
            timestamp: 1,
            key: None,
            value: Some(value.as_bytes().to_vec().into()),
            headers: Vec::new(),
        };
        builder.append(&decoder.decode(record.value.as_deref()).unwrap(), 3, &record).unwrap();
    }
    builder.finish().unwrap()
}

fn record(more: &str) -> String {
    format!(r#"{{"ts":"2026-01-01T00:00:00Z","id":"a"{more}}}"#)
}

fn events(redecoded: RedecodedEvents) -> RecordBatch {
    match redecoded {
        RedecodedEvents::Events(events) => events,
        other => panic!("expected events, found {other:?}"),
    }
}

#[test]
fn what_is_decoded_again_is_what_a_worker_would_archive_by_the_new_definition() {
    let before = stream_of(&[ColumnType::Int, ColumnType::Text]);
    let mut after = stream_of(&[ColumnType::Double, ColumnType::Text, ColumnType::Array(Box::new(ColumnType::BigInt))]);
    after.columns[3].path = vec!["deep".into(), "text".into()];
    after.columns.swap(0, 4);
    let records: Vec<String> =
        [r#","c0":1,"c1":"x","c2":[1,null],"deep":{"text":"y"}"#, r#","c0":2"#, r#","deep":null"#].map(record).into();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let redecoded = Redecoder::new(&before, &after, OnMisfit::Report).redecode(&archived(&before, &records)).unwrap();
    assert_eq!(events(redecoded), archived(&after, &records));
}

#[test]
fn a_column_counts_as_changed_by_type_path_unit_and_not_null() {
    let before = stream_of(&[ColumnType::Int]);
    let names = |change: &dyn Fn(&mut Column)| {
        let mut after = before.clone();
        change(&mut after.columns[2]);
        columns_to_decode(&before, &after).iter().map(|column| column.name.clone()).collect::<Vec<_>>()
    };
    assert!(names(&|_| {}).is_empty());
    assert_eq!(names(&|column| column.column_type = ColumnType::BigInt), ["c0"]);
    assert_eq!(names(&|column| column.path = vec!["x".into()]), ["c0"]);
    assert_eq!(names(&|column| column.unit = Some(definitions::TimeUnit::Millis)), ["c0"]);
    assert_eq!(names(&|column| column.nullable = false), ["c0"]);
    assert_eq!(names(&|column| column.name = "new".into()), ["new"]);
    let mut strict = before.clone();
    strict.columns[2].nullable = false;
    assert!(columns_to_decode(&strict, &before).is_empty(), "values that are never NULL stay");
}

#[test]
fn records_that_do_not_fit_are_listed_with_their_place() {
    let (before, after) = (stream_of(&[ColumnType::Text]), stream_of(&[ColumnType::BigInt]));
    let records = [r#","c0":"7""#, r#","c0":"x""#, r#","c0":"y""#].map(record);
    let archive = archived(&before, &records.each_ref().map(String::as_str));
    let RedecodedEvents::Misfits(misfits) = Redecoder::new(&before, &after, OnMisfit::Report).redecode(&archive).unwrap() else { panic!() };
    let places: Vec<(i32, i64, &str)> = misfits.iter().map(|misfit| (misfit.partition, misfit.offset.0, &*misfit.column)).collect();
    assert_eq!(places, [(3, 10, "c0"), (3, 20, "c0")]);
    assert!(misfits[0].reason.starts_with("column c0 ($.c0): found \"x\", expected BIGINT"), "{}", misfits[0].reason);

    let nulled = events(Redecoder::new(&before, &after, OnMisfit::Null).redecode(&archive).unwrap());
    let values: Vec<Option<i64>> = nulled.column_by_name("c0").unwrap().as_primitive::<Int64Type>().iter().collect();
    assert_eq!(values, [Some(7), None, None]);

    let mut strict = after.clone();
    strict.columns[2].nullable = false;
    assert!(matches!(Redecoder::new(&before, &strict, OnMisfit::Null).redecode(&archive).unwrap(), RedecodedEvents::Misfits(_)));
}

#[test]
fn without_raw_records_an_added_column_stays_null_and_a_changed_one_does_not_fit() {
    let before = StreamDefinition { keep_raw: false, ..stream_of(&[ColumnType::Text]) };
    let archive = archived(&before, &[&record(r#","c0":"7""#)]);
    let added = stream_of(&[ColumnType::Text, ColumnType::Double]);
    let redecoder = Redecoder::new(&before, &added, OnMisfit::Report);
    assert!(redecoder.lost_without_raw().is_empty());
    assert!(matches!(redecoder.redecode(&archive).unwrap(), RedecodedEvents::AsBefore));

    let changed = stream_of(&[ColumnType::Double]);
    let RedecodedEvents::Misfits(misfits) = Redecoder::new(&before, &changed, OnMisfit::Report).redecode(&archive).unwrap() else {
        panic!()
    };
    assert!(misfits[0].reason.contains("keep_raw = false"), "{}", misfits[0].reason);
    let nulled = events(Redecoder::new(&before, &changed, OnMisfit::Null).redecode(&archive).unwrap());
    assert!(nulled.column_by_name("c0").unwrap().as_primitive::<Float64Type>().is_null(0));
    assert!(nulled.column_by_name("__value").is_none());
}
