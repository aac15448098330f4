use super::*;
use proptest::prelude::*;

#[test]
fn offsets_of_any_form_become_utc() {
    let noon = parse_timestamp("2024-05-01T12:00:00Z").unwrap();
    for text in [
        "2024-05-01T14:00:00+02:00",
        "2024-05-01T06:30:00-05:30",
        "2024-05-01 12:00:00+00",
        "2024-05-01t12:00:00.000z",
        "2024-05-01T14:00:00+0200",
    ] {
        assert_eq!(parse_timestamp(text), Ok(noon), "{text}");
    }
    assert_eq!(noon, 1_714_564_800_000_000);
}

#[test]
fn a_time_without_a_zone_is_its_own_error() {
    assert_eq!(parse_timestamp("2024-05-01T12:00:00"), Err(TimeError::NoZone));
    assert_eq!(parse_timestamp("2024-05-01 12:00:00.5"), Err(TimeError::NoZone));
}

#[test]
fn digits_finer_than_a_microsecond_are_cut_off_also_before_1970() {
    assert_eq!(parse_timestamp("1970-01-01T00:00:00.123456999Z"), Ok(123_456));
    assert_eq!(parse_timestamp("1969-12-31T23:59:59.9999999Z"), Ok(-1));
}

#[test]
fn a_leap_second_is_the_next_minutes_first() {
    assert_eq!(parse_timestamp("2016-12-31T23:59:60Z"), parse_timestamp("2017-01-01T00:00:00Z"));
}

#[test]
fn times_outside_of_the_years_1_to_9999_are_refused() {
    assert_eq!(parse_timestamp("0001-01-01T00:00:00Z"), Ok(EARLIEST));
    assert_eq!(parse_timestamp("9999-12-31T23:59:59.999999Z"), Ok(LATEST));
    assert_eq!(parse_timestamp("0001-01-01T00:00:00+01:00"), Err(TimeError::OutOfRange));
    assert_eq!(parse_timestamp("9999-12-31T23:59:59-01:00"), Err(TimeError::OutOfRange));
    assert_eq!(parse_timestamp("0000-01-01T00:00:00Z"), Err(TimeError::Invalid));
}

#[test]
fn what_is_no_time_is_refused() {
    for text in [
        "",
        "2024",
        "2024-02-30T00:00:00Z",
        "2024-05-01T24:00:00Z",
        "2024-05-01T12:00:00.Z",
        "2024-05-01T12:00:00Zx",
        "2024-05-01T12:00Z",
        "2024-05-01",
        "2024-05-01T12:00:00+25:00",
        "2024-05-0éT12:00:00Z",
    ] {
        assert_eq!(parse_timestamp(text), Err(TimeError::Invalid), "{text}");
    }
    for text in ["", "2024-13-01", "2023-02-29", "24-01-01", "2024-1-1", "0000-01-01", "2024-01-01Z"] {
        assert_eq!(parse_date(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn a_time_reads_back_from_its_text(time in EARLIEST..=LATEST) {
        prop_assert_eq!(parse_timestamp(&format_timestamp(time)), Ok(time));
    }

    #[test]
    fn a_date_reads_back_from_its_text(days in -719_162..=2_932_896i32) {
        prop_assert_eq!(parse_date(&format_date(days)), Some(days));
    }

    #[test]
    fn times_of_any_year_are_written_as_chrono_writes_them(time in any::<Micros>(), days in any::<i32>()) {
        if let Some(at) = DateTime::from_timestamp_micros(time) {
            let seconds = at.format("%Y-%m-%dT%H:%M:%S").to_string();
            prop_assert!(format_timestamp(time).starts_with(&seconds), "{} instead of {seconds}", format_timestamp(time));
        }
        if let Some(date) = NaiveDate::from_epoch_days(days) {
            prop_assert_eq!(format_date(days), date.format("%Y-%m-%d").to_string());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}", times in "[-0-9T:.Zz+ ]{0,40}") {
        let _ = (parse_timestamp(&text), parse_date(&text), parse_timestamp(&times), parse_date(&times));
    }
}
