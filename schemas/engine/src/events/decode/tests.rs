use proptest::prelude::*;

use super::super::tests::stream_of;
use super::*;
use definitions::TimeUnit;

const TS: &str = r#""ts":"2024-05-01T12:00:00Z""#;

/// A decoder with one nullable column `c0` next to the event time.
fn decoder(column_type: ColumnType) -> Decoder {
    Decoder::new(Arc::new(stream_of(&[column_type]))).unwrap()
}

fn decoder_with(change: impl FnOnce(&mut StreamDefinition), types: &[ColumnType]) -> Decoder {
    let mut stream = stream_of(types);
    change(&mut stream);
    Decoder::new(Arc::new(stream)).unwrap()
}

/// Returns the value of `c0` for the text `json`.
fn read_one(column_type: ColumnType, json: &str) -> Result<ColumnValue<'static>, String> {
    let text = format!(r#"{{{TS},"c0":{json}}}"#);
    let decoder = decoder(column_type);
    let event = decoder.decode(Some(text.as_bytes())).map_err(|error| error.to_string())?;
    Ok(owned(&event.values()[2]))
}

fn owned(value: &ColumnValue<'_>) -> ColumnValue<'static> {
    match value {
        ColumnValue::Text(text) => ColumnValue::Text(Cow::Owned(text.to_string())),
        ColumnValue::List(items) => ColumnValue::List(items.iter().map(owned).collect()),
        ColumnValue::Null => ColumnValue::Null,
        ColumnValue::Boolean(value) => ColumnValue::Boolean(*value),
        ColumnValue::Int(value) => ColumnValue::Int(*value),
        ColumnValue::BigInt(value) => ColumnValue::BigInt(*value),
        ColumnValue::Double(value) => ColumnValue::Double(*value),
        ColumnValue::Decimal { unscaled, scale } => ColumnValue::Decimal { unscaled: *unscaled, scale: *scale },
        ColumnValue::Date(value) => ColumnValue::Date(*value),
        ColumnValue::Timestamp(value) => ColumnValue::Timestamp(*value),
        ColumnValue::Bytes(value) => ColumnValue::Bytes(value.clone()),
    }
}

fn text(value: &str) -> ColumnValue<'static> {
    ColumnValue::Text(Cow::Owned(value.into()))
}

