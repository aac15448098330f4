use proptest::prelude::*;

use super::*;

#[test]
fn every_unit_is_read() {
    let seconds = |text| parse_duration(text).unwrap().as_millis() as f64 / 1000.0;
    assert_eq!(seconds("500ms"), 0.5);
    assert_eq!(seconds("10s"), 10.0);
    assert_eq!(seconds("10m"), 600.0);
    assert_eq!(seconds("10min"), 600.0);
    assert_eq!(seconds("1h"), 3600.0);
    assert_eq!(seconds("400d"), 400.0 * 86400.0);
    assert_eq!(seconds("2w"), 14.0 * 86400.0);
    assert_eq!(seconds(" 1h "), 3600.0);
}

#[test]
fn nothing_at_all_is_a_zero_of_any_unit() {
    for text in ["0s", "0d", "00h"] {
        assert_eq!(parse_duration_or_zero(text).unwrap(), Duration::ZERO, "{text}");
    }
    assert_eq!(parse_duration_or_zero("01h").unwrap(), Duration::from_secs(3_600));
    assert_eq!(parse_duration_or_zero("1d 2h").unwrap(), Duration::from_secs(26 * 3_600));
    for text in ["0", "", "0x", "0 s", "-0s", "0s 1h"] {
        assert!(parse_duration_or_zero(text).is_err(), "{text}");
    }
}

#[test]
fn a_wrong_duration_is_answered_with_what_was_found() {
    let error = |text| parse_duration(text).unwrap_err().to_string();
    assert_eq!(error("7x"), "the duration '7x' has the unknown unit 'x'; expected ms, s, m or min, h, d or w");
    assert_eq!(error("7"), "the duration '7' has no unit; add one of ms, s, m, h, d, w");
    assert_eq!(error("0d"), "the duration '0d' is zero; expected more than zero");
    assert_eq!(error("999999999999d"), "the duration '999999999999d' is too long; expected at most 106751991d");
    for text in ["", "h", "-1h", "1.5h", "1h30m", "1 h", "ten", "99999999999999999999999h", "１h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert!(parse_duration("106751991d").is_ok());
    assert!(parse_duration("106751992d").is_err());
}

#[test]
fn a_duration_of_several_parts_is_read_and_written() {
    let minutes = |text| parse_duration_parts(text).unwrap().as_secs() / 60;
    for (text, expected) in [("31d 5m", 44_645), ("7d 1h", 169 * 60), ("1w 1d", 8 * 1440), (" 1h  30min ", 90), ("90d", 90 * 1440)] {
        assert_eq!(minutes(text), expected, "{text}");
    }
    let written = |minutes: u64| format_duration_parts(Duration::from_secs(minutes * 60));
    assert_eq!([61, 169 * 60, 721 * 60, 44_645, 91 * 1440].map(written), ["1h 1m", "7d 1h", "30d 1h", "31d 5m", "91d"]);
    assert_eq!(format_duration_parts(Duration::from_millis(1_500)), "1s 500ms");
}

#[test]
fn parts_out_of_order_and_what_is_wrong_in_one_part_are_refused() {
    let error = |text| parse_duration_parts(text).unwrap_err().to_string();
    let order = "expected the longest unit first, such as '31d 5m'";
    assert_eq!(error("5m 31d"), format!("the duration '5m 31d' has '31d' after a unit that is not longer; {order}"));
    assert_eq!(error("1h 60min 5m"), format!("the duration '1h 60min 5m' has '5m' after a unit that is not longer; {order}"));
    assert_eq!(error("1d 0m"), "the duration '0m' is zero; expected more than zero");
    assert_eq!(error("106751991d 23h"), "the duration '106751991d 23h' is too long; expected at most 106751991d");
    for (text, one_word) in [("1 h", "1h"), ("3 days", "3d"), (" 90  Minutes", "90m"), ("5 m", "5m")] {
        assert_eq!(error(text), format!("the duration '{text}' has a space before its unit; expected '{one_word}'"));
    }
    for text in ["", " ", "1 fortnight", "1h30m", "1h, 30m", "1h 30"] {
        assert!(parse_duration_parts(text).is_err(), "{text}");
    }
    assert!(parse_duration("31d 5m").is_err(), "a text that may name a column has one part");
}

#[test]
fn sizes_are_read_in_binary_and_decimal_units() {
    assert_eq!(parse_bytes("1B").unwrap(), 1);
    assert_eq!(parse_bytes("256MiB").unwrap(), 256 << 20);
    assert_eq!(parse_bytes("4GiB").unwrap(), 4 << 30);
    assert_eq!(parse_bytes("1GB").unwrap(), 1_000_000_000);
    assert_eq!(parse_bytes("12").unwrap_err().to_string(), "the size '12' has no unit; add one of B, KiB, MiB, GiB, TiB");
    for text in ["", "0B", "1.5GiB", "8388608TiB", "1gib", "-1B", "1GiB/s"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_written_duration_is_read_back(ms in 1u64..100_000_000_000_000) {
        let duration = Duration::from_millis(ms);
        prop_assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
        prop_assert_eq!(parse_duration_parts(&format_duration_parts(duration)).unwrap(), duration);
    }

    #[test]
    fn a_written_size_is_read_back(bytes in 1u64..i64::MAX as u64) {
        prop_assert_eq!(parse_bytes(&format_bytes(bytes)).unwrap(), bytes);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse_duration(&text);
        let _ = parse_duration_parts(&text);
        let _ = parse_bytes(&text);
    }
}
