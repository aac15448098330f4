//! How a range of time is written: as conditions on a column, and its lengths for people.

use std::time::Duration;

use types::tiles::TimeRange;

pub(super) fn range_text(range: &TimeRange) -> String {
    let edges = edges_text("tile", range);
    if edges.is_empty() { "all time".into() } else { edges.join(" AND ") }
}

/// Returns the edges of a range as conditions on a column.
pub(super) fn edges_text(column: &str, range: &TimeRange) -> Vec<String> {
    let from = range.window.map(|window| format!("{column} >= floor(t - {}, '{}')", length(window), range.hop));
    let to = range.until.map(|until| format!("{column} < floor(t - {}, '{}')", length(until), range.hop));
    from.into_iter().chain(to).collect()
}

/// Formats a duration for people.
pub(super) fn length(duration: Duration) -> String {
    let seconds = duration.as_secs();
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "min")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            return format!("{}{name}", seconds / unit);
        }
    }
    format!("{seconds}s")
}
