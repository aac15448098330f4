use chrono::{Datelike, NaiveDate, TimeDelta, TimeZone, Timelike};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn cron(expression: &str, timezone: Tz) -> Schedule {
    Schedule::cron(expression, timezone).unwrap()
}

fn refused(expression: &str) -> String {
    Schedule::cron(expression, Tz::UTC).unwrap_err().to_string()
}

/// The next `count` runs as local times with their offset.
fn runs(schedule: &Schedule, zone: Tz, after: &str, count: usize) -> Vec<String> {
    let local = |time: DateTime<Utc>| time.with_timezone(&zone).format("%d %H:%M:%S %Z").to_string();
    schedule.upcoming(at(after), count).into_iter().map(local).collect()
}

/// The weekdays (Sunday = 0) on which `0 0 * * FIELD` runs.
fn weekdays(field: &str) -> Vec<u32> {
    let schedule = cron(&format!("0 0 * * {field}"), Tz::UTC);
    let week_end = at("2026-11-29T00:00:00Z");
    let days = schedule.upcoming(at("2026-11-21T12:00:00Z"), 7).into_iter().take_while(|day| *day < week_end);
    days.map(|day| day.weekday().num_days_from_sunday()).collect()
}

#[test]
fn every_is_aligned_to_multiples_since_1970() {
    let hourly = Schedule::Every(Duration::from_secs(3600));
    assert_eq!(hourly.next_after(at("2026-11-21T07:02:30Z"), None), Some(at("2026-11-21T08:00:00Z")));
    assert_eq!(hourly.next_after(at("2026-11-21T08:00:00Z"), None), Some(at("2026-11-21T09:00:00Z")));
    assert_eq!(hourly.next_after(at("1969-12-31T23:30:00Z"), None), Some(at("1970-01-01T00:00:00Z")));
    assert_eq!(Schedule::Every(Duration::ZERO).next_after(at("2026-11-21T07:02:30Z"), None), None);
}

#[test]
fn a_clock_that_was_set_back_does_not_repeat_a_run() {
    let hourly = Schedule::Every(Duration::from_secs(3600));
    let last = Some(at("2026-11-21T08:00:00Z"));
    assert_eq!(hourly.next_after(at("2026-11-21T07:58:00Z"), last), Some(at("2026-11-21T09:00:00Z")));
    let cron = cron("0 * * * *", Tz::UTC);
    assert_eq!(cron.next_after(at("2026-11-21T07:58:00Z"), last), Some(at("2026-11-21T09:00:00Z")));
}

#[test]
fn missed_runs_are_caught_up_once() {
    let now = at("2026-11-21T07:02:30Z");
    for schedule in [Schedule::Every(Duration::from_secs(900)), cron("*/15 * * * *", Tz::UTC), cron("0 */15 * * * *", Tz::UTC)] {
        assert_eq!(schedule.latest_due(at("2025-01-01T00:00:00Z"), now), Some(at("2026-11-21T07:00:00Z")), "{schedule}");
        assert_eq!(schedule.latest_due(at("2026-11-21T07:00:00Z"), now), None, "{schedule}");
        assert_eq!(schedule.latest_due(now, at("2025-01-01T00:00:00Z")), None, "{schedule}");
    }
    assert_eq!(cron("* * * * * *", Tz::UTC).latest_due(DateTime::UNIX_EPOCH, now), Some(now));
    assert_eq!(cron("0 0 29 2 *", Tz::UTC).latest_due(DateTime::UNIX_EPOCH, now), Some(at("2024-02-29T00:00:00Z")));
}

