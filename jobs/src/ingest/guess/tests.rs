use std::path::PathBuf;

use definitions::parse::parse_stream;
use definitions::{StreamDefinition, TimeUnit};
use tempfile::TempDir;

use super::*;

fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

/// Returns the guess for a file, and its parsed definition.
fn guessed(name: &str, content: &str) -> (String, StreamDefinition) {
    let (_folder, path) = file(name, content);
    let text = guess_stream(&path, Shape::default(), "payments").unwrap().sql;
    let parsed = parse_stream(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    (text, parsed)
}

#[test]
fn a_stream_is_guessed_from_json_lines() {
    let text = r#"{"event_id":"a","created":1714564800123,"amount":1.5,"device":{"id":"d1","osVersion":17},"tags":["x"],"more":{},"ok":true,"n":null}
{"event_id":"b","created":1714564801123,"amount":20,"device":{"id":null,"osVersion":18},"tags":[],"more":{},"ok":false}"#;
    let (text, parsed) = guessed("p.jsonl", text);
    assert_eq!(
        text,
        "CREATE STREAM payments (
  event_id           TEXT NOT NULL,
  created            TIMESTAMPTZ NOT NULL OPTIONS (unit = 'ms'),
  amount             DECIMAL(18,4) NOT NULL,
  device_id          TEXT OPTIONS (path = '$.device.id'),
  device_os_version  BIGINT NOT NULL OPTIONS (path = '$.device.osVersion'),
  tags               TEXT[] NOT NULL,
  more               JSON NOT NULL,
  ok                 BOOLEAN NOT NULL,
  n                  TEXT
) WITH (topic = 'payments', format = 'json', event_time = 'created', id = 'event_id');
"
    );
    assert_eq!(parsed.columns[4].path, ["device", "osVersion"]);
    assert_eq!(parsed.id.as_deref(), Some("event_id"));
}

