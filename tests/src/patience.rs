//! Waiting for what must come, and failing where it does not: as [`timed_out::fail`], and never because of an answer.

use std::fmt;
use std::time::Duration;

use types::{Error, Result, timed_out};

/// Longer than anything takes that is waited for, also on a machine that is slow or stands still for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The source of the errors that [`ended`] makes.
#[derive(Debug)]
struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for TimedOut {}

/// The error of a wait in vain, where a test has to clean up or report before it fails.
pub fn ended(awaited: impl Into<String>) -> Error {
    Error::unavailable(awaited).caused_by(TimedOut)
}

/// What a test computed, or its failure.
#[track_caller]
pub fn in_time<T>(outcome: Result<T>) -> T {
    let is_timed_out = |error: &Error| std::error::Error::source(error).is_some_and(|source| source.is::<TimedOut>());
    match outcome {
        Ok(value) => value,
        Err(error) if is_timed_out(&error) => timed_out::fail(error),
        Err(error) => panic!("{error:?}"),
    }
}
