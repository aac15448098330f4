//! Reads from a batch run's log how long each of its steps took.

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// A step of a run: its name, and the log message at its end.
pub type Step = (&'static str, &'static str);

const BEGINNING: &str = "run begins";

/// Seconds of each step.
pub type Parts = Vec<f64>;

#[derive(Deserialize)]
struct Line {
    timestamp: DateTime<Utc>,
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
}

/// Parses the log, one JSON object a line. `None` if a step is missing.
pub(super) fn from_log(log: &str, steps: &[Step]) -> Option<Parts> {
    let lines: Vec<Line> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = |message: &str| lines.iter().rev().find(|line| line.fields.message == message).map(|line| line.timestamp);
    let mut before = at(BEGINNING)?;
    let part = |(_, message): &Step| {
        let end = at(message)?;
        let lasted = end - std::mem::replace(&mut before, end);
        Some(lasted.num_microseconds().unwrap_or_default() as f64 / 1e6)
    };
    steps.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_reported_by_the_log() {
        let line = |seconds: u32, message: &str| {
            format!(
                r#"{{"timestamp":"2026-03-01T00:00:{seconds:02}.5Z","level":"INFO","fields":{{"message":"{message}","rows":3}},"target":"batch"}}"#
            )
        };
        let steps = [("edges", "the states are written"), ("join", "the join is written"), ("publishing", "run published")];
        let log = [line(1, "run begins"), line(4, "the states are written"), line(9, "the join is written"), line(10, "run published")];
        assert_eq!(from_log(&log.join("\n"), &steps), Some(vec![3.0, 5.0, 1.0]));
        assert_eq!(from_log(&log[..3].join("\n"), &steps), None);
    }
}