#[test]
fn columns_that_need_quotes_in_a_select_have_them() {
    let (text, parsed) = guessed("p.csv", "ts,view,end,offset,note\n2024-05-01,a,b,1,c\n");
    for line in ["  \"view\"    TEXT NOT NULL,\n", "  \"end\"     TEXT NOT NULL,\n", "  \"offset\"  BIGINT NOT NULL,\n", "  note      TEXT"]
    {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(parsed.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["ts", "view", "end", "offset", "note"]);
}

#[test]
fn a_stream_is_guessed_from_csv() {
    let text = "Order Id,Placed At,day,price,lat,zip,count,uid,flag,empty,meta\n\
        1,2024-05-01 12:00:00,2024-05-01,9.99,52.5200081,01234,5,0123abcd-4567-89ab-cdef-0123456789ab,TRUE,,{}\n\
        2,2024-05-01T13:00:00Z,2024-05-02,10,13.40,10115,7,0123abcd-4567-89ab-cdef-0123456789ac,false,,\"[1]\"\n";
    let (text, parsed) = guessed("p.csv", text);
    let types: Vec<String> = parsed.columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    assert_eq!(
        types,
        [
            "order_id BIGINT",
            "placed_at TIMESTAMPTZ",
            "day DATE",
            "price DECIMAL(18,4)",
            "lat DOUBLE",
            "zip TEXT",
            "count BIGINT",
            "uid UUID",
            "flag BOOLEAN",
            "empty TEXT",
            "meta JSON"
        ],
        "{text}"
    );
    assert_eq!(parsed.columns[0].path, ["Order Id"]);
    assert_eq!((parsed.event_time.as_str(), parsed.id.as_deref()), ("placed_at", Some("order_id")));
    assert!(parsed.columns[9].nullable && !parsed.columns[8].nullable);
}

#[test]
fn values_of_several_kinds_are_json_or_in_csv_text() {
    let (_, parsed) = guessed("p.jsonl", "{\"ts\":\"2024-05-01T12:00:00Z\",\"x\":1}\n{\"ts\":\"2024-05-01T12:00:00Z\",\"x\":\"1\"}\n");
    assert_eq!(parsed.columns[1].column_type, ColumnType::Json);
    let (_, parsed) = guessed("p.csv", "ts,x\n2024-05-01,1\n2024-05-01,a\n");
    assert_eq!((&parsed.columns[0].column_type, &parsed.columns[1].column_type), (&ColumnType::Date, &ColumnType::Text));
}

#[test]
fn a_column_of_several_kinds_of_values_has_an_example_line_of_each() {
    let mixed = |values: &[&str]| {
        let lines: String = values.iter().map(|value| format!("{{\"ts\":\"2024-05-01T12:00:00Z\",\"a\":{{\"x\":{value}}}}}\n")).collect();
        guess_of("p.jsonl", &("\n".to_owned() + &lines)).mixed
    };
    assert_eq!(mixed(&["7", "null", "8", "\"n/a\"", "9"]), ["a_x JSON: a number on line 2 (7) and a string on line 5 (\"n/a\")"]);
    let long = format!("\"{}\"", "é".repeat(50));
    let shown = format!(
        "a_x JSON: an object on line 2 ({{\"k\":1}}), a truth value on line 3 (true) and a string on line 4 (\"{} ..)",
        "é".repeat(39)
    );
    assert_eq!(mixed(&["{\"k\":1}", "true", long.as_str()]), [shown]);
    assert!(mixed(&["12.50", "\"7.10\""]).is_empty(), "both are amounts");
    assert!(mixed(&["[1, \"a\"]", "[]"]).is_empty(), "all are arrays");
}

#[test]
fn amounts_that_are_numbers_and_strings_are_decimals() {
    let guess = |values: [&str; 3]| {
        let lines = values.map(|value| format!("{{\"ts\":\"2024-05-01T12:00:00Z\",\"amount\":{value}}}\n"));
        guessed("p.jsonl", &lines.concat()).1.columns.remove(1).column_type
    };
    assert_eq!(guess(["12.50", "\"7.10\"", "3"]), ColumnType::Decimal { precision: 18, scale: 4 });
    assert_eq!(guess(["12.50", "\"7.10\"", "\"unknown\""]), ColumnType::Json);
    assert_eq!(guess(["1e3", "\"7.10\"", "3"]), ColumnType::Json);
}

#[test]
fn a_few_texts_among_numbers_are_named_with_their_number_and_the_first_line() {
    let row = |i: usize| format!("2024-05-01;{}\n", if i == 40 || i == 57 { "n/a".to_owned() } else { format!("1.234,5{}", i % 10) });
    let german = "ts;amount\n".to_owned() + &(0..100).map(row).collect::<String>();
    let guessed = guess_of("p.csv", &german);
    assert_eq!(guessed.numbers, Some(NumberFormat::PointComma));
    let said = "amount TEXT: 98 of 100 values are numbers, 2 are not, the first \"n/a\" on line 42; \
                if all should be numbers, declare it DECIMAL(18,2), and records with another value will be dead letters";
    assert_eq!(guessed.odd, [said]);

    let odd = |values: &[&str]| {
        let rows: String = values.iter().map(|value| format!("2024-05-01,{value}\n")).collect();
        guess_of("p.csv", &format!("ts,x\n{rows}")).odd
    };
    let dates = ["2024-05-01", "2024-05-02", "soon", "2024-05-03", "2024-05-04"];
    assert!(odd(&dates)[0].starts_with("x TEXT: 4 of 5 values are times, 1 is not, the first \"soon\" on line 4; "), "{:?}", odd(&dates));
    assert!(odd(&["10115", "20095", "01067", "80331", "50667"]).is_empty(), "codes with a zero in front are no numbers");
    assert!(odd(&["1", "2", "a", "b", "c"]).is_empty(), "most are texts");
}

#[test]
fn uuids_in_several_spellings_are_uuids() {
    let upper = "0123ABCD-4567-89AB-CDEF-0123456789AD";
    let (bare, braces) = ("0123abcd456789abcdef0123456789ac", "{0123abcd-4567-89ab-cdef-0123456789ab}");
    let csv = format!("ts,uuid\n2024-05-01,0123abcd-4567-89ab-cdef-0123456789ab\n2024-05-01,{bare}\n2024-05-01,{upper}\n");
    let guessed = guess_of("p.csv", &csv);
    let column = parse_stream(&guessed.sql).unwrap().columns.remove(1);
    assert_eq!(column.column_type, ColumnType::Uuid);
    let said = format!(
        "uuid UUID: 2 of 3 values are spelled in another way, such as \"{bare}\" on line 3; each is the same UUID in every spelling"
    );
    assert_eq!(guessed.odd, [said]);
    let again = guess_of("p.csv", &format!("{csv}2024-05-01,{braces}\n"));
    assert_eq!(parse_stream(&again.sql).unwrap().id, None, "it is the first once more");

    let hashes = guess_of("p.csv", &format!("ts,x\n2024-05-01,{bare}\n"));
    assert_eq!(parse_stream(&hashes.sql).unwrap().columns.remove(1).column_type, ColumnType::Text);
    assert!(hashes.odd.is_empty());
}

#[test]
fn a_repeated_id_is_no_id() {
    let (text, parsed) = guessed("p.csv", "id,ts\n1,2024-05-01\n1,2024-05-02\n");
    assert_eq!(parsed.id, None, "{text}");
}

#[test]
fn objects_with_names_that_are_values_stay_json() {
    let members: Vec<String> = (0..100).map(|i| format!("\"k{i}\":{i}")).collect();
    let (_, parsed) = guessed("p.jsonl", &format!("{{\"ts\":\"2024-05-01T12:00:00Z\",\"map\":{{{}}}}}", members.join(",")));
    assert_eq!(parsed.columns.len(), 2);
    assert_eq!(parsed.columns[1].column_type, ColumnType::Json);
}

#[test]
fn odd_names_become_names_with_paths() {
    let line = r#"{"@timestamp":"2024-05-01T12:00:00Z","a.b":1,"__x":2,"1st":3,"it's":4,"A":5,"a":6,"q\"q":7,"":8}"#;
    let (text, parsed) = guessed("p.jsonl", line);
    let names: Vec<&str> = parsed.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["timestamp", "a_b", "x", "c_1st", "it_s", "a", "a_2"], "{text}");
    let paths: Vec<String> = parsed.columns.iter().map(|column| column.path.concat()).collect();
    assert_eq!(paths, ["@timestamp", "a.b", "__x", "1st", "it's", "A", "a"]);
}

