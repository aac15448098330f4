//! Decides into how many buckets a tier is divided.

use crate::layer::RunSettings;

/// Returns the number of buckets for states of this many events: a power of two, at most 256.
pub(crate) fn bucket_count(events: i64, events_per_bucket: u64) -> u32 {
    (events.max(0) as u64 / events_per_bucket.max(1) + 1).next_power_of_two().min(256) as u32
}

/// Buckets with at least this many events each are worth writing in parallel.
const PARALLEL_EVENTS: u64 = 65_536;

/// Returns the number of buckets for a tier that is added to a snapshot of this many `parts`. A delta of a tenth of a
/// snapshot has so few events that one thread would sort and write them all; so it has a bucket for each thread, but no
/// more than the snapshot has parts.
pub(crate) fn delta_bucket_count(events: i64, settings: &RunSettings, parts: u32) -> u32 {
    let in_parallel = (events.max(0) as u64 / PARALLEL_EVENTS).clamp(1, settings.thread_count() as u64).next_power_of_two();
    bucket_count(events, settings.events_per_bucket).max(parts.min(in_parallel as u32))
}
