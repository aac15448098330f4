//! Reports slow statements, in short: where one is slow, all are, and their texts are long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

/// A statement that takes this long is reported.
const SLOW: Duration = Duration::from_secs(1);
/// The time in which one is reported at most.
const REPORTED_EVERY: Duration = Duration::from_secs(60);
/// How much of a statement is shown.
const SHOWN_CHARS: usize = 60;

static REPORTED_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// Takes note of a statement that began then and has just ended.
pub(super) fn note(sql: &str, began: Instant) {
    let took = began.elapsed();
    if took >= SLOW && is_due(&mut REPORTED_AT.lock().unwrap_or_else(PoisonError::into_inner), Instant::now()) {
        let seconds = format!("{:.1}", took.as_secs_f64());
        warn!(seconds, statement = beginning(sql), "the catalog's database is slow: other slow statements of this minute are not reported");
    }
}

fn is_due(reported_at: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = reported_at.is_none_or(|at| now.saturating_duration_since(at) >= REPORTED_EVERY);
    if is_due {
        *reported_at = Some(now);
    }
    is_due
}

/// Returns the first words of a statement, on one line.
fn beginning(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{} ..", line[..end].trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_statement_a_minute_is_reported() {
        let (mut reported_at, began) = (None, Instant::now());
        let due = [0, 1, 59, 60, 61, 119, 120].map(|seconds| is_due(&mut reported_at, began + Duration::from_secs(seconds)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn a_statement_is_shown_by_its_first_words_on_one_line() {
        assert_eq!(beginning("SELECT\n   1"), "SELECT 1");
        let long = format!("UPDATE é{}\n SET {}", "x".repeat(50), "y".repeat(1_000));
        assert_eq!(beginning(&long), format!("UPDATE é{} S ..", "x".repeat(50)));
        assert_eq!(beginning(""), "");
    }
}
