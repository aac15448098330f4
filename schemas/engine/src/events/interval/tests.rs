use arrow::array::{
    DurationMicrosecondArray, DurationMillisecondArray, DurationNanosecondArray, DurationSecondArray, Int64Array, IntervalDayTimeArray,
    IntervalMonthDayNanoArray, IntervalYearMonthArray,
};
use arrow::datatypes::{IntervalDayTime, IntervalMonthDayNano};
use proptest::prelude::*;

use super::*;

/// Each as PostgreSQL 15 writes it with `intervalstyle = iso_8601`.
#[test]
fn an_interval_is_written_as_postgresql_writes_it() {
    let text = |months, days, nanos| Interval { months, days, nanos }.to_string();
    assert_eq!(text(0, 0, 0), "PT0S");
    assert_eq!(text(14, 3, 14_706_789_000_000), "P1Y2M3DT4H5M6.789S");
    assert_eq!(text(-14, 3, -14_706_000_000_000), "P-1Y-2M3DT-4H-5M-6S");
    assert_eq!(text(0, 0, -500_000_000), "PT-0.5S");
    assert_eq!(text(12, 0, 0), "P1Y");
    assert_eq!(text(0, 1, 60_000_000_000), "P1DT1M");
    assert_eq!(text(0, 0, 26 * HOUR), "PT26H", "a difference of times has no days");
}

#[test]
fn every_array_of_intervals_and_of_differences_is_read() {
    let of = |array: &dyn Array| Interval::of_array(array, 0).map(|interval| interval.to_string());
    let shown = |text: &str| Some(text.to_owned());
    assert_eq!(of(&IntervalYearMonthArray::from(vec![25])), shown("P2Y1M"));
    assert_eq!(of(&IntervalDayTimeArray::from(vec![IntervalDayTime::new(2, -1_500)])), shown("P2DT-1.5S"));
    assert_eq!(of(&IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 0, 1)])), shown("P1MT0.000000001S"));
    assert_eq!(of(&DurationSecondArray::from(vec![i64::MAX])), shown("PT2562047788015215H30M7S"));
    assert_eq!(of(&DurationMillisecondArray::from(vec![90_061_001])), shown("PT25H1M1.001S"));
    assert_eq!(of(&DurationMicrosecondArray::from(vec![-1])), shown("PT-0.000001S"));
    assert_eq!(of(&DurationNanosecondArray::from(vec![60_000_000_000])), shown("PT1M"));
    assert_eq!(of(&Int64Array::from(vec![1])), None);
}

#[test]
fn what_is_no_interval_is_refused_and_weeks_are_read() {
    assert_eq!("P2W1D".parse::<Interval>().unwrap(), Interval { days: 15, ..Interval::default() });
    for text in ["", "P", "PT", "P1DT", "1D", "P1", "P1H", "PT1D", "PT1.5H", "PT1.0000000001S", "P--1D", "PT1.-5S", "P9999999999Y", "Pä1D"]
    {
        let error = text.parse::<Interval>().unwrap_err();
        assert!(error.message().contains("expected an interval as ISO 8601"), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn every_interval_reads_back(months in any::<i32>(), days in any::<i32>(), nanos in any::<i64>()) {
        let interval = Interval { months, days, nanos: nanos.into() };
        prop_assert_eq!(interval.to_string().parse::<Interval>().unwrap(), interval);
    }

    #[test]
    fn no_text_panics(text in "P?[-0-9.YMWDTHSä ]{0,20}") {
        let _ = text.parse::<Interval>();
    }
}
