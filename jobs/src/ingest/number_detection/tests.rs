use super::*;

fn column(name: &str, cells: &[&str]) -> ColumnNumbers {
    let mut column = ColumnNumbers::new(name);
    cells.iter().for_each(|cell| column.add(cell));
    column
}

#[test]
fn the_columns_of_a_file_show_one_format() {
    let found = |columns: &[ColumnNumbers]| detect(columns).format;
    assert_eq!(found(&[column("a", &["1.234,56", "5"])]), Some(PointComma));
    assert_eq!(found(&[column("a", &["12,5", "7"])]), Some(PointComma), "as 1 234,56 it is the same number");
    assert_eq!(found(&[column("a", &["12,5"]), column("b", &["1 234,5"])]), Some(SpaceComma));
    assert_eq!(found(&[column("a", &["1,234.5"])]), Some(CommaPoint));
    assert_eq!(found(&[column("a", &["1,234,567"])]), Some(CommaPoint));
    assert_eq!(found(&[column("a", &["1\'234"])]), Some(ApostrophePoint));
    assert_eq!(found(&[column("a", &["1.234"]), column("b", &["5,5"])]), Some(PointComma), "another column decides");
    assert_eq!(found(&[column("a", &["12.5", "5"]), column("b", &["x", "1,5"])]), None);
}

#[test]
fn texts_with_marks_are_not_taken_for_numbers() {
    for text in ["192.168.100.120", "030 123 456", "49 151 234", "2026-03-02", "1.2.3"] {
        assert_eq!(detect(&[column("a", &[text])]), Detected::default(), "{text}");
    }
}

#[test]
fn a_few_texts_do_not_hide_the_format() {
    let dirty = ["1.234,56", "7", "12,5", "n/a", "3,25", "8,75"];
    assert_eq!(detect(&[column("a", &dirty)]), Detected { format: Some(PointComma), doubts: Vec::new() });
    assert_eq!(detect(&[column("a", &["n/a", "x", "12,5"])]), Detected::default(), "most are texts");

    let contradicted = detect(&[column("a", &dirty), column("lat", &["52.52"])]);
    assert_eq!(contradicted.format, None);
    assert_eq!(contradicted.doubts, ["a: most values are numbers written as 1.234,56, such as 1.234,56, and some are not: read as TEXT"]);
}

#[test]
fn what_can_be_read_in_two_ways_is_not_guessed_silently() {
    let plain = detect(&[column("price", &["1.234", "20.500"]), column("n", &["5"])]);
    assert_eq!(plain.format, None);
    assert_eq!(plain.doubts, ["price: 1.234 is read as 1.234; if it is 1234, say so with --numbers 1.234,56"]);
    assert!(detect(&[column("price", &["1.234", "0.5"])]).doubts.is_empty(), "0.5 is a plain number alone");

    let comma = detect(&[column("price", &["1,234"])]);
    assert_eq!(comma.format, None);
    let expected = "price: 1,234 is read as TEXT; it is 1234 with --numbers \"1,234.56\", 1.234 with --numbers \"1.234,56\"";
    assert_eq!(comma.doubts, [expected]);

    let both = detect(&[column("a", &["1.234,56"]), column("b", &["1,234.56"])]);
    assert_eq!((both.format, both.doubts.len()), (None, 2), "{both:?}");

    let mixed = detect(&[column("a", &["1.234,56"]), column("lat", &["52.52"])]);
    assert_eq!(mixed.format, Some(PointComma));
    assert_eq!(mixed.doubts, ["lat: numbers that are not written as 1.234,56: read as TEXT"]);
}
