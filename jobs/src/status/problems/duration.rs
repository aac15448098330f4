//! How long something lasts, as a problem shows it.

use types::tiles::Micros;

/// Formats a duration for display: `4 min`, `3 h`.
pub(super) fn for_time(us: Micros) -> String {
    let seconds = us.max(0) / 1_000_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
