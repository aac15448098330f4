//! The zone of a session, in which times are written as text and read from it.

use std::borrow::Cow;

use chrono::{DateTime, Offset, TimeZone, Utc};

/// The names of UTC in the IANA database, each also after `Etc/`. pgjdbc sends that of the JVM's zone.
const NAMES_OF_UTC: [&str; 9] = ["UTC", "UCT", "Universal", "Zulu", "GMT", "GMT0", "GMT+0", "GMT-0", "Greenwich"];

const DAY_SECONDS: u64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    /// One of the IANA database.
    Named(chrono_tz::Tz),
    /// An offset from UTC: how many minutes its clocks are ahead.
    Fixed(i32),
}

impl Zone {
    /// The zone that a setting names. As in PostgreSQL, a number counts hours east of Greenwich, and an interval is
    /// east as well, but an offset with a colon or after an abbreviation is written as in POSIX: west is positive.
    pub(crate) fn named(text: &str) -> Option<Zone> {
        let name = text.trim();
        // In the spelling that settings keep, it is found at once.
        if let Ok(zone) = name.parse() {
            return Some(Zone::Named(zone));
        }
        let in_any_case = || chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied();
        let fixed = iso(text).or_else(|| posix(text)).map(Zone::Fixed);
        fixed.or_else(|| in_any_case().map(Zone::Named))
    }

    /// The spelling in which the setting keeps and shows it: a text that names the same zone.
    pub(crate) fn spelled(text: &str) -> Option<String> {
        match (Zone::named(text)?, iso(text)) {
            (Zone::Named(zone), _) => Some(zone.name().to_owned()),
            (Zone::Fixed(_), Some(east)) => Some(in_posix(east)),
            (Zone::Fixed(_), None) => Some(text.to_ascii_uppercase()),
        }
    }

    /// Its name or its offset, as Arrow knows it, if it is another zone than UTC.
    pub(crate) fn other_than_utc(self) -> Option<Cow<'static, str>> {
        match self {
            Zone::Named(zone) => {
                let name = zone.name();
                (!NAMES_OF_UTC.contains(&name.strip_prefix("Etc/").unwrap_or(name))).then_some(Cow::Borrowed(name))
            }
            Zone::Fixed(0) => None,
            Zone::Fixed(east) => {
                let (sign, minutes) = (if east < 0 { '-' } else { '+' }, east.unsigned_abs());
                Some(Cow::Owned(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)))
            }
        }
    }

    /// How many seconds its clocks are ahead of UTC at this time.
    pub(super) fn offset_seconds(self, at: DateTime<Utc>) -> i32 {
        match self {
            Zone::Named(zone) => zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc(),
            Zone::Fixed(east) => east * 60,
        }
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::Named(chrono_tz::Tz::UTC)
    }
}

/// The minutes east of Greenwich of a number or an interval.
fn iso(text: &str) -> Option<i32> {
    hours(text.trim_start()).or_else(|| interval(text))
}

fn hours(text: &str) -> Option<i32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
    let hours: f64 = text.parse().ok().filter(|_| is_number)?;
    whole_minutes((hours * 3_600.0) as i64)
}

/// `INTERVAL '+02:00' HOUR TO MINUTE`, `INTERVAL '2 hours'`, `INTERVAL '2' HOUR`.
fn interval(text: &str) -> Option<i32> {
    let (keyword, rest) = text.trim().split_at_checked("interval".len())?;
    let (length, unit) = rest.trim_start().strip_prefix('\'')?.split_once('\'')?;
    if !keyword.eq_ignore_ascii_case("interval") {
        return None;
    }
    match unit.trim().to_ascii_lowercase().as_str() {
        "" | "hour to minute" if length.contains(':') => whole_minutes(clock(length)?),
        "" => hours(length.strip_suffix(" hours").or_else(|| length.strip_suffix(" hour"))?),
        // PostgreSQL leaves a fraction out.
        "hour" => hours(length).filter(|_| !length.contains('.')),
        _ => None,
    }
}

/// The minutes east of Greenwich of a zone of POSIX that has no summer time: `GMT-2`, `<+02>-02`, `-02:00`.
fn posix(text: &str) -> Option<i32> {
    let offset = match text.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => text.trim_start_matches(|char: char| char.is_ascii_alphabetic()),
    };
    whole_minutes(-clock(offset)?)
}

fn in_posix(east: i32) -> String {
    let minutes = east.unsigned_abs();
    let offset = match minutes % 60 {
        0 => format!("{:02}", minutes / 60),
        rest => format!("{:02}:{rest:02}", minutes / 60),
    };
    if east < 0 { format!("<-{offset}>+{offset}") } else { format!("<+{offset}>-{offset}") }
}

/// The seconds of `2`, `+02:00` or `-02:00:00`.
fn clock(text: &str) -> Option<i64> {
    let (sign, digits): (i64, &str) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = |part: &str| {
        let is_number = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i64>().ok().filter(|_| is_number)
    };
    match *digits.split(':').map(number).collect::<Option<Vec<i64>>>()?.as_slice() {
        [hours] => Some(sign * hours * 3_600),
        [hours, minutes @ 0..60] => Some(sign * (hours * 3_600 + minutes * 60)),
        [hours, minutes @ 0..60, seconds @ 0..60] => Some(sign * (hours * 3_600 + minutes * 60 + seconds)),
        _ => None,
    }
}

/// Arrow knows no offsets but whole minutes, less than a day from UTC.
fn whole_minutes(seconds: i64) -> Option<i32> {
    let is_known = seconds % 60 == 0 && seconds.unsigned_abs() < DAY_SECONDS;
    i32::try_from(seconds / 60).ok().filter(|_| is_known)
}

#[cfg(test)]
mod tests;
