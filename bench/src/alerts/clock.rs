//! The time of events and of reads.

use types::tiles::Micros;

pub(super) fn now() -> Micros {
    chrono::Utc::now().timestamp_micros()
}
