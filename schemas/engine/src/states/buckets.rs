//! The hash bucket of a key in a snapshot.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

/// Returns the bucket, out of `count`, for a key's bytes. Snapshots on disk depend on this function: it never changes.
pub fn bucket_of(key: &[u8], count: u32) -> u32 {
    bucket_of_hash(bucket_hash(key), count)
}

/// Returns the hash that determines a key's bucket.
pub(crate) fn bucket_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

pub(crate) fn bucket_of_hash(hash: u64, count: u32) -> u32 {
    (hash % u64::from(count.max(1))) as u32
}

/// Returns the buckets, out of `count`, that may hold the keys of one of `parts` parts: those that hash to it.
pub fn buckets_of_part(part: u32, parts: u32, count: u32) -> Range<u32> {
    // Hashes are taken modulo the count, so a part's keys are in one bucket if the count divides the parts.
    if parts.is_multiple_of(count) { part % count..part % count + 1 } else { 0..count }
}

#[cfg(test)]
mod tests;
