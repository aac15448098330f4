//! How old the events of a stream's archive are.

use definitions::durations::format_duration_parts;
use serde::Serialize;
use types::files::FileRecord;
use types::tiles::{Micros, micros};

use super::Usage;
use super::what_if::{DAY, RETENTIONS_DAYS};

/// The archive files of a stream whose newest event is of one age.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgeUsage {
    /// At most this old, and older than the age before; null: older than all of these.
    pub up_to: Option<String>,
    #[serde(flatten)]
    pub usage: Usage,
}

/// Returns what there is of each age at the time `now`, the youngest first. Ages without a file are left out.
pub(super) fn by_age(archive: &[&FileRecord], now: Micros) -> Vec<AgeUsage> {
    let age = |file: &FileRecord| file.max_event_time.map_or(0, |newest| now.saturating_sub(newest));
    let mut ages = Vec::new();
    let mut above = Micros::MIN;
    for up_to in RETENTIONS_DAYS.map(|days| Some(DAY * days)).into_iter().chain([None]) {
        let most = up_to.map_or(Micros::MAX, micros);
        let usage = Usage::sum(archive.iter().copied().filter(|file| age(file) > above && age(file) <= most));
        if usage.files > 0 {
            ages.push(AgeUsage { up_to: up_to.map(format_duration_parts), usage });
        }
        above = most;
    }
    ages
}
