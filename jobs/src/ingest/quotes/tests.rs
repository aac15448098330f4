use std::io::BufReader;

use proptest::prelude::*;

use super::*;

/// Returns the records that the reader finds in a text, with their first lines, and what stopped it.
fn read(text: &[u8]) -> (Vec<(u64, String)>, Option<String>) {
    // A small buffer, so records span its ends.
    let watched = Watched::new(BufReader::with_capacity(7, text), b',');
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).buffer_capacity(5).from_reader(watched);
    let (mut row, mut records) = (csv::ByteRecord::new(), Vec::new());
    loop {
        match reader.read_byte_record(&mut row) {
            Ok(true) => {
                let cells: Vec<_> = row.iter().map(String::from_utf8_lossy).collect();
                let line = reader.get_mut().next_line();
                records.push((line, cells.join("|")));
            }
            Ok(false) => return (records, None),
            Err(_) => return (records, Some(reader.get_ref().fault().unwrap().message().to_owned())),
        }
    }
}

fn record(line: u64, cells: &str) -> (u64, String) {
    (line, cells.to_owned())
}

#[test]
fn a_quote_that_is_never_closed_ends_the_reading_before_its_record() {
    let reported = |line: u32| Some(format!("the quote opened on line {line} is never closed"));
    assert_eq!(read(b"a,b\n1,\"x\n2,y\n3,z\n"), (vec![record(1, "a|b")], reported(2)));
    assert_eq!(read(b"\"a,b\n1,2\n"), (vec![], reported(1)));
    assert_eq!(read(b"a\n\"x\ny\",\"z\n"), (vec![record(1, "a")], reported(3)));
    assert_eq!(read(b"a\n\"he said \"\"no\"\"\n"), (vec![record(1, "a")], reported(2)));
}

#[test]
fn a_stray_quote_that_the_next_quoted_cell_closes_is_reported() {
    let (records, reported) = read(b"1,\"x,2\n3,y,4\n5,\"z\",6\n");
    assert!(records.is_empty());
    assert_eq!(reported.unwrap(), "the quote opened on line 1 is closed in the middle of a cell on line 3: one of the two is stray");
}

#[test]
fn a_record_of_too_many_lines_or_bytes_is_reported_and_one_at_the_bound_is_read() {
    let lines = |count: usize| format!("a\n\"{}\"\nb\n", "x\n".repeat(count - 1));
    assert_eq!(read(lines(1_000).as_bytes()).0.len(), 3);
    let (records, reported) = read(lines(1_001).as_bytes());
    assert_eq!(
        (records.len(), reported.unwrap().as_str()),
        (1, "the record has more than 1000 lines: the quote opened on line 2 may be stray")
    );
    let bytes = |count: usize| format!("a\n{}\nb\n", "x".repeat(count));
    assert_eq!(read(bytes(1 << 20).as_bytes()).0.len(), 3);
    let (records, reported) = read(bytes((1 << 20) + 1).as_bytes());
    assert_eq!((records.len(), reported.unwrap().as_str()), (1, "the record is longer than 1 MiB"));
    let (_, reported) = read(format!("a\n\"{}", "x".repeat(2 << 20)).as_bytes());
    assert_eq!(reported.unwrap(), "the record is longer than 1 MiB: the quote opened on line 2 may be stray");
}

#[test]
fn quotes_that_are_no_fault_are_read_as_ever() {
    let text = "\u{feff}\"a\nb\",c\r\n5\" tv,x\"y\"\r\n\"q\" ,\"he said \"\"hi\"\" there\"\r\n\"one\" \"line\"\r\n\"last\"";
    let records = vec![
        record(1, "a\nb|c"),
        record(3, "5\" tv|x\"y\""),
        record(4, "q |he said \"hi\" there"),
        record(5, "one \"line\""),
        record(6, "last"),
    ];
    // The mark is removed if it arrives in one piece.
    let watched = Watched::new(text.as_bytes(), b',');
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(watched);
    let mut found = Vec::new();
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row).unwrap() {
        found.push((reader.get_mut().next_line(), row.iter().collect::<Vec<_>>().join("|")));
    }
    assert_eq!(found, records);
}

proptest! {
    /// The states tracked here are the same as the reader's.
    #[test]
    fn what_is_watched_is_read_as_it_is_without(text in "[ab,\" \r\n]{0,40}") {
        let mut plain = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let expected: Vec<Vec<String>> = plain.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
        let expected: Vec<String> = expected.iter().map(|cells| cells.join("|")).collect();
        let (records, stopped) = read(text.as_bytes());
        let cells: Vec<String> = records.iter().map(|(_, cells)| cells.clone()).collect();
        prop_assert_eq!(&cells[..], &expected[..cells.len()]);
        // A record after the text stays a separate record, unless a quote is open.
        let marked = format!("{text}\nmark");
        let mut plain = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(marked.as_bytes());
        let last = plain.records().last().unwrap().unwrap();
        let is_open = last.iter().collect::<Vec<_>>() != ["mark"];
        match stopped {
            None => prop_assert!(!is_open && cells.len() == expected.len()),
            Some(reported) => prop_assert!(!reported.ends_with("is never closed") || (is_open && cells.len() + 1 == expected.len())),
        }
        for (line, _) in &records {
            let before = text.split('\n').take(*line as usize - 1).map(|line| line.len() + 1).sum::<usize>();
            prop_assert!(!text[before..].starts_with('\n'), "no record begins on a blank line");
        }
    }
}