#[test]
fn letters_with_accents_become_plain_letters_in_names_that_stay_unique() {
    let names = |header: &str| {
        let (text, parsed) = guessed("p.csv", &format!("ts,{header}\n2024-05-01{}\n", ",1".repeat(header.split(',').count())));
        let names: Vec<String> = parsed.columns.iter().skip(1).map(|column| column.name.to_string()).collect();
        (names.join(","), text)
    };
    let (found, text) = names("größe,Straße,ÜBERWEISUNG,Prénom,niño,kodŁadunku,Ærlig");
    assert_eq!(found, "groesse,strasse,ueberweisung,prenom,nino,kod_ladunku,aerlig", "{text}");
    assert!(text.contains("OPTIONS (path = '$.\"größe\"')"), "the column is found under its own name: {text}");
    // An accent may be a character of its own.
    assert_eq!(names("gro\u{308}sse,cafe\u{301},x\u{302}y").0, "groesse,cafe,xy");
    assert_eq!(names("größe,groesse,gro_esse").0, "groesse,groesse_2,gro_esse");
    assert_eq!(names("сумма,価格,m²").0, "c,c_2,m");
    let (_folder, path) = file("p.csv", "ts\n2024-05-01\n");
    assert!(guess_stream(&path, Shape::default(), "Käufe").unwrap().sql.starts_with("CREATE STREAM kaeufe ("));
}

