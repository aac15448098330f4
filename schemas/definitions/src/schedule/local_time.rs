//! Converts matches on a zone's wall clock to instants, including clock changes.
//!
//! All times are seconds since 1970: UTC for instants, the wall clock for local times.

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

use super::expression::CronExpression;

const DAY: i64 = 86_400;
/// The last year that the cron crate and the zone tables support.
const LAST: i64 = 4_133_980_800; // 2101-01-01

/// Returns the first instant after `after` that matches the expression in this zone; `None` past the year 2100.
pub(super) fn next_after(expression: &CronExpression, zone: Tz, after: i64) -> Option<i64> {
    let after = after.clamp(-DAY, LAST);
    match expression.every_hour {
        true => next_by_the_clock(expression, zone, after),
        false => next_once(expression, zone, after),
    }
}

/// Uses every instant at which the wall clock shows a match: none in a skipped hour, both in a repeated hour.
fn next_by_the_clock(expression: &CronExpression, zone: Tz, after: i64) -> Option<i64> {
    let mut from = after;
    let mut offset = offset_at(zone, after)?;
    loop {
        let next = expression.next_after(from + offset)? - offset;
        let Some(change) = first_change(zone, offset, from, next) else { return Some(next) };
        offset = offset_at(zone, change)?;
        from = change - 1;
    }
}

/// Uses one instant for every local time that matches: the first of two, and the end of the gap for a skipped one.
fn next_once(expression: &CronExpression, zone: Tz, after: i64) -> Option<i64> {
    let mut local = after + offset_at(zone, after)?;
    loop {
        local = expression.next_after(local)?;
        let instant = first_instant(zone, local)?;
        if instant > after {
            return Some(instant);
        }
    }
}

/// Returns the first instant at which the wall clock shows `local` or a later time.
fn first_instant(zone: Tz, local: i64) -> Option<i64> {
    let naive: NaiveDateTime = DateTime::from_timestamp(local, 0)?.naive_utc();
    if let Some(instant) = zone.from_local_datetime(&naive).earliest() {
        return Some(instant.timestamp());
    }
    let before = local - 2 * DAY; // no zone is further from UTC, and no change is larger
    first_change(zone, offset_at(zone, before)?, before, local + 2 * DAY)
}

/// Returns the first instant in `(from, to]` with an offset other than `offset`, which is the one at `from`.
fn first_change(zone: Tz, offset: i64, from: i64, to: i64) -> Option<i64> {
    let differs = |time: i64| offset_at(zone, time).is_some_and(|there| there != offset);
    let mut same = from;
    while same < to {
        let mut other = (same + DAY).min(to);
        if !differs(other) {
            same = other;
            continue;
        }
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if differs(middle) { other = middle } else { same = middle }
        }
        return Some(other);
    }
    None
}

/// Returns how far the wall clock is ahead of UTC.
fn offset_at(zone: Tz, instant: i64) -> Option<i64> {
    let utc = DateTime::from_timestamp(instant, 0)?.naive_utc();
    Some(i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()))
}
