//! Generated events. Each is a function of its stream and its number, so that every peer gets the same ones, and any
//! part of them can be generated separately.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use definitions::Definitions;
use definitions::parse::parse_definitions;
use types::tiles::Micros;
use types::{Error, Result};

/// 2026-03-01T00:00:00Z: all events are before it.
pub const END: Micros = 1_772_323_200_000_000;
pub(crate) const DAY: Micros = 86_400_000_000;

/// The events of all streams of a project.
pub trait Events: Clone + Send + Sync + 'static {
    /// The project's files, as (path, text).
    fn files(&self) -> Vec<(String, String)>;

    /// The streams' names, and how many events each has. A stream's topic has its name.
    fn streams(&self) -> Vec<(&'static str, u64)>;

    /// The time of the event with this number; it increases with the number.
    fn time(&self, stream: &str, number: u64) -> Micros;

    /// The column's values for the events with these numbers. `None` if the stream has no such column.
    fn column(&self, stream: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef>;

    /// The newest event's time: `t` of an answer by the event clock.
    fn newest(&self) -> Micros {
        let newest = |(stream, count): (&str, u64)| count.checked_sub(1).map(|number| self.time(stream, number));
        self.streams().into_iter().filter_map(newest).max().unwrap_or(END)
    }

    fn definitions(&self) -> Result<Definitions> {
        let sources: Vec<_> = self.files().into_iter().map(|(path, text)| (Some(path.into()), text)).collect();
        let (definitions, mistakes) = parse_definitions(&sources);
        mistakes.into_result()?;
        Ok(definitions)
    }
}

/// Returns a number below `of`, chosen by a hash. With a skew above 1 small numbers are more frequent.
pub(crate) fn skewed(of: u64, hash: u64, skew: f64) -> u64 {
    let unit = (hash >> 11) as f64 / (1u64 << 53) as f64;
    ((unit.powf(skew) * of as f64) as u64).min(of.saturating_sub(1))
}

/// splitmix64 (Steele, Lea and Flood 2014).
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) fn times(micros: impl IntoIterator<Item = Micros>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(micros).with_timezone("UTC"))
}

/// Returns a column that its stream must have.
pub(crate) fn column_of(events: &impl Events, stream: &str, name: &str, numbers: &[u64]) -> Result<ArrayRef> {
    let no_such = || Error::internal("a stream has a column that is not generated").with("stream", stream).with("column", name);
    events.column(stream, name, numbers).ok_or_else(no_such)
}
