use super::*;
use arrow::datatypes::SchemaRef;
use definitions::{Column, ColumnType, StreamDefinition};
use types::columns::{EVENT_TIME, HEADERS, KEY, OFFSET, PARTITION, SOURCE, TIMESTAMP, VALUE};

/// A stream with columns `c0`, `c1`, .. of these types, after the event time `ts` and the id `id`. All columns are
/// nullable.
pub(super) fn stream_of(types: &[ColumnType]) -> StreamDefinition {
    let column = |name: &str, column_type: ColumnType, nullable| Column {
        name: name.into(),
        column_type,
        nullable,
        path: vec![name.into()],
        unit: None,
    };
    let mut columns = vec![column("ts", ColumnType::TimestampTz, false), column("id", ColumnType::Text, true)];
    columns.extend(types.iter().enumerate().map(|(i, column_type)| column(&format!("c{i}"), column_type.clone(), true)));
    StreamDefinition {
        name: "payments".into(),
        columns,
        topic: "payments".into(),
        event_time: "ts".into(),
        id: Some("id".into()),
        dedup_within: None,
        key: None,
        retention: None,
        keep_raw: true,
        cluster_by: Vec::new(),
        sql: String::new(),
        origin: Default::default(),
    }
}

#[test]
fn hidden_columns_follow_the_streams_own() {
    let mut stream = stream_of(&[ColumnType::Int]);
    let names = |schema: SchemaRef| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    assert_eq!(names(user_schema(&stream)), ["ts", "id", "c0"]);
    assert_eq!(names(plan_schema(&stream)), ["ts", "id", "c0", EVENT_TIME, SOURCE, PARTITION, OFFSET]);
    assert_eq!(names(event_schema(&stream)), ["ts", "id", "c0", EVENT_TIME, SOURCE, PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS]);
    stream.keep_raw = false;
    assert_eq!(names(event_schema(&stream)), ["ts", "id", "c0", EVENT_TIME, SOURCE, PARTITION, OFFSET, TIMESTAMP]);
}

#[test]
fn headers_read_back_from_their_text() {
    let headers = vec![("trace \"a\"".to_string(), bytes::Bytes::from_static(&[0, 255])), (String::new(), bytes::Bytes::new())];
    let text = headers_to_json(&headers).unwrap();
    assert_eq!(text, r#"[["trace \"a\"","AP8="],["",""]]"#);
    assert_eq!(headers_from_json(Some(text.as_bytes())).unwrap(), headers);
    assert_eq!(headers_to_json(&[]), None);
    assert!(headers_from_json(None).unwrap().is_empty());
    assert!(headers_from_json(Some(b"{}")).is_err());
}
