//! A hash index of where the rows of each key begin among sorted rows. A binary search compares some ten to twenty keys
//! that lie far apart; the index finds a key, or that there is none, at one place.
//!
//! Most rows are searched too few times to be worth an index. It is built when the searches have cost as much as
//! building it would, or before the first search, so that no search has to wait for it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use arrow::array::BinaryArray;
use hashbrown::DefaultHashBuilder;

use types::Result;

/// Adding a row to the index takes about a quarter of a binary search.
const ROWS_PER_SEARCH: usize = 4;

/// Probes that are looked up together: more than the processor waits for at a time, and few enough that what they read
/// stays in its cache.
const TOGETHER: usize = 32;
/// Marks an empty slot. No row has this index, because keys have offsets of 31 bits.
const NO_ROW: u32 = u32::MAX;

/// The hash function of all indices of the process, so that a key that is searched for in many layers is hashed once.
static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// A key, or a prefix of keys, for which sorted rows are searched.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'k> {
    bytes: &'k [u8],
    hash: u64,
}

impl<'k> Probe<'k> {
    /// Hashes the bytes once, for all searches.
    pub fn new(bytes: &'k [u8]) -> Self {
        Self { bytes, hash: HASHER.hash_one(bytes) }
    }

    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
}

/// The index of some rows, built once it is worth its cost.
#[derive(Debug, Default)]
pub(super) struct FirstRows {
    searches: AtomicUsize,
    built: OnceLock<Built>,
}

/// A hash table with open addressing. It is our own because the libraries' tables look up one key at a time, and each
/// lookup waits for memory several times.
#[derive(Debug)]
pub(super) struct Built {
    /// The number of slots is a power of two, and at most two thirds of them have a row.
    slots: Box<[HashSlot]>,
}

/// A row and part of the hash of its key. A probe with another hash is not compared with the key, which would have to
/// be read from memory.
#[derive(Debug, Clone, Copy)]
struct HashSlot {
    tag: u32,
    row: u32,
}

/// A row to be found.
pub(super) struct IndexedRow {
    pub(super) row: u32,
    /// The length of the part of its key by which it is found.
    pub(super) length: usize,
}

impl FirstRows {
    pub(super) fn get(&self) -> Option<&Built> {
        self.built.get()
    }

    /// Counts searches among this many rows. Returns true only once: when they have made the index worth its cost.
    pub(super) fn is_due(&self, rows: usize, searches: usize) -> bool {
        let before = self.searches.fetch_add(searches, Ordering::Relaxed);
        let enough = rows.div_ceil(ROWS_PER_SEARCH);
        (before..before + searches).contains(&enough.wrapping_sub(1))
    }

    /// Builds the index; other threads use binary search meanwhile. Without entries none is built.
    pub(super) fn build(&self, keys: &BinaryArray, entries: Result<Vec<IndexedRow>>) -> Option<&Built> {
        let entries = entries.ok()?;
        Some(self.built.get_or_init(|| Built::new(keys, &entries)))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.built.get().map_or(0, |built| std::mem::size_of_val(&*built.slots))
    }
}

impl Built {
    fn new(keys: &BinaryArray, entries: &[IndexedRow]) -> Self {
        let slots = vec![HashSlot { tag: 0, row: NO_ROW }; (entries.len() * 3).div_ceil(2).next_power_of_two()];
        let mut built = Self { slots: slots.into() };
        for IndexedRow { row, length } in entries {
            let hash = HASHER.hash_one(&keys.value(*row as usize)[..*length]);
            let mut at = built.home(hash);
            while built.slots[at].row != NO_ROW {
                at = built.after(at);
            }
            built.slots[at] = HashSlot { tag: tag(hash), row: *row };
        }
        built
    }

    /// The first row whose key is, or begins with, the probe.
    pub(super) fn find(&self, keys: &BinaryArray, probe: Probe<'_>) -> Option<usize> {
        self.find_from(self.home(probe.hash), keys, probe)
    }

    /// The same for each of these probes. Each step of the lookup reads memory for many probes before the next step
    /// begins, so that the processor waits for all of them at once.
    pub(super) fn find_all(&self, keys: &BinaryArray, probes: &[Probe<'_>]) -> Vec<Option<usize>> {
        let mut found = Vec::with_capacity(probes.len());
        let (offsets, bytes) = (keys.value_offsets(), keys.value_data());
        for probes in probes.chunks(TOGETHER) {
            read_ahead(probes.iter().map(|probe| self.slots[self.home(probe.hash)].row));
            let mut first = [0; TOGETHER];
            for (first, probe) in first.iter_mut().zip(probes) {
                *first = self.same_tag_from(self.home(probe.hash), probe.hash);
            }
            let first = &first[..probes.len()];
            let offset = |at: &usize| offsets.get(self.slots[*at].row as usize).copied().unwrap_or_default();
            read_ahead(first.iter().map(|at| offset(at) as u32));
            read_ahead(first.iter().map(|at| bytes.get(offset(at) as usize).copied().unwrap_or_default().into()));
            found.extend(probes.iter().zip(first).map(|(probe, at)| self.find_from(*at, keys, *probe)));
        }
        found
    }

    fn find_from(&self, mut at: usize, keys: &BinaryArray, probe: Probe<'_>) -> Option<usize> {
        loop {
            at = self.same_tag_from(at, probe.hash);
            let row = self.slots[at].row;
            if row == NO_ROW {
                return None;
            }
            if keys.value(row as usize).starts_with(probe.bytes) {
                return Some(row as usize);
            }
            at = self.after(at);
        }
    }

    /// The first slot, from this one on, with the tag of this hash. An empty one if there is none.
    fn same_tag_from(&self, mut at: usize, hash: u64) -> usize {
        while self.slots[at].row != NO_ROW && self.slots[at].tag != tag(hash) {
            at = self.after(at);
        }
        at
    }

    /// The slot in which a search begins.
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

/// The half of a hash that does not determine where a search begins.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Reads values that are needed soon. None of them depends on another, so the processor waits for all of them together.
fn read_ahead(values: impl Iterator<Item = u32>) {
    std::hint::black_box(values.fold(0, |all, value| all ^ value));
}

#[cfg(test)]
mod tests;
