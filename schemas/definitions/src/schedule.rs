//! When a view's batch runs are due: every so often, or by Unix cron in a time zone.
//!
//! The way: `expression` reads the five or six fields, `local_time` finds the next instant by the wall clock of the zone.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::durations::format_duration;
use expression::Expression;
use types::{Error, Result};

mod expression;
mod local_time;

/// When runs are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the multiples of this since 1970-01-01 UTC: `1h` is every full hour, however long a process has been up.
    Every(Duration),
    /// Unix cron by the wall clock of a time zone; make it with [`Schedule::cron`], which checks it.
    Cron { expression: String, timezone: Tz },
}

impl Schedule {
    /// A cron schedule: five fields (minute, hour, day of month, month, weekday) or six with seconds in front.
    ///
    /// Fields hold `*`, numbers, ranges `1-5`, lists `1,15`, steps `*/15` or `10-40/10`, and names of months and weekdays. Weekdays
    /// count from Sunday = 0; 7 is Sunday too. When day of month and weekday are both restricted (neither begins with `*`) a day
    /// matches if *either* does, as cron(5) has it. (The cron crate by itself wants both, counts Sunday as 1 and wants seconds first.)
    ///
    /// When the clocks change, no run is lost or doubled: with restricted hours a time in the hour that is left out runs
    /// once, when the clocks have moved on, and a time in the hour that comes twice runs the first time. A schedule of every hour
    /// goes on by the clock through both passes of that hour.
    pub fn cron(expression: &str, timezone: Tz) -> Result<Schedule> {
        let expression = expression.trim();
        let fields = Expression::parse(expression)?;
        let schedule = Schedule::Cron { expression: expression.to_owned(), timezone };
        let epoch = DateTime::UNIX_EPOCH.timestamp();
        match local_time::next_after(&fields, timezone, epoch) {
            Some(_) => Ok(schedule),
            None => Err(Error::input(format!("the cron expression '{expression}' names a day that never comes; expected one that does"))),
        }
    }

    /// The first due time after `after`, and after `last` (the due time of the last run), so that a clock that was set back does
    /// not repeat a run. `None` when there is none up to the year 2100.
    pub fn next_after(&self, after: DateTime<Utc>, last: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
        let after = last.map_or(after, |last| last.max(after));
        match self {
            Schedule::Every(length) => {
                let length_us = i64::try_from(length.as_micros()).ok().filter(|length_us| *length_us > 0)?;
                let next = after.timestamp_micros().div_euclid(length_us).checked_add(1)?.checked_mul(length_us)?;
                DateTime::from_timestamp_micros(next)
            }
            Schedule::Cron { expression, timezone } => {
                let fields = Expression::parse(expression).ok()?;
                let next = local_time::next_after(&fields, *timezone, after.timestamp())?;
                DateTime::from_timestamp(next, 0)
            }
        }
    }

    /// The newest due time in `(since, now]`: however many runs were missed, they are caught up by one.
    pub fn latest_due(&self, since: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Schedule::Every(length) => {
                let length_us = i64::try_from(length.as_micros()).ok().filter(|length_us| *length_us > 0)?;
                let latest = now.timestamp_micros().div_euclid(length_us).checked_mul(length_us)?;
                DateTime::from_timestamp_micros(latest).filter(|latest| *latest > since)
            }
            Schedule::Cron { expression, timezone } => {
                let fields = Expression::parse(expression).ok()?;
                let next = |after| local_time::next_after(&fields, *timezone, after);
                let latest = latest_not_after(next, since.timestamp(), now.timestamp())?;
                DateTime::from_timestamp(latest, 0)
            }
        }
    }

    /// The next `count` due times after `after`, for people to read.
    pub fn upcoming(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next_after(after, None), |last| self.next_after(*last, None)).take(count).collect()
    }
}

/// The newest value in `(since, now]` of a rising sequence given by its `next`, found by halving: a few dozen steps
/// also for a schedule of every second that slept for a year.
fn latest_not_after(next: impl Fn(i64) -> Option<i64>, since: i64, now: i64) -> Option<i64> {
    let due_after = |time: i64| next(time).filter(|due| *due <= now);
    let mut latest = due_after(since)?;
    let mut none_after = now;
    while latest < none_after {
        let middle = latest + (none_after - latest) / 2;
        match due_after(middle) {
            Some(due) => latest = due,
            None => none_after = middle,
        }
    }
    Some(latest)
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Every(length) => write!(f, "every {}", format_duration(*length)),
            Schedule::Cron { expression, timezone } => write!(f, "'{expression}' in {timezone}"),
        }
    }
}

#[cfg(test)]
mod tests;
