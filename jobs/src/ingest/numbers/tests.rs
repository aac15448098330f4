use super::*;

#[test]
fn a_number_is_read_in_its_format_with_all_its_digits() {
    let cases = [
        (CommaPoint, "1,234,567.10", "1234567.10"),
        (PointComma, "1.234.567,10", "1234567.10"),
        (SpaceComma, "1\u{a0}234\u{202f}567,10", "1234567.10"),
        (ApostrophePoint, "1\'234’567.10", "1234567.10"),
        (Plain, "1234567.10", "1234567.10"),
        (PointComma, "-1234,5", "-1234.5"),
        (PointComma, "+6.027,90", "6027.90"),
        (PointComma, "1,5e-3", "1.5e-3"),
        (PointComma, "1.234", "1234"),
        (Plain, "1.234", "1.234"),
    ];
    for (format, text, plain) in cases {
        assert_eq!(format.plain(text).as_deref(), Some(plain), "{text} as {format}");
    }
}

#[test]
fn what_is_not_in_the_format_is_no_number() {
    let cases = [
        (PointComma, "12.34"),
        (PointComma, "1.23,4"),
        (PointComma, "1234.567,8"),
        (PointComma, "0.123"),
        (PointComma, "1,234,567"),
        (CommaPoint, "12,34"),
        (SpaceComma, "1234.56"),
        (Plain, "1,5"),
        (Plain, ""),
        (Plain, "-"),
        (PointComma, "1,"),
        (PointComma, ",5"),
        (PointComma, "12 EUR"),
    ];
    for (format, text) in cases {
        assert_eq!(format.plain(text), None, "{text} as {format}");
    }
}

#[test]
fn a_format_is_named_by_its_example() {
    for format in NumberFormat::ALL {
        assert_eq!(format.example().parse::<NumberFormat>().unwrap(), format);
        assert_eq!(format.plain(format.example()).as_deref(), Some("1234.56"));
    }
    let error = "german".parse::<NumberFormat>().unwrap_err();
    assert!(error.message().starts_with("found \"german\", expected one of \"1234.56\", \"1,234.56\""), "{error}");
}
