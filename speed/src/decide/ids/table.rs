//! Ids in memory, each with its latest timestamp.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use types::tiles::Micros;

use super::Id;
use super::block::Entry;

/// Bytes of one bucket: an id, its timestamp, a control byte.
pub(super) const BUCKET_BYTES: usize = 25;

#[derive(Debug)]
pub(super) struct Table {
    latest: HashMap<Id, Micros, BuildHasherDefault<Uniform>>,
    /// The partition's newest timestamp when the first id was added.
    begun: Micros,
    newest: Micros,
}

impl Default for Table {
    fn default() -> Self {
        Self { latest: HashMap::default(), begun: Micros::MAX, newest: Micros::MIN }
    }
}

impl Table {
    pub(super) fn get(&self, id: Id) -> Option<Micros> {
        self.latest.get(&id).copied()
    }

    /// Inserts an id. `partition_newest` is the partition's newest timestamp, including this one.
    pub(super) fn insert(&mut self, id: Id, timestamp: Micros, partition_newest: Micros) {
        self.begun = self.begun.min(partition_newest);
        self.newest = self.newest.max(timestamp);
        self.latest.entry(id).and_modify(|latest| *latest = timestamp.max(*latest)).or_insert(timestamp);
    }

    pub(super) fn begun(&self) -> Micros {
        self.begun
    }

    pub(super) fn newest(&self) -> Micros {
        self.newest
    }

    pub(super) fn len(&self) -> usize {
        self.latest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        buckets(self.latest.capacity()) * BUCKET_BYTES
    }

    /// True if the next id doubles its size.
    pub(super) fn grows(&self) -> bool {
        self.latest.len() == self.latest.capacity()
    }

    pub(super) fn bytes_after_growth(&self) -> usize {
        if self.grows() { buckets(self.latest.capacity() + 1) * BUCKET_BYTES } else { self.bytes() }
    }

    pub(super) fn sorted(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.latest.iter().map(|(id, timestamp)| Entry { id: *id, timestamp: *timestamp }).collect();
        entries.sort_unstable_by_key(|entry| entry.id);
        entries
    }
}

/// Returns the buckets of a table for this many entries: seven of eight are used.
fn buckets(capacity: usize) -> usize {
    match capacity {
        0 => 0,
        1..=3 => 4,
        4..=7 => 8,
        _ => (capacity * 8 / 7).next_power_of_two(),
    }
}

/// Ids are hashes already.
#[derive(Debug, Default)]
struct Uniform(u64);

impl Hasher for Uniform {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, part: u64) {
        self.0 ^= part;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
