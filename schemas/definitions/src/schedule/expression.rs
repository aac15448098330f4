//! Reads a Unix cron expression field by field, and passes it to the cron crate as plain lists of numbers.
//!
//! The crate's own rules differ from Unix (Sunday is 1, seconds come first, both day fields must match), so it gets
//! only lists and `*`.

use std::collections::BTreeSet;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use types::{Error, Result};

/// A cron expression that finds its next match on a clock that never changes.
#[derive(Debug)]
pub(super) struct CronExpression {
    /// One schedule, or two when day of month *or* weekday is to match.
    alternatives: Vec<cron::Schedule>,
    /// True when the hour field covers all 24 hours.
    pub(super) every_hour: bool,
}

/// The values that one field may hold.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names of the values, starting at `min`.
    names: &'static [&'static str],
}

const FIELDS: [Field; 6] = [
    Field { name: "second", min: 0, max: 59, names: &[] },
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of month", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    Field { name: "weekday", min: 0, max: 7, names: &WEEKDAYS },
];
const WEEKDAY: usize = 5;
const MONTHS: [&str; 12] =
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"];
const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl CronExpression {
    pub(super) fn parse(text: &str) -> Result<CronExpression> {
        let wrong = |problem: String| Error::input(format!("the cron expression '{text}' {problem}"));
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        if words.len() == 5 {
            words.insert(0, "0");
        }
        if words.len() != FIELDS.len() {
            let found = words.len();
            return Err(wrong(format!(
                "has {found} fields; expected five (minute, hour, day of month, month, weekday) or six with seconds in front"
            )));
        }
        let mut values = Vec::with_capacity(FIELDS.len());
        for (field, word) in FIELDS.iter().zip(&words) {
            values.push(field.parse(word).map_err(wrong)?);
        }
        if values[WEEKDAY].remove(&7) {
            values[WEEKDAY].insert(0);
        }
        let every_hour = values[2].len() == 24;
        let either_day = is_restricted(words[3]) && is_restricted(words[WEEKDAY]);
        let lists = crate_lists(&values);
        let [second, minute, hour, day, month, weekday] = &lists;
        let expressions = match either_day {
            true => vec![format!("{second} {minute} {hour} {day} {month} *"), format!("{second} {minute} {hour} * {month} {weekday}")],
            false => vec![lists.join(" ")],
        };
        let alternatives = expressions
            .iter()
            .map(|expression| cron::Schedule::from_str(expression).map_err(|e| wrong(format!("is not understood: {e}"))))
            .collect::<Result<_>>()?;
        Ok(CronExpression { alternatives, every_hour })
    }

    /// Returns the first match after `after` (seconds since 1970), on a clock without zone or changes.
    pub(super) fn next_after(&self, after: i64) -> Option<i64> {
        let after: DateTime<Utc> = DateTime::from_timestamp(after, 0)?;
        self.alternatives.iter().filter_map(|alternative| alternative.after(&after).next()).map(|next| next.timestamp()).min()
    }
}

/// Writes each field for the cron crate: `*` or a list, with weekdays from Sunday = 1.
fn crate_lists(values: &[BTreeSet<u32>]) -> [String; 6] {
    std::array::from_fn(|i| {
        let is_weekday = i == WEEKDAY;
        let all = if is_weekday { 7 } else { FIELDS[i].max - FIELDS[i].min + 1 };
        if values[i].len() == all as usize {
            return "*".to_owned();
        }
        let shift = u32::from(is_weekday);
        values[i].iter().map(|value| (value + shift).to_string()).collect::<Vec<_>>().join(",")
    })
}

/// Whether a day field restricts the days: by cron(5), one that begins with `*` does not, whatever its step.
fn is_restricted(word: &str) -> bool {
    !word.starts_with(['*', '?'])
}

impl Field {
    fn parse(&self, word: &str) -> Result<BTreeSet<u32>, String> {
        let mut values = BTreeSet::new();
        for item in word.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(self.step(item, step)?)),
                None => (item, None),
            };
            let (first, last) = self.range(range, step.is_some())?;
            values.extend((first..=last).step_by(step.unwrap_or(1)));
        }
        Ok(values)
    }

    /// Returns the bounds of `*`, `a-b` or `a` (with a step, `a` runs to the end).
    fn range(&self, range: &str, has_step: bool) -> Result<(u32, u32), String> {
        let is_weekday = self.max == 7;
        let end = if is_weekday { 6 } else { self.max };
        let is_day = is_weekday || self.max == 31;
        if range == "*" || (range == "?" && is_day) {
            return Ok((self.min, end));
        }
        let Some((first, last)) = range.split_once('-') else {
            let value = self.value(range)?;
            return Ok((value, if has_step { end.max(value) } else { value }));
        };
        let (first, mut last) = (self.value(first)?, self.value(last)?);
        if is_weekday && last == 0 && first > 0 {
            last = 7; // `fri-sun` ends on the Sunday after
        }
        if first > last {
            return Err(format!(
                "has the range '{range}' in {}, which goes backwards; expected the smaller value first, or a list",
                self.name
            ));
        }
        Ok((first, last))
    }

    fn value(&self, word: &str) -> Result<u32, String> {
        let expected = format!("expected {} to {}{}", self.min, self.max, self.expected_names());
        if !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) {
            let value = word.parse().ok().filter(|value| (self.min..=self.max).contains(value));
            return value.ok_or_else(|| format!("has the {} '{word}'; {expected}", self.name));
        }
        let lower = word.to_ascii_lowercase();
        let named = self.names.iter().position(|name| lower == **name || (lower.len() == 3 && name.starts_with(&lower)));
        match named {
            Some(position) => Ok(position as u32 + self.min),
            None => Err(format!("has the {} '{word}'; {expected}", self.name)),
        }
    }

    fn step(&self, item: &str, step: &str) -> Result<usize, String> {
        let step = step.parse().ok().filter(|step| (1..=self.max as usize).contains(step));
        step.ok_or_else(|| format!("has the step '{item}' in {}; expected a step of 1 to {}", self.name, self.max))
    }

    fn expected_names(&self) -> String {
        match self.names {
            [first, .., last] => format!(" or {} to {}", &first[..3], &last[..3]),
            _ => String::new(),
        }
    }
}
