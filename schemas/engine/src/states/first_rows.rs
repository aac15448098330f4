//! A hash index of where the rows of each key begin among sorted rows. A binary search compares some ten to twenty keys
//! that lie far apart; the index finds a key, or that there is none, at one place.
//!
//! Most rows are searched too few times to be worth an index. It is built once the searches have cost as much as
//! building it does, or before the first search, so that none has to wait for it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use arrow::array::BinaryArray;
use hashbrown::{DefaultHashBuilder, HashTable};

use types::Result;

/// Adding a row to the index takes about a quarter of a binary search.
const ROWS_PER_SEARCH: usize = 4;

/// The same for all indices of the process, so that a key that is searched for in many layers is hashed once.
static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// A key, or the beginning of keys, that sorted rows are searched for.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'k> {
    bytes: &'k [u8],
    hash: u64,
}

impl<'k> Probe<'k> {
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

#[derive(Debug)]
pub(super) struct Built {
    rows: HashTable<u32>,
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

    /// Counts searches among this many rows. Returns true once: when they make the index worth its cost.
    pub(super) fn is_due(&self, rows: usize, searches: usize) -> bool {
        let before = self.searches.fetch_add(searches, Ordering::Relaxed);
        let enough = rows.div_ceil(ROWS_PER_SEARCH);
        (before..before + searches).contains(&enough.wrapping_sub(1))
    }

    /// Builds the index; other threads use binary search meanwhile. Without entries there is never one.
    pub(super) fn build(&self, keys: &BinaryArray, entries: Result<Vec<IndexedRow>>) -> Option<&Built> {
        let entries = entries.ok()?;
        Some(self.built.get_or_init(|| Built::new(keys, &entries)))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.built.get().map_or(0, |built| built.rows.allocation_size())
    }
}

impl Built {
    fn new(keys: &BinaryArray, entries: &[IndexedRow]) -> Self {
        let mut rows = HashTable::with_capacity(entries.len());
        for IndexedRow { row, length } in entries {
            // The table has room for all of them, so that none is hashed again.
            rows.insert_unique(HASHER.hash_one(&keys.value(*row as usize)[..*length]), *row, |_| 0);
        }
        Self { rows }
    }

    /// The first row whose key is, or begins with, the probe.
    pub(super) fn find(&self, keys: &BinaryArray, probe: Probe<'_>) -> Option<usize> {
        let found = self.rows.find(probe.hash, |row| keys.value(*row as usize).starts_with(probe.bytes));
        found.map(|row| *row as usize)
    }
}

#[cfg(test)]
mod tests;
