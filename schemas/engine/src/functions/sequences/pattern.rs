//! The pattern language of `sequence_match` and `sequence_count`, which is ClickHouse's, and one form more.
//!
//! ```text
//! pattern  = part, {part}
//! part     = "(?" condition ")"                  an event for which the condition holds
//!          | "(?" condition time ")"             the same, and it is the time of the event before it away from it
//!          | "."                                 any event
//!          | ".*"                                any number of any events
//!          | "(?" time ")"                       what follows is this far from what is before; any events may lie between
//! time     = "t", ("<=" | "<" | ">=" | ">" | "=="), seconds
//! ```

use datafusion::common::{Result, plan_err};

use super::MAX_CONDITIONS;

/// The most parts of a pattern.
const MAX_PARTS: usize = 256;
const MICROS: i64 = 1_000_000;

/// A pattern, without the `.*` that each begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) parts: Vec<PatternPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// An event with these bits in its mask; no bits are any event. The distance is from the event before.
    One {
        mask: u32,
        distance: Option<Distance>,
    },
    AnyNumber,
    Time(Distance),
}

/// A condition on the time between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distance {
    pub(super) comparison: TimeComparison,
    pub(super) micros: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeComparison {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
}

impl Distance {
    pub(super) fn holds(self, from: i64, to: i64) -> bool {
        let apart = i128::from(to) - i128::from(from);
        let wanted = i128::from(self.micros);
        match self.comparison {
            TimeComparison::LessOrEqual => apart <= wanted,
            TimeComparison::Less => apart < wanted,
            TimeComparison::GreaterOrEqual => apart >= wanted,
            TimeComparison::Greater => apart > wanted,
            TimeComparison::Equal => apart == wanted,
        }
    }
}

impl Pattern {
    /// Parses the pattern of a call that has this many conditions.
    pub(super) fn parse(function: &str, text: &str, conditions: usize) -> Result<Self> {
        let mut reader = PatternReader { function, text, at: 0, conditions };
        let mut parts = Vec::new();
        while reader.at < text.len() {
            let part = reader.part(parts.last())?;
            if parts.len() == MAX_PARTS {
                return reader.refuse("more parts", &format!("at most {MAX_PARTS} parts"));
            }
            parts.push(part);
        }
        if !parts.iter().any(|part| matches!(part, PatternPart::One { .. })) {
            return reader.refuse("no event", &format!("a pattern with at least one of {}", reader.events()));
        }
        Ok(Self { parts })
    }
}

struct PatternReader<'t> {
    function: &'t str,
    text: &'t str,
    /// How many bytes were read.
    at: usize,
    conditions: usize,
}

impl PatternReader<'_> {
    fn part(&mut self, before: Option<&PatternPart>) -> Result<PatternPart> {
        let start = self.at;
        if self.takes(".*") {
            return Ok(PatternPart::AnyNumber);
        }
        if self.takes(".") {
            return Ok(PatternPart::One { mask: 0, distance: None });
        }
        if !self.takes("(?") {
            return self.refuse_here(&format!("{}, (?t<=600), '.' or '.*'", self.events()));
        }
        let part = match self.takes("t") {
            true => PatternPart::Time(self.distance()?),
            false => {
                let mask = self.condition()?;
                let distance = if self.takes("t") { Some(self.distance()?) } else { None };
                PatternPart::One { mask, distance }
            }
        };
        if !self.takes(")") {
            return self.refuse_here("')'");
        }
        match (part, before) {
            (PatternPart::Time(_), Some(PatternPart::Time(_))) => {
                self.at = start;
                self.refuse_here("an event between two times, such as (?1)")
            }
            (PatternPart::One { distance: Some(_), .. }, Some(PatternPart::AnyNumber | PatternPart::Time(_)) | None) => {
                self.at = start;
                self.refuse_here(&format!("it directly after an event, such as (?1){}", &self.text[start..]))
            }
            _ => Ok(part),
        }
    }

    fn condition(&mut self) -> Result<u32> {
        let start = self.at;
        match self.number() {
            Some(number) if (1..=self.conditions as u64).contains(&number) => Ok(1 << (number - 1)),
            _ => {
                self.at = start;
                let count = self.conditions;
                let conditions =
                    if count == 1 { "the one condition of the call, 1".into() } else { format!("a condition from 1 to {count}") };
                self.refuse_here(&format!("{conditions}, or a time such as t<=600"))
            }
        }
    }

    fn distance(&mut self) -> Result<Distance> {
        use TimeComparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let comparisons = [("<=", LessOrEqual), ("<", Less), (">=", GreaterOrEqual), (">", Greater), ("==", Equal)];
        let Some((_, comparison)) = comparisons.into_iter().find(|(text, _)| self.takes(text)) else {
            return self.refuse_here("one of <=, <, >=, > and ==");
        };
        let start = self.at;
        match self.number().and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(MICROS)) {
            Some(micros) => Ok(Distance { comparison, micros }),
            None => {
                self.at = start;
                self.refuse_here(&format!("whole seconds, at most {}", i64::MAX / MICROS))
            }
        }
    }

    /// The digits that are next, if they are a number.
    fn number(&mut self) -> Option<u64> {
        let rest = &self.text[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest[..digits].parse().ok()?;
        self.at += digits;
        Some(number)
    }

    fn takes(&mut self, text: &str) -> bool {
        let takes = self.text[self.at..].starts_with(text);
        self.at += if takes { text.len() } else { 0 };
        takes
    }

    fn events(&self) -> String {
        if self.conditions == 1 { "(?1)".into() } else { format!("(?1) to (?{})", self.conditions.min(MAX_CONDITIONS)) }
    }

    fn refuse_here<T>(&self, expected: &str) -> Result<T> {
        let rest: String = self.text[self.at..].chars().take(12).collect();
        let found = if rest.is_empty() { "its end".to_owned() } else { format!("'{rest}'") };
        self.refuse(&found, expected)
    }

    fn refuse<T>(&self, found: &str, expected: &str) -> Result<T> {
        let Self { function, text, at, .. } = self;
        let character = text[..*at].chars().count() + 1;
        plan_err!("the pattern '{text}' of {function} has {found} at character {character}: expected {expected}")
    }
}

#[cfg(test)]
mod tests;