#[test]
fn weekdays_count_from_sunday_as_0_and_7() {
    assert_eq!(weekdays("0"), [0]);
    assert_eq!(weekdays("7"), [0]);
    assert_eq!(weekdays("1"), [1]);
    assert_eq!(weekdays("5-7"), [0, 5, 6]);
    assert_eq!(weekdays("0,6"), [0, 6]);
    assert_eq!(weekdays("*/2"), [0, 2, 4, 6]);
    assert_eq!(weekdays("1-5"), [1, 2, 3, 4, 5]);
    assert_eq!(weekdays("1-5/2"), [1, 3, 5]);
    assert_eq!(weekdays("mon,Wed"), [1, 3]);
    assert_eq!(weekdays("fri-sun"), [0, 5, 6]);
    assert_eq!(weekdays("SUNDAY"), [0]);
    assert_eq!(weekdays("?"), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(weekdays("0-7"), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn day_of_month_or_weekday_as_unix_has_it() {
    let friday_or_13th = cron("0 0 13 * fri", Tz::UTC);
    assert_eq!(runs(&friday_or_13th, Tz::UTC, "2026-12-10T12:00:00Z", 3), ["11 00:00:00 UTC", "13 00:00:00 UTC", "18 00:00:00 UTC"]);
    let odd_days_that_are_fridays = cron("0 0 */2 * fri", Tz::UTC);
    assert_eq!(runs(&odd_days_that_are_fridays, Tz::UTC, "2026-12-01T12:00:00Z", 2), ["11 00:00:00 UTC", "25 00:00:00 UTC"]);
}

#[test]
fn a_sixth_field_in_front_is_seconds() {
    let schedule = cron("*/20 30 12 * * *", Tz::UTC);
    assert_eq!(runs(&schedule, Tz::UTC, "2026-11-21T12:30:00Z", 3), ["21 12:30:20 UTC", "21 12:30:40 UTC", "22 12:30:00 UTC"]);
}

#[test]
fn a_time_in_the_hour_that_is_left_out_runs_once_after_it() {
    let zone = Tz::Europe__Berlin;
    let daily = cron("30 2 * * *", zone);
    assert_eq!(runs(&daily, zone, "2026-03-28T00:00:00Z", 3), ["28 02:30:00 CET", "29 03:00:00 CEST", "30 02:30:00 CEST"]);
    let twice = cron("0,30 2,3 * * *", zone);
    assert_eq!(runs(&twice, zone, "2026-03-28T23:00:00Z", 3), ["29 03:00:00 CEST", "29 03:30:00 CEST", "30 02:00:00 CEST"]);
}

#[test]
fn a_time_in_the_hour_that_comes_twice_runs_the_first_time() {
    let zone = Tz::Europe__Berlin;
    let daily = cron("30 2 * * *", zone);
    assert_eq!(runs(&daily, zone, "2026-10-24T12:00:00Z", 2), ["25 02:30:00 CEST", "26 02:30:00 CET"]);
    assert_eq!(runs(&daily, zone, "2026-10-25T01:10:00Z", 1), ["26 02:30:00 CET"]);
}

#[test]
fn a_schedule_of_every_hour_goes_on_by_the_clock_through_both_changes() {
    let zone = Tz::Europe__Berlin;
    let half_hourly = cron("*/30 * * * *", zone);
    assert_eq!(
        runs(&half_hourly, zone, "2026-10-24T23:59:00Z", 6),
        ["25 02:00:00 CEST", "25 02:30:00 CEST", "25 02:00:00 CET", "25 02:30:00 CET", "25 03:00:00 CET", "25 03:30:00 CET"]
    );
    assert_eq!(runs(&half_hourly, zone, "2026-03-29T00:29:00Z", 3), ["29 01:30:00 CET", "29 03:00:00 CEST", "29 03:30:00 CEST"]);
    let now = at("2026-10-25T01:10:00Z");
    assert_eq!(half_hourly.latest_due(at("2026-10-01T00:00:00Z"), now), Some(at("2026-10-25T01:00:00Z")));
}

#[test]
fn a_wrong_expression_is_answered_with_the_field_and_its_bounds() {
    let begin = |rest: &str, expression: &str| format!("the cron expression '{expression}' {rest}");
    let cases = [
        ("* * *", "has 3 fields; expected five (minute, hour, day of month, month, weekday) or six with seconds in front"),
        ("0 25 * * *", "has the hour '25'; expected 0 to 23"),
        ("0 0 * * 8", "has the weekday '8'; expected 0 to 7 or sun to sat"),
        ("0 0 * foo *", "has the month 'foo'; expected 1 to 12 or jan to dec"),
        ("*/0 * * * *", "has the step '*/0' in minute; expected a step of 1 to 59"),
        ("30-10 * * * *", "has the range '30-10' in minute, which goes backwards; expected the smaller value first, or a list"),
        ("0 0 30 2 *", "names a day that never comes; expected one that does"),
        ("1,,2 * * * *", "has the minute ''; expected 0 to 59"),
    ];
    for (expression, expected) in cases {
        assert_eq!(refused(expression), begin(expected, expression));
    }
    for expression in ["", "@daily", "? * * * *", "1-2-3 * * * *", "-1 * * * *", "0 0 * * ſat", "0 0 L * *"] {
        refused(expression);
    }
}

#[test]
fn times_at_the_ends_of_the_calendar_do_not_panic() {
    for schedule in [cron("0 0 * * *", Tz::Asia__Kolkata), cron("* * * * *", Tz::Pacific__Apia), Schedule::Every(Duration::MAX)] {
        for time in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
            let _ = schedule.next_after(time, None);
            let _ = schedule.latest_due(DateTime::<Utc>::MIN_UTC, time);
        }
    }
}

/// The definition of cron, minute by minute on a clock without changes.
fn matches_fields(minutes: &[u32], hours: &[u32], days: &[u32], weekdays: &[u32], time: DateTime<Utc>) -> bool {
    let either = |list: &[u32], value| list.is_empty() || list.contains(&value);
    let day = days.contains(&time.day());
    let weekday = weekdays.contains(&time.weekday().num_days_from_sunday());
    let is_day = match (days.is_empty(), weekdays.is_empty()) {
        (true, true) => true,
        (false, true) => day,
        (true, false) => weekday,
        (false, false) => day || weekday,
    };
    either(minutes, time.minute()) && either(hours, time.hour()) && is_day
}

fn field(values: &[u32]) -> String {
    if values.is_empty() { "*".to_owned() } else { values.iter().map(u32::to_string).collect::<Vec<_>>().join(",") }
}

fn view(options: &str) -> crate::ViewDefinition {
    crate::parse::parse_view(&format!("CREATE VIEW v WITH ({options}) AS SELECT count(*) AS n FROM s")).unwrap()
}

/// Schedules with and without due times in the hours that clocks leave out and repeat.
const SCHEDULES: [&str; 5] = [
    "every = '90s'",
    "every = '1h'",
    "schedule = '*/7 * * * *'",
    "schedule = '30 2 * * *', timezone = 'Europe/Berlin'",
    "schedule = '0 1,2,3 * * *', timezone = 'America/New_York'",
];

#[test]
fn jitter_is_the_same_in_every_release() {
    let spread = view("every = '1h', jitter = '30s'");
    let begins: Vec<i64> =
        [0, 3_600, 7_200].map(|due| spread.begins_at(DateTime::from_timestamp(due, 0).unwrap()).timestamp_micros()).to_vec();
    assert_eq!(begins, [8_915_232, 3_602_059_410, 7_206_833_345]);
}

#[test]
fn a_schedule_after_another_view_has_no_due_times() {
    let after = view("after = 'other'");
    assert_eq!(after.schedule, Some(Schedule::After("other".into())));
    let now = at("2026-11-21T07:02:30Z");
    assert_eq!((after.latest_due(DateTime::UNIX_EPOCH, now), after.upcoming(now, 3)), (None, vec![]));
    assert_eq!(after.schedule.unwrap().to_string(), "after other");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The law of jitter: a run begins at its due time or later, by at most the jitter, and what is due at a time is
    /// the newest due time that has begun by then.
    #[test]
    fn what_has_begun_is_the_newest_due_time_after_its_jitter(
        schedule in prop::sample::select(SCHEDULES.as_slice()), jitter in 1u32..80, start in 1_700_000_000_000i64..1_800_000_000_000, length in 1i64..200_000_000,
    ) {
        let view = view(&format!("{schedule}, jitter = '{jitter}s'"));
        let (since, now) = (DateTime::from_timestamp_millis(start).unwrap(), DateTime::from_timestamp_millis(start + length).unwrap());
        let longest = TimeDelta::seconds(i64::from(jitter));
        let due: Vec<_> = view.schedule.as_ref().unwrap().due_after(since).take_while(|due| *due <= now).collect();
        for due in &due {
            let begins = view.begins_at(*due);
            prop_assert!(*due <= begins && begins <= *due + longest);
        }
        let begun = due.iter().rev().copied().find(|due| view.begins_at(*due) <= now);
        prop_assert_eq!(view.latest_due(since, now), begun);
        let upcoming = view.upcoming(now, 3);
        prop_assert!(upcoming.iter().all(|begins| *begins > now) && upcoming.is_sorted());
        let next = view.schedule.as_ref().unwrap().due_after(now - longest).map(|due| view.begins_at(due)).find(|begins| *begins > now);
        prop_assert_eq!(upcoming.first().copied(), next);
    }

    #[test]
    fn the_next_run_is_the_first_minute_that_matches(
        minutes in prop::collection::vec(0u32..60, 0..3), hours in prop::collection::vec(0u32..24, 0..3),
        days in prop::collection::vec(1u32..29, 0..3), weekdays in prop::collection::vec(0u32..7, 0..3),
        start_minute in 0i64..1_000_000,
    ) {
        let expression = format!("{} {} {} * {}", field(&minutes), field(&hours), field(&days), field(&weekdays));
        let first_day = NaiveDate::from_ymd_opt(2025, 1, 1).unwrap().and_hms_opt(0, 0, 0).unwrap();
        let start = Utc.from_utc_datetime(&first_day) + chrono::TimeDelta::minutes(start_minute);
        let next = cron(&expression, Tz::UTC).next_after(start, None).unwrap();
        let expected = (1..60 * 24 * 70).map(|minutes| start + chrono::TimeDelta::minutes(minutes))
            .find(|time| matches_fields(&minutes, &hours, &days, &weekdays, *time));
        prop_assert_eq!(Some(next), expected, "{}", expression);
    }

    #[test]
    fn the_latest_due_time_is_the_last_before_the_next(minute in 0u32..60, hour in 0u32..24, start in 0i64..4_000_000_000, length in 1i64..10_000_000) {
        let schedule = cron(&format!("{minute} {hour} * * *"), Tz::America__New_York);
        let (since, now) = (DateTime::from_timestamp(start, 0).unwrap(), DateTime::from_timestamp(start + length, 0).unwrap());
        match schedule.latest_due(since, now) {
            Some(due) => {
                prop_assert!(since < due && due <= now);
                prop_assert!(schedule.next_after(due, None).is_none_or(|next| next > now));
            }
            None => prop_assert!(schedule.next_after(since, None).is_none_or(|next| next > now)),
        }
    }

    #[test]
    fn no_expression_panics(text in "[-0-9*/,a-z? @]{0,30}") {
        let _ = Schedule::cron(&text, Tz::UTC);
    }
}
