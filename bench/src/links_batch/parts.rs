//! What a batch run spent its time on, as its own log tells.

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// In seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Parts {
    pub(super) edges_s: f64,
    pub(super) join_s: f64,
    pub(super) publish_s: f64,
}

#[derive(Deserialize)]
struct Line {
    timestamp: DateTime<Utc>,
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
}

impl Parts {
    /// From the log, a JSON object a line. `None` where it does not tell.
    pub(super) fn of(log: &str) -> Option<Parts> {
        let lines: Vec<Line> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let at = |message: &str| lines.iter().rev().find(|line| line.fields.message == message).map(|line| line.timestamp);
        let (begun, edges) = (at("run begins")?, at("the states are written")?);
        let (joined, published) = (at("the join is written")?, at("run published")?);
        let between = |from: DateTime<Utc>, to: DateTime<Utc>| (to - from).num_microseconds().unwrap_or_default() as f64 / 1e6;
        Some(Parts { edges_s: between(begun, edges), join_s: between(edges, joined), publish_s: between(joined, published) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_by_the_log() {
        let line = |seconds: u32, message: &str| {
            format!(
                r#"{{"timestamp":"2026-03-01T00:00:{seconds:02}.5Z","level":"INFO","fields":{{"message":"{message}","rows":3}},"target":"batch"}}"#
            )
        };
        let log = [line(1, "run begins"), line(4, "the states are written"), line(9, "the join is written"), line(10, "run published")];
        assert_eq!(Parts::of(&log.join("\n")), Some(Parts { edges_s: 3.0, join_s: 5.0, publish_s: 1.0 }));
        assert_eq!(Parts::of(&log[..3].join("\n")), None);
    }
}
