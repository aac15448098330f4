//! Columns of texts: their types, and their values as they are written.

use arrow::array::{Array, AsArray};

use super::*;

fn file(name: &str, text: &str) -> (tempfile::TempDir, Result<TextFile>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let form = if name.ends_with(".csv") { TextFormat::Csv } else { TextFormat::JsonLines };
    let file = TextFile::survey(&path, form);
    (folder, file)
}

/// Each row as its line and its values.
fn rows(file: &TextFile) -> Vec<(u64, Vec<Option<String>>)> {
    let mut found = Vec::new();
    for rows in file.rows().unwrap() {
        let rows = rows.unwrap();
        for (row, line) in rows.lines.iter().enumerate() {
            let value = |column: &ArrayRef| column.is_valid(row).then(|| column.as_string::<i32>().value(row).to_owned());
            found.push((*line, rows.columns.iter().map(value).collect()));
        }
    }
    found
}

fn types(file: &TextFile) -> Vec<DataType> {
    (0..file.columns.len()).map(|column| file.data_type(column)).collect()
}

#[test]
fn a_column_of_csv_is_what_all_of_its_cells_are() {
    let text = "id,long,share,fraud,code,mixed,wide,empty\n1,9007199254740993,0.5,true,007,1,9007199254740993,\n-2,3,4,false,8,x,0.5,\n";
    let (_folder, file) = file("spine.csv", text);
    let file = file.unwrap();
    assert_eq!(file.columns, ["id", "long", "share", "fraud", "code", "mixed", "wide", "empty"]);
    let (whole, text) = (DataType::Int64, DataType::Utf8);
    let expected = [&whole, &whole, &DataType::Float64, &DataType::Boolean, &text, &text, &text, &text];
    assert_eq!(types(&file).iter().collect::<Vec<_>>(), expected);
    let (line, first) = rows(&file).remove(0);
    assert_eq!((line, first[4].as_deref(), &first[7]), (2, Some("007"), &None));
}

#[test]
fn semicolons_and_tabs_are_seen() {
    for text in ["\u{feff}id;\"a,b\";ts\n1;x,y;2\n", "id\t\"a,b\"\tts\r\n1\tx,y\t2\r\n"] {
        let (_folder, file) = file("spine.csv", text);
        let file = file.unwrap();
        assert_eq!(file.columns, ["id", "a,b", "ts"]);
        let owned = ["1", "x,y", "2"].map(|value| Some(value.to_owned())).to_vec();
        assert_eq!(rows(&file), [(2, owned)]);
    }
}

#[test]
fn json_lines_have_the_columns_of_all_lines_in_the_order_in_which_they_come() {
    let text = "{\"b\": 1, \"a\": \"7\"}\n\n{\"a\": null, \"c\": {\"d\": [1]}, \"b\": 2.5}\n";
    let (_folder, file) = file("spine.ndjson", text);
    let file = file.unwrap();
    assert_eq!((file.columns.join(" ").as_str(), types(&file)), ("b a c", vec![DataType::Float64, DataType::Utf8, DataType::Utf8]));
    let owned = |values: [Option<&str>; 3]| values.map(|value| value.map(str::to_owned)).to_vec();
    let expected = [(1, owned([Some("1"), Some("7"), None])), (3, owned([Some("2.5"), None, Some("{\"d\": [1]}")]))];
    assert_eq!(rows(&file), expected);
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    for (name, text, message, line) in [
        ("spine.ndjson", "{\"a\": 1}\n[2]\n", "found no JSON object", "2"),
        ("spine.ndjson", "{\"a\": 1}\n{\"a\": \n", "found no JSON object", "2"),
        ("spine.csv", "a,b\n1,2\n3\n", "found 1 cell, expected 2, as many as the header has", "3"),
        ("spine.csv", "a,b\r\n1,2\r\n3,4,5\r\n", "found 3 cells, expected 2, as many as the header has", "3"),
    ] {
        let error = file(name, text).1.unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(error.context().contains(&("line", line.to_owned())), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spine.csv");
    std::fs::write(&path, b"a,b\n1,\xff\n").unwrap();
    let error = TextFile::survey(&path, TextFormat::Csv).unwrap_err();
    assert!(error.message() == "cell 2 is not UTF-8" && error.context().contains(&("line", "2".to_owned())), "{error}");
}

#[test]
fn a_stray_quote_of_csv_is_refused_with_its_line() {
    for (text, message, line) in [
        ("a,b\n1,\"x\n2,y\n3,z\n", "the quote opened on line 2 is never closed", "2"),
        ("a,b\r\n1,x\r\n2,\"y\r\n3,\"z\"\r\n", "the quote opened on line 3 is closed in the middle of a cell on line 4", "3"),
        ("a,\"b\n1,x\n", "the quote opened on line 1 is never closed", "1"),
    ] {
        let error = file("spine.csv", text).1.unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(error.context().contains(&("line", line.to_owned())), "{error}");
        assert!(error.context().iter().any(|(name, _)| *name == "file"), "{error}");
    }
}

#[test]
fn a_file_without_columns_is_refused() {
    for (name, text) in [("spine.csv", ""), ("spine.ndjson", "\n"), ("spine.ndjson", "{}\n")] {
        let error = file(name, text).1.unwrap_err();
        assert_eq!(error.message(), "the file has no columns: expected rows with keys and a time", "{name}");
    }
}

#[test]
fn only_numbers_that_a_double_keeps_become_doubles() {
    for (text, kind) in [
        ("0", Some(Kind::Integer)),
        ("-12", Some(Kind::Integer)),
        ("9007199254740993", Some(Kind::LongInteger)),
        ("9223372036854775808", None),
        ("0.50", Some(Kind::Double)),
        ("1e3", Some(Kind::Double)),
        ("0.30000000000000004", Some(Kind::Double)),
        ("-0.3333333333333333", Some(Kind::Double)),
        ("1.2345678901234566e-07", Some(Kind::Double)),
        ("1.2345678901234568E+17", Some(Kind::Double)),
        ("0.33333333333333330", Some(Kind::Double)),
        ("0.12345678901234567", None),
        ("0.3333333333333333333", None),
        ("1e400", None),
        ("007", None),
        ("+7", None),
        (".5", None),
        ("1.", None),
        ("-0", None),
        ("1_000", None),
        ("NaN", None),
        ("", None),
    ] {
        assert_eq!(number(text), kind, "{text}");
    }
}