#[test]
fn decimals_come_from_their_text_and_never_lose_a_digit() {
    let read = |json: &str| read_one(ColumnType::Decimal { precision: 18, scale: 2 }, json);
    let cents = |unscaled| Ok(ColumnValue::Decimal { unscaled, scale: 2 });
    assert_eq!(read("0.1"), cents(10));
    assert_eq!(read("9007199254740993.07"), cents(900719925474099307));
    assert_eq!(read(r#""12.30""#), cents(1230));
    assert_eq!(read("1e2"), cents(10000));
    assert_eq!(read("1.500"), cents(150));
    assert_eq!(read("-0.01"), cents(-1));
    let error = read("12.345").unwrap_err();
    assert_eq!(
        error,
        "column c0 ($.c0): found 12.345, expected DECIMAL(18,2): a number with at most 16 digits before the point and 2 behind it"
    );
    assert!(read("1e16").is_err() && read("true").is_err() && read(r#""""#).is_err());
}

#[test]
fn whole_numbers_are_exact_and_bounded() {
    assert_eq!(read_one(ColumnType::BigInt, "9007199254740993"), Ok(ColumnValue::BigInt(9007199254740993)));
    assert_eq!(read_one(ColumnType::BigInt, r#""-9223372036854775808""#), Ok(ColumnValue::BigInt(i64::MIN)));
    assert_eq!(read_one(ColumnType::Int, "1e2"), Ok(ColumnValue::Int(100)));
    assert_eq!(read_one(ColumnType::Int, "5.0"), Ok(ColumnValue::Int(5)));
    for json in ["9223372036854775808", "1.5", "1e30", "[1]"] {
        assert!(read_one(ColumnType::BigInt, json).is_err(), "{json}");
    }
    assert!(read_one(ColumnType::Int, "2147483648").unwrap_err().contains("expected INT: a whole number from -2147483648 to 2147483647"));
}

#[test]
fn doubles_are_finite_numbers_only() {
    assert_eq!(read_one(ColumnType::Double, "-1.5e3"), Ok(ColumnValue::Double(-1500.0)));
    for zero in ["-0.0", "-0", "-0e3", "-1e-400"] {
        let Ok(ColumnValue::Double(value)) = read_one(ColumnType::Double, zero) else { panic!("{zero}") };
        assert!(value == 0.0 && value.is_sign_positive(), "{zero}");
    }
    for json in [r#""NaN""#, r#""Infinity""#, r#""1.5""#, "1e999", "true"] {
        assert!(read_one(ColumnType::Double, json).is_err(), "{json}");
    }
}

#[test]
fn booleans_are_true_and_false_only() {
    assert_eq!(read_one(ColumnType::Boolean, "false"), Ok(ColumnValue::Boolean(false)));
    for json in ["1", r#""true""#, "[]"] {
        assert!(read_one(ColumnType::Boolean, json).is_err(), "{json}");
    }
}

#[test]
fn texts_keep_every_character() {
    assert_eq!(read_one(ColumnType::Text, r#""a\u0000b\n\"é😀""#), Ok(text("a\0b\n\"é😀")));
    assert_eq!(read_one(ColumnType::Text, r#""\ud83d\ude00""#), Ok(text("😀")));
    assert!(read_one(ColumnType::Text, r#""\ud83d""#).is_err());
    assert_eq!(read_one(ColumnType::Text, "17").unwrap_err(), "column c0 ($.c0): found 17, expected TEXT: a JSON string");
}

#[test]
fn timestamps_take_any_offset_but_need_one() {
    let half_past = Ok(ColumnValue::Timestamp(1_714_566_600_000_000));
    assert_eq!(read_one(ColumnType::TimestampTz, r#""2024-05-01T14:30:00+02:00""#), half_past);
    assert!(read_one(ColumnType::TimestampTz, r#""2024-05-01T14:30:00""#).unwrap_err().contains("this one has no zone"));
    assert!(read_one(ColumnType::TimestampTz, "1714566600").unwrap_err().contains("give the column a unit"));
}

#[test]
fn timestamps_as_numbers_are_read_to_the_microsecond_in_their_unit() {
    let read = |unit, json: &str| {
        let record = format!(r#"{{"ts":{json}}}"#);
        let decoder = decoder_with(|stream| stream.columns[0].unit = Some(unit), &[]);
        decoder.decode(Some(record.as_bytes())).map(|event| event.event_time()).map_err(|error| error.to_string())
    };
    assert_eq!(read(TimeUnit::Seconds, "1714566600.25"), Ok(1_714_566_600_250_000));
    assert_eq!(read(TimeUnit::Millis, "1714566600123.456"), Ok(1_714_566_600_123_456));
    assert_eq!(read(TimeUnit::Millis, r#""1714566600123""#), Ok(1_714_566_600_123_000));
    assert_eq!(read(TimeUnit::Micros, "-1"), Ok(-1));
    assert_eq!(read(TimeUnit::Nanos, "-1"), Ok(-1));
    assert_eq!(read(TimeUnit::Nanos, "1714566600123456789"), Ok(1_714_566_600_123_456));
    assert_eq!(read(TimeUnit::Seconds, r#""2024-05-01T12:30:00Z""#), Ok(1_714_566_600_000_000));
    assert_eq!(read(TimeUnit::Seconds, "1764327600.1234567"), Ok(1_764_327_600_123_456), "as Python's time.time() may be");
    assert_eq!(read(TimeUnit::Seconds, "-0.0000001"), Ok(-1), "rounded down, as nanoseconds are");
    assert!(read(TimeUnit::Seconds, "true").unwrap_err().contains("or a number in the column's unit"));
    assert!(read(TimeUnit::Seconds, "1714566600123").unwrap_err().contains("years 0001 to 9999"));
}

#[test]
fn dates_uuids_and_bytes_have_one_form() {
    assert_eq!(read_one(ColumnType::Date, r#""1970-01-02""#), Ok(ColumnValue::Date(1)));
    assert!(read_one(ColumnType::Date, r#""1970-1-2""#).is_err());
    let uuid = "0123abcd-4567-89ab-cdef-0123456789ab";
    assert_eq!(read_one(ColumnType::Uuid, &format!("\"{}\"", uuid.to_uppercase())), Ok(text(uuid)));
    assert_eq!(read_one(ColumnType::Uuid, &format!("\"{uuid}\"")), Ok(text(uuid)));
    assert!(read_one(ColumnType::Uuid, r#""0123""#).is_err());
    assert_eq!(read_one(ColumnType::Bytea, r#""AP8=""#), Ok(ColumnValue::Bytes(vec![0, 255])));
    assert_eq!(read_one(ColumnType::Bytea, r#""AP8""#), Ok(ColumnValue::Bytes(vec![0, 255])));
    assert!(read_one(ColumnType::Bytea, r#""A-""#).is_err());
}

#[test]
fn json_columns_keep_the_text_as_it_stands() {
    assert_eq!(read_one(ColumnType::Json, r#"{"a" : [1.0, null]}"#), Ok(text(r#"{"a" : [1.0, null]}"#)));
    assert_eq!(read_one(ColumnType::Json, "null"), Ok(ColumnValue::Null));
}

#[test]
fn arrays_name_the_item_that_is_wrong() {
    let ints = || ColumnType::Array(Box::new(ColumnType::Int));
    assert_eq!(read_one(ints(), "[1, null, 3]"), Ok(ColumnValue::List(vec![ColumnValue::Int(1), ColumnValue::Null, ColumnValue::Int(3)])));
    assert!(read_one(ints(), "[1, \"x\"]").unwrap_err().starts_with(r#"column c0 ($.c0[1]): found "x", expected INT"#));
    let nested = ColumnType::Array(Box::new(ints()));
    assert!(read_one(nested, "[[1], [2, true]]").unwrap_err().starts_with("column c0 ($.c0[1][1]): found true"));
    assert!(read_one(ints(), "5").unwrap_err().ends_with("expected INT[]: a JSON array"));
}

#[test]
fn nested_paths_are_followed_and_a_parent_may_be_a_column_too() {
    let decoder = decoder_with(
        |stream| {
            stream.columns[2].path = vec!["a".into(), "b".into()];
            stream.columns[3].path = vec!["a".into(), "x".into(), "y".into()];
            stream.columns[4].path = vec!["a".into(), "x".into()];
        },
        &[ColumnType::Int, ColumnType::Text, ColumnType::Json],
    );
    let values = |json: &str| {
        let record = format!("{{{TS},{json}}}");
        decoder
            .decode(Some(record.as_bytes()))
            .map(|event| event.values()[2..].iter().map(owned).collect::<Vec<_>>())
            .map_err(|e| e.to_string())
    };
    let whole = vec![ColumnValue::Int(1), text("z"), text(r#"{"y":"z"}"#)];
    assert_eq!(values(r#""a":{"skip":[{}],"x":{"y":"z"},"b":1}"#), Ok(whole));
    assert_eq!(values(r#""a":null"#), Ok(vec![ColumnValue::Null; 3]));
    assert_eq!(values(r#""a":{"b":1,"x":{"y":"z"}},"a":{"b":2}"#), Ok(vec![ColumnValue::Int(2), ColumnValue::Null, ColumnValue::Null]));
    assert_eq!(values(r#""a":[1]"#).unwrap_err(), "column c0 ($.a.b): found an array on the way, expected an object there");
}

#[test]
fn of_members_of_the_same_name_the_last_wins() {
    let record = format!(r#"{{{TS},"c0":1,"c0":2,"\u0063\u0030":3}}"#);
    assert_eq!(decoder(ColumnType::Int).decode(Some(record.as_bytes())).unwrap().values()[2], ColumnValue::Int(3));
}

#[test]
fn what_is_missing_is_null_or_an_error() {
    let mut stream = stream_of(&[ColumnType::Int]);
    let record = format!("{{{TS}}}");
    assert_eq!(Decoder::new(Arc::new(stream.clone())).unwrap().decode(Some(record.as_bytes())).unwrap().values()[2], ColumnValue::Null);
    stream.columns[2].nullable = false;
    let decoder = Decoder::new(Arc::new(stream)).unwrap();
    let error = decoder.decode(Some(record.as_bytes())).unwrap_err();
    assert_eq!(error.to_string(), "column c0 ($.c0): found nothing, expected INT NOT NULL");
    let error = decoder.decode(Some(format!(r#"{{{TS},"c0":null}}"#).as_bytes())).unwrap_err();
    assert_eq!(error.found, "null");
}

#[test]
fn what_is_no_object_is_refused_as_a_whole() {
    let decoder = decoder(ColumnType::Int);
    let error = |value: Option<&[u8]>| decoder.decode(value).unwrap_err().to_string();
    assert_eq!(error(None), "record: found no value (a tombstone), expected one JSON object");
    assert_eq!(error(Some(b"")), "record: found an empty value, expected one JSON object");
    assert_eq!(error(Some(b"[1]")), "record: found [1], expected one JSON object");
    assert_eq!(error(Some(b"{\"c\":\"\xff\"}")), "record: found invalid UTF-8 at byte 6, expected one JSON object");
    assert!(error(Some(b"{\"c\":1")).starts_with("record: found invalid JSON (EOF while parsing an object at line 1 column 6): {\"c\":1"));
    assert!(error(Some(b"{} {}")).contains("trailing characters"));
}

#[test]
fn a_long_value_is_shortened_in_the_message() {
    let error = read_one(ColumnType::Int, &format!("\"{}\"", "é".repeat(5_000))).unwrap_err();
    assert!(error.contains(".. (10002 bytes)") && error.len() < 300, "{error}");
}

#[test]
fn a_deeply_nested_value_does_not_overflow_the_stack() {
    let bomb = "[".repeat(500_000);
    let closed = format!("{bomb}{}", "]".repeat(500_000));
    for json in [&bomb, &closed] {
        let record = format!(r#"{{{TS},"other":{json},"c0":{json}}}"#);
        let _ = decoder(ColumnType::Json).decode(Some(record.as_bytes()));
        let _ = decoder(ColumnType::Array(Box::new(ColumnType::Int))).decode(Some(record.as_bytes()));
    }
    let objects = r#"{"a":"#.repeat(200_000);
    let decoder = decoder_with(|stream| stream.columns[2].path = vec!["a".into(); 100], &[ColumnType::Int]);
    assert!(decoder.decode(Some(objects.as_bytes())).is_err());
}

#[test]
fn a_date_as_event_time_is_midnight_utc() {
    let decoder = decoder_with(|stream| stream.columns[0].column_type = ColumnType::Date, &[]);
    assert_eq!(decoder.decode(Some(br#"{"ts":"1969-12-31"}"#)).unwrap().event_time(), -86_400_000_000);
}

#[test]
fn ids_and_keys_are_texts_of_their_values() {
    let types = [ColumnType::BigInt, ColumnType::Decimal { precision: 10, scale: 2 }];
    let decoder = decoder_with(
        |stream| {
            stream.id = Some("c0".into());
            stream.key = Some("c1".into());
        },
        &types,
    );
    let record = format!(r#"{{{TS},"c0":"1e3","c1":7.5}}"#);
    let event = decoder.decode(Some(record.as_bytes())).unwrap();
    assert_eq!((event.id().as_deref(), event.key().as_deref()), (Some("1000"), Some("7.50")));
    let record = format!(r#"{{{TS},"c0":null}}"#);
    let event = decoder.decode(Some(record.as_bytes())).unwrap();
    assert_eq!((event.id(), event.key()), (None, None));
}

#[test]
fn a_definition_whose_roles_do_not_fit_is_refused() {
    let refused = |change: fn(&mut StreamDefinition)| {
        let mut stream = stream_of(&[ColumnType::Array(Box::new(ColumnType::Text))]);
        change(&mut stream);
        Decoder::new(Arc::new(stream)).unwrap_err().to_string()
    };
    assert!(refused(|stream| stream.event_time = "at".into()).contains("it has ts, id, c0"));
    assert!(refused(|stream| stream.event_time = "id".into()).contains("is TEXT: expected TIMESTAMPTZ or DATE"));
    assert!(refused(|stream| stream.key = Some("c0".into())).contains("is an array"));
}

/// Any value of any type, with a JSON text of it.
fn typed() -> impl Strategy<Value = (ColumnType, ColumnValue<'static>, String)> {
    let leaf = prop_oneof![
        any::<String>().prop_map(|s| (ColumnType::Text, text(&s), serde_json::to_string(&s).unwrap())),
        any::<bool>().prop_map(|b| (ColumnType::Boolean, ColumnValue::Boolean(b), b.to_string())),
        any::<i32>().prop_map(|i| (ColumnType::Int, ColumnValue::Int(i), i.to_string())),
        (any::<i64>(), any::<bool>()).prop_map(|(i, quoted)| {
            (ColumnType::BigInt, ColumnValue::BigInt(i), if quoted { format!("\"{i}\"") } else { i.to_string() })
        }),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(|f| { (ColumnType::Double, ColumnValue::Double(f), serde_json::to_string(&f).unwrap()) }),
        (any::<i64>(), 0i8..18).prop_map(|(i, scale)| {
            (ColumnType::Decimal { precision: 38, scale }, ColumnValue::Decimal { unscaled: i.into(), scale }, format!("{i}e-{scale}"))
        }),
        (-719_162..=2_932_896i32).prop_map(|d| (ColumnType::Date, ColumnValue::Date(d), format!("\"{}\"", super::super::format_date(d)))),
        (-62_135_596_800_000_000..253_402_300_800_000_000i64).prop_map(|t| (
            ColumnType::TimestampTz,
            ColumnValue::Timestamp(t),
            format!("\"{}\"", super::super::format_timestamp(t))
        )),
        any::<u128>().prop_map(|u| {
            let uuid = uuid::Uuid::from_u128(u).to_string();
            (ColumnType::Uuid, text(&uuid), format!("\"{}\"", uuid.to_uppercase()))
        }),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|b| {
            use base64::Engine;
            let encoded = base64::engine::general_purpose::STANDARD.encode(&b);
            (ColumnType::Bytea, ColumnValue::Bytes(b), format!("\"{encoded}\""))
        }),
        any::<String>().prop_map(|s| {
            let json = serde_json::json!({"k": [s, 1.5, {}]}).to_string();
            (ColumnType::Json, text(&json), json)
        }),
    ];
    (leaf, 0..4usize, any::<bool>()).prop_map(|((column_type, value, json), copies, null)| match (copies, null) {
        (0, false) => (column_type, value, json),
        (0, true) => (column_type, ColumnValue::Null, "null".to_string()),
        (copies, _) => {
            let mut items = vec![value; copies];
            let mut texts = vec![json; copies];
            if null {
                items.push(ColumnValue::Null);
                texts.push("null".into());
            }
            (ColumnType::Array(Box::new(column_type)), ColumnValue::List(items), format!("[ {} ]", texts.join(" ,")))
        }
    })
}

/// A time in each unit, before what is finer than a microsecond.
fn in_units(time: Micros) -> [(TimeUnit, String); 4] {
    let (sign, size) = (if time < 0 { "-" } else { "" }, time.unsigned_abs());
    [
        (TimeUnit::Seconds, format!("{sign}{}.{:06}", size / 1_000_000, size % 1_000_000)),
        (TimeUnit::Millis, format!("{sign}{}.{:03}", size / 1_000, size % 1_000)),
        (TimeUnit::Micros, format!("{sign}{size}.")),
        (TimeUnit::Nanos, format!("{sign}{}.", u128::from(size) * 1_000)),
    ]
}

proptest! {
    #[test]
    fn time_is_read_however_many_digits_its_number_has(time in -62_135_596_799_999_999..253_402_300_800_000_000i64, tail in "[0-9]{1,80}") {
        let is_earlier = time < 0 && tail.contains(|digit: char| digit != '0');
        for (unit, number) in in_units(time) {
            let decoder = decoder_with(|stream| stream.columns[0].unit = Some(unit), &[]);
            for quote in ["", "\""] {
                let record = format!(r#"{{"ts":{quote}{number}{tail}{quote}}}"#);
                let read = decoder.decode(Some(record.as_bytes())).map(|event| event.event_time());
                prop_assert_eq!(read, Ok(time - i64::from(is_earlier)), "{}", record);
            }
        }
    }

    #[test]
    fn double_is_the_nearest_however_many_digits_its_number_has(value in proptest::num::f64::NORMAL, more in "[0-9]{0,40}") {
        // All digits of its exact value: a double has at most 1,074 behind the point.
        let exact = format!("{value:.1074}");
        for json in [exact.clone(), format!("{exact}{more}"), format!("{exact}{more}e0")] {
            prop_assert_eq!(read_one(ColumnType::Double, &json), Ok(ColumnValue::Double(value + 0.0)), "{}", json);
        }
        let decimal = read_one(ColumnType::Decimal { precision: 38, scale: 10 }, &format!("0.{}1", "0".repeat(38)));
        prop_assert!(decimal.is_err(), "a decimal is never rounded");
    }

    #[test]
    fn a_row_reads_back_from_its_json(row in proptest::collection::vec(typed(), 1..8)) {
        let types: Vec<ColumnType> = row.iter().map(|(column_type, ..)| column_type.clone()).collect();
        let decoder = Decoder::new(Arc::new(stream_of(&types))).unwrap();
        let members: Vec<String> = row.iter().enumerate().rev().map(|(i, (_, _, json))| format!("\"c{i}\" : {json}")).collect();
        let record = format!("{{{TS},{} }}", members.join(","));
        let event = decoder.decode(Some(record.as_bytes())).unwrap();
        for (value, (_, expected, _)) in event.values()[2..].iter().zip(&row) {
            prop_assert_eq!(value, expected);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoder(ColumnType::Json).decode(Some(&bytes));
    }

    #[test]
    fn a_damaged_record_is_read_or_refused(row in typed(), at in 0usize..200, byte in any::<u8>()) {
        let (column_type, _, json) = row;
        let mut record = format!("{{{TS},\"c0\":{json}}}").into_bytes();
        let at = at % record.len();
        record[at] = byte;
        let _ = decoder(column_type.clone()).decode(Some(&record));
        record.truncate(at);
        prop_assert!(decoder(column_type).decode(Some(&record)).is_err());
    }

    #[test]
    fn every_archived_value_has_the_text_its_event_had(row in typed()) {
        let (column_type, _, json) = row;
        let stream = stream_of(std::slice::from_ref(&column_type));
        let decoder = Decoder::new(Arc::new(stream.clone())).unwrap();
        let record = format!("{{{TS},\"c0\":{json}}}");
        let event = decoder.decode(Some(record.as_bytes())).unwrap();
        let mut builder = super::super::EventBatchBuilder::new(&stream);
        let meta = types::record::Record { offset: Default::default(), timestamp: 0, key: None, value: None, headers: vec![] };
        builder.append(&event, 0, &meta).unwrap();
        let batch = builder.finish().unwrap();
        prop_assert_eq!(event.values()[2].canonical_text(), super::super::canonical_text(batch.column(2), 0));
    }
}
