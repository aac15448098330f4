//! The time of this process.

use std::sync::Arc;

use types::tiles::{Clock, Micros};

/// Returns the wall clock, in microseconds since 1970.
pub fn now() -> Micros {
    chrono::Utc::now().timestamp_micros()
}

/// [`now`] in the form that the layers take.
pub fn clock() -> Clock {
    Arc::new(now)
}
