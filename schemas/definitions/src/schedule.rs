//! Schedules: when a view's batch runs are due, at a fixed interval, by Unix cron in a time zone, or after the runs of
//! another view.
//!
//! `expression` reads the five or six fields, and `local_time` finds the next instant by the zone's wall clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::durations::format_duration_parts;
use expression::CronExpression;
use types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

mod expression;
mod local_time;

/// How many due times of a cron schedule are looked at for the shortest time between two.
const GAPS: usize = 100;

/// When runs are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the multiples of this since 1970-01-01 UTC: `1h` is every full hour, whenever the process started.
    Every(Duration),
    /// Unix cron by the wall clock of a time zone. Only the parser creates it, as it checks the expression.
    Cron { expression: String, timezone: Tz },
    /// When a run of this view has succeeded or was skipped: there are no due times of its own.
    After(Arc<str>),
}

impl Schedule {
    /// Parses a cron schedule: five fields (minute, hour, day of month, month, weekday), or six with seconds first.
    ///
    /// Fields hold `*`, numbers, ranges `1-5`, lists `1,15`, steps `*/15` or `10-40/10`, and names of months and
    /// weekdays. Weekdays count from Sunday = 0; 7 is Sunday too. When day of month and weekday are both restricted
    /// (neither begins with `*`), a day matches if *either* does, as in cron(5). (The cron crate itself requires both,
    /// counts Sunday as 1 and requires seconds.)
    ///
    /// When the clocks change, no run is lost or doubled. If the hours are restricted, a time in the skipped hour runs
    /// once, right after the change, and a time in the repeated hour runs the first time only. A schedule of every hour
    /// follows the clock through both passes of that hour.
    pub(crate) fn cron(expression: &str, timezone: Tz) -> Result<Schedule> {
        let expression = expression.trim();
        let fields = CronExpression::parse(expression)?;
        let schedule = Schedule::Cron { expression: expression.to_owned(), timezone };
        let epoch = DateTime::UNIX_EPOCH.timestamp();
        match local_time::next_after(&fields, timezone, epoch) {
            Some(_) => Ok(schedule),
            None => Err(Error::input(format!("the cron expression '{expression}' names a day that never comes; expected one that does"))),
        }
    }

    /// Returns the first due time after both `after` and `last` (the due time of the last run), so that a clock that
    /// was set back does not repeat a run. `None` if there is none up to the year 2100.
    pub(crate) fn next_after(&self, after: DateTime<Utc>, last: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
        let after = last.map_or(after, |last| last.max(after));
        match self {
            Schedule::Every(length) => {
                let length_us = i64::try_from(length.as_micros()).ok().filter(|length_us| *length_us > 0)?;
                let next = after.timestamp_micros().div_euclid(length_us).checked_add(1)?.checked_mul(length_us)?;
                DateTime::from_timestamp_micros(next)
            }
            Schedule::Cron { expression, timezone } => {
                let fields = CronExpression::parse(expression).ok()?;
                let next = local_time::next_after(&fields, *timezone, after.timestamp())?;
                DateTime::from_timestamp(next, 0)
            }
            Schedule::After(_) => None,
        }
    }

    /// Returns the newest due time in `(since, now]`: one run makes up for all missed ones.
    pub fn latest_due(&self, since: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Schedule::Every(length) => {
                let length_us = i64::try_from(length.as_micros()).ok().filter(|length_us| *length_us > 0)?;
                let latest = now.timestamp_micros().div_euclid(length_us).checked_mul(length_us)?;
                DateTime::from_timestamp_micros(latest).filter(|latest| *latest > since)
            }
            Schedule::Cron { expression, timezone } => {
                let fields = CronExpression::parse(expression).ok()?;
                let next = |after| local_time::next_after(&fields, *timezone, after);
                let latest = latest_not_after(next, since.timestamp(), now.timestamp())?;
                DateTime::from_timestamp(latest, 0)
            }
            Schedule::After(_) => None,
        }
    }

    /// Returns the due times after `after`.
    pub(crate) fn due_after(&self, after: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> {
        std::iter::successors(self.next_after(after, None), |last| self.next_after(*last, None))
    }

    /// Returns the next `count` due times after `after`.
    #[cfg(test)]
    pub(crate) fn upcoming(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        self.due_after(after).take(count).collect()
    }

    /// Returns the shortest time between two due times, of those that are looked at. `None` without due times.
    pub(crate) fn shortest_gap(&self) -> Option<Duration> {
        if let Schedule::Every(length) = self {
            return Some(*length);
        }
        let due: Vec<_> = self.due_after(DateTime::UNIX_EPOCH).take(GAPS).collect();
        due.windows(2).filter_map(|pair| (pair[1] - pair[0]).to_std().ok()).min()
    }
}

/// Returns how much later than due a run begins: from zero up to `longest`, spread evenly over names and due times.
/// Every process and release has to come to the same result.
pub(crate) fn jitter(name: &str, due: DateTime<Utc>, longest: Duration) -> Duration {
    let text = format!("{name} {}", due.timestamp_micros());
    let places = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
    Duration::from_micros(xxh3_64(text.as_bytes()) % places)
}

/// Returns the newest value in `(since, now]` of a rising sequence given by its `next`, by bisection: a few dozen steps
/// even for a schedule of every second that slept for a year.
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
            Schedule::Every(length) => write!(f, "every {}", format_duration_parts(*length)),
            Schedule::Cron { expression, timezone } => write!(f, "'{expression}' in {timezone}"),
            Schedule::After(view) => write!(f, "after {view}"),
        }
    }
}

#[cfg(test)]
mod tests;