#[test]
fn a_file_without_times_or_records_is_refused() {
    let refused = |content: &str| {
        let (_folder, path) = file("p.jsonl", content);
        guess_stream(&path, Shape::default(), "payments").unwrap_err().to_string()
    };
    assert!(refused("{\"a\":1}\n").contains("found a BIGINT"));
    assert!(refused("").contains("no records"));
    assert!(refused("{\"a\":1}\n[1]\n").contains("line: 2"));
    let array = refused("[{\"a\":1}]\n");
    assert!(
        array.contains("found a JSON array, expected one JSON object on each line (help: convert the file with `jq -c '.[]' FILE`"),
        "{array}"
    );
    assert!(array.contains("line: 1"), "{array}");
    assert!(refused("{\"a\":\n").contains("line: 1"));
}

#[test]
fn parquet_says_its_types_itself() {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field};
    use std::sync::Arc;
    let city: ArrayRef = Arc::new(StringArray::from(vec![Some("Ulm"), None]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("user", Arc::new(Int64Array::from(vec![1, 1]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![1, 2]))),
        ("updated", Arc::new(Int64Array::from(vec![1_714_564_800, 1_714_564_801]))),
        ("place", Arc::new(StructArray::from(vec![(Arc::new(Field::new("city", DataType::Utf8, true)), city)]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let (_folder, path) = file("p.parquet", bytes);
    let text = guess_stream(&path, Shape::default(), "visits").unwrap().sql;
    let parsed = parse_stream(&text).unwrap();
    let lines: Vec<String> = parsed.columns.iter().map(|c| format!("{} {} {}", c.name, c.column_type, c.nullable)).collect();
    assert_eq!(lines, ["user BIGINT false", "at TIMESTAMPTZ false", "updated TIMESTAMPTZ false", "place_city TEXT true"], "{text}");
    assert_eq!((parsed.columns[2].unit, parsed.columns[3].path.concat()), (Some(TimeUnit::Seconds), "placecity".into()));
}

#[test]
fn types_leave_room_and_say_what_they_were_guessed_from() {
    let line = r#"{"ts":"2024-05-01T12:00:00Z","id":7,"units":3,"price":"12.345","os_version":"1.5","code":"0","big":1234567890123456.5}"#;
    let (_folder, path) = file("p.jsonl", line);
    let guessed = guess_stream(&path, Shape::default(), "payments").unwrap();
    let parsed = parse_stream(&guessed.sql).unwrap();
    let types: Vec<String> = parsed.columns.iter().map(|column| column.column_type.to_string()).collect();
    assert_eq!(types, ["TIMESTAMPTZ", "BIGINT", "BIGINT", "DECIMAL(18,5)", "TEXT", "TEXT", "DECIMAL(38,4)"], "{}", guessed.sql);
    assert_eq!(
        guessed.types,
        [
            "price DECIMAL(18,5): decimal places found: 3 at most; records with more than 5 will be dead letters",
            "big DECIMAL(38,4): decimal places found: 1 at most; records with more than 4 will be dead letters",
            "units BIGINT: found whole numbers alone",
        ]
    );
}

#[test]
fn money_keeps_the_places_that_each_amount_is_written_with() {
    let of = |amounts: &[&str]| {
        let rows: String = amounts.iter().map(|amount| format!("2024-05-01,{amount}\n")).collect();
        let guessed = guess_of("p.csv", &format!("ts,amount\n{rows}"));
        (types(&guessed)[1].clone(), guessed.types.join(""))
    };
    let (fixed, said) = of(&["6027.90", "0.10", "10.25"]);
    assert_eq!(fixed, "amount DECIMAL(18,2)");
    assert_eq!(said, "amount DECIMAL(18,2): every value has 2 decimal places; records with more will be dead letters");
    assert_eq!(of(&["1.5000", "2.1250"]).0, "amount DECIMAL(18,4)");
    // Zeros at the end may have been left out, and one place may become two.
    for amounts in [&["6027.9", "0.10"][..], &["10.25", "3.75"], &["10", "3.50"], &["1.0", "2.5"]] {
        assert_eq!(of(amounts).0, "amount DECIMAL(18,4)", "{amounts:?}");
    }
    let json = guess_of("p.jsonl", "{\"ts\":\"2024-05-01\",\"a\":\"12.30\",\"b\":12.30}\n");
    assert_eq!(types(&json)[1..], ["a DECIMAL(18,2)", "b DECIMAL(18,2)"]);
}

#[test]
fn a_time_in_another_form_is_named_with_what_to_do() {
    let refused = |name: &str, content: &str| {
        let (_folder, path) = file(name, content);
        let error = guess_stream(&path, Shape::default(), "payments").unwrap_err();
        assert!(error.message().starts_with("no column holds a time in every record"), "{error}");
        assert!(error.fact("expected").unwrap().starts_with("2026-11-22T10:00:00Z"), "{error}");
        (error.fact("likeliest").unwrap_or_default().to_owned(), error.fact("help").unwrap().to_owned())
    };
    let csv = |name: &str, value: &str| refused("p.csv", &format!("ip,n,{name}\n192.168.100.20,5,{value}\n192.168.100.21,6,{value}\n")).0;
    assert_eq!(csv("Datum", "02.01.2026 12:33"), "\"Datum\", which holds \"02.01.2026 12:33\": like day.month.year");
    assert!(csv("x", "11/22/2026 10:00").contains("like month/day/year or day/month/year, which cannot be told apart"));
    assert!(csv("x", "2026/11/22 10:00").contains("like year/month/day"));
    assert!(csv("date", "46348.4375").contains("\"date\", which holds \"46348.4375\": like a day of a spreadsheet"));
    assert!(csv("when", "22/Nov/2026:10:00:00 +0000").contains("like the time of a web server's log"));
    assert!(csv("day", "20261122").contains("like a date without hyphens"));
    assert!(csv("zeit", "gestern").contains("\"zeit\", which holds \"gestern\": no known format"));
    assert!(csv("t", "1795341600").contains("\"t\", which holds \"1795341600\": like seconds since 1970"));
    let (likeliest, help) = refused("p.jsonl", "{\"user\":\"u1\",\"made\":\"2026-11-20T10:00:00\"}\n");
    assert_eq!(likeliest, "\"made\", which holds \"2026-11-20T10:00:00\": a time without a zone, which only CSV may have (as UTC)");
    assert_eq!(help, "add the zone first: `jq -c '.made += \"Z\"' FILE` where it is UTC");
    assert_eq!(refused("p.csv", "name,n\na,1\n"), (String::new(), "add a column with the time of each record".into()));
}

#[test]
fn the_number_that_is_no_time_is_named_with_its_line() {
    let refused = |name: &str, content: &str| {
        let (_folder, path) = file(name, content);
        let error = guess_stream(&path, Shape::default(), "payments").unwrap_err();
        (error.fact("likeliest").unwrap_or_default().to_owned(), error.fact("help").unwrap().to_owned())
    };
    let why = "numbers are read as times if all of a column are from 2000 to 2100";
    let (likeliest, help) = refused("p.csv", "n,created_at\n1,1714564800\n2,1714564801\n3,86400\n");
    assert_eq!(
        likeliest,
        format!("\"created_at\", which holds \"1714564800\": like a number of s since 1970, except \"86400\" on line 4: {why}")
    );
    assert!(help.starts_with("correct or remove the record; if it is right") && help.ends_with("(unit = 's')"), "{help}");
    let rows = "{\"createdAt\":0}\n{\"createdAt\":1714564800000}\n{\"createdAt\":1714564800001}\n";
    let (likeliest, help) = refused("p.jsonl", rows);
    assert_eq!(likeliest, format!("\"createdAt\", which holds \"0\": like a number of ms since 1970, except \"0\" on line 1: {why}"));
    assert!(help.ends_with("(unit = 'ms')"), "{help}");
    let (likeliest, _) = refused("p.csv", "ts,n\n852076800,1\n852076801,2\n");
    assert_eq!(likeliest, format!("\"ts\", which holds \"852076800\": like a number of s since 1970, before 2000: {why}"));
    // The name is what is wrong.
    let (likeliest, _) = refused("p.csv", "n,made\n1,1714564800\n2,1714564801\n3,86400\n");
    assert!(likeliest.ends_with("like seconds since 1970, under a name that does not say so"), "{likeliest}");
}

#[test]
fn a_format_and_a_delimiter_that_are_given_are_used() {
    let (_folder, path) = file("p.txt", "user|ts|note\nu1|2024-05-01|a,b,c\n");
    let shape = Shape { format: Some(crate::ingest::Format::Csv), delimiter: Some(b'|'), numbers: None };
    let parsed = parse_stream(&guess_stream(&path, shape, "p").unwrap().sql).unwrap();
    assert_eq!(parsed.columns.len(), 3);
}

fn guess_of(name: &str, content: &str) -> Guessed {
    let (_folder, path) = file(name, content);
    guess_stream(&path, Shape::default(), "payments").unwrap()
}

fn types(guessed: &Guessed) -> Vec<String> {
    let parsed = parse_stream(&guessed.sql).unwrap();
    parsed.columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect()
}

#[test]
fn numbers_are_guessed_in_the_format_of_their_file() {
    let german =
        guess_of("p.csv", "ts;price;units;lat;ip\n2024-05-01;1.234,56;7;52.52;192.168.1.20\n2024-05-01;5,5;1.000;13.4;192.168.1.21\n");
    assert_eq!(german.numbers, Some(NumberFormat::PointComma));
    assert_eq!(types(&german), ["ts DATE", "price DECIMAL(18,4)", "units BIGINT", "lat TEXT", "ip TEXT"]);
    assert_eq!(german.doubts, ["lat: numbers that are not written as 1.234,56: read as TEXT"]);

    let in_doubt = guess_of("p.csv", "ts;price\n2024-05-01;1,234\n");
    assert_eq!((in_doubt.numbers, types(&in_doubt)), (None, vec!["ts DATE".into(), "price TEXT".into()]));
    assert_eq!(in_doubt.doubts.len(), 1);
    let (_folder, path) = file("p.csv", "ts;price\n2024-05-01;1,234\n");
    let named = guess_stream(&path, Shape { numbers: Some(NumberFormat::CommaPoint), ..Shape::default() }, "payments").unwrap();
    assert_eq!((types(&named), named.doubts.len()), (vec!["ts DATE".into(), "price BIGINT".into()], 0));

    let plain = guess_of("p.csv", "ts,price\n2024-05-01,12.50\n");
    assert_eq!((plain.numbers, plain.doubts.len()), (None, 0));
}

#[test]
fn not_null_is_said_only_of_a_file_that_was_read_whole() {
    let rows = |count: usize| (0..count).map(|i| format!("{{\"ts\":\"2024-05-01T12:00:00Z\",\"x\":{i}}}\n")).collect::<String>();
    let csv = |count: usize| "ts,x\n".to_owned() + &(0..count).map(|i| format!("2024-05-01,{i}\n")).collect::<String>();
    for (name, whole, longer) in [("p.jsonl", rows(1_000), rows(1_001)), ("p.csv", csv(1_000), csv(1_001))] {
        let (whole, longer) = (guess_of(name, &whole), guess_of(name, &longer));
        assert_eq!((whole.is_whole, whole.records, longer.is_whole, longer.records), (true, 1_000, false, 1_000), "{name}");
        assert_eq!(whole.sql.matches("NOT NULL").count(), 2, "{}", whole.sql);
        let parsed = parse_stream(&longer.sql).unwrap();
        assert!(!parsed.columns[0].nullable && parsed.columns[1].nullable, "the event time alone: {}", longer.sql);
    }
}

#[test]
fn a_column_that_is_different_in_each_record_is_proposed_as_the_id() {
    let rows = |count: usize| {
        let row = |i: usize| format!("2024-05-01,note {i},R-{i},{i},{}\n", i % 7);
        "ts,note,beleg_nr,seconds,shop\n".to_owned() + &(0..count).map(row).collect::<String>()
    };
    let guessed = guess_of("p.csv", &rows(100));
    assert_eq!(guessed.proposed_id.as_deref(), Some("beleg_nr"));
    assert_eq!(parse_stream(&guessed.sql).unwrap().id, None, "it is for the user to decide");
    assert_eq!(guess_of("p.csv", &rows(99)).proposed_id, None, "too few records say little");
    let with_id = rows(100).replace("beleg_nr", "event_id");
    assert_eq!(guess_of("p.csv", &with_id).proposed_id, None, "a typical name is taken");
}

#[test]
fn a_column_that_would_be_the_id_but_for_a_few_repeats_is_named_with_their_number() {
    let rows = |name: &str, repeats: usize| {
        let row = |i: usize| format!("2024-05-01,{},u{}\n", if i < repeats { 99 } else { i }, i % 7);
        format!("ts,{name},user_id\n") + &(0..100).map(row).collect::<String>()
    };
    for (name, repeats, expected) in [
        ("payment_id", 1, Some(1)),
        ("beleg_id", 5, Some(5)),
        ("uuid", 2, Some(2)),
        ("payment_id", 6, None),
        ("payment_id", 0, None),
        ("units", 1, None),
    ] {
        let guessed = guess_of("p.csv", &rows(name, repeats));
        let said =
            expected.map(|repeats: usize| format!("{name} repeats in {repeats} of 100 records: if these are repeats, set id = '{name}'"));
        assert_eq!(guessed.nearly_id, said, "{name} {repeats}");
        assert_eq!(parse_stream(&guessed.sql).unwrap().id.is_some(), repeats == 0, "it is for the user to decide");
    }
}

#[test]
fn a_column_that_would_be_the_id_but_for_records_without_it_is_named_with_their_number() {
    let rows = |repeats: usize, missing: usize| {
        let id = |i: usize| if i < repeats { 99 } else { i };
        let member = |i: usize| if i < repeats + missing && i >= repeats { String::new() } else { format!("\"eventId\":\"e{}\",", id(i)) };
        (0..100).map(|i| format!("{{{}\"ts\":\"2024-05-01T12:00:00Z\"}}\n", member(i))).collect::<String>()
    };
    for (repeats, missing, expected) in [
        (0, 1, Some("event_id is missing in 1 of 100 records, and different in the others: set id = 'event_id' if it identifies events")),
        (2, 3, Some("event_id repeats in 2 of 100 records, and is missing in 3: if the first are repeats, set id = 'event_id'")),
        (2, 4, None),
        (0, 6, None),
    ] {
        let guessed = guess_of("p.jsonl", &rows(repeats, missing));
        assert_eq!(guessed.nearly_id.as_deref(), expected, "{repeats} {missing}");
        assert_eq!(parse_stream(&guessed.sql).unwrap().id, None, "it is for the user to decide");
    }
}

#[test]
fn what_is_assumed_of_times_without_a_zone_is_said() {
    let guessed = guess_of("p.csv", "day,at,sent\n2024-05-01,2024-05-01 10:00,2024-05-01T10:00:00Z\n");
    assert_eq!(guessed.zones, ["at has times without a zone, such as 2024-05-01 10:00: they are read as UTC"]);
    let days = guess_of("p.csv", "day,n\n2024-05-01,1\n");
    assert_eq!(days.zones, ["day has days, such as 2024-05-01: an event's time is the beginning of its day in UTC"]);
    let zoned = guess_of("p.csv", "at\n2024-05-01T10:00:00+02:00\n");
    assert!(zoned.zones.is_empty());
}
