//! Where the rows of each key begin among sorted rows, by hash. A search by halves compares some ten to twenty keys that
//! lie far apart; a hash finds a key, or finds that there is none, at one place.
//!
//! Most rows are searched too few times to be worth an index: it is built once the searches have cost as much as
//! building it does.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, BinaryArray};
use hashbrown::{DefaultHashBuilder, HashTable};

use types::Result;

/// Entering a row takes about a quarter of a search by halves.
const ROWS_PER_SEARCH: usize = 4;

/// The index of some rows, once it is worth its cost.
#[derive(Debug, Default)]
pub(super) struct FirstRows {
    searches: AtomicUsize,
    built: OnceLock<Built>,
}

#[derive(Debug)]
struct Built {
    rows: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// A row, and how much of its key it is found by.
pub(super) type Entry = (u32, usize);

/// What is known of a beginning of keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    Row(usize),
    /// No key begins so.
    Nowhere,
    /// There is no index: the caller searches.
    Unknown,
}

impl FirstRows {
    /// The first row whose key begins with `prefix`. `entries` are the rows to be found, each with the length of its key's
    /// beginning by which it is found. They are asked for once, by the search that makes the index worth its cost; if they
    /// cannot be told, there is never an index.
    pub(super) fn find(&self, keys: &BinaryArray, prefix: &[u8], entries: impl FnOnce() -> Result<Vec<Entry>>) -> First {
        if let Some(built) = self.built.get() {
            return built.find(keys, prefix);
        }
        // Other threads search by halves meanwhile.
        let searches = self.searches.fetch_add(1, Ordering::Relaxed) + 1;
        if searches != keys.len().div_ceil(ROWS_PER_SEARCH) {
            return First::Unknown;
        }
        match entries() {
            Ok(entries) => self.built.get_or_init(|| Built::new(keys, &entries)).find(keys, prefix),
            Err(_) => First::Unknown,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.built.get().map_or(0, |built| built.rows.allocation_size())
    }
}

impl Built {
    fn new(keys: &BinaryArray, entries: &[Entry]) -> Self {
        let hasher = DefaultHashBuilder::default();
        let hash = |(row, length): Entry| hasher.hash_one(&keys.value(row as usize)[..length]);
        let mut rows = HashTable::with_capacity(entries.len());
        for entry in entries {
            // The table has room for all of them, so that none is hashed again.
            rows.insert_unique(hash(*entry), entry.0, |_| 0);
        }
        Self { rows, hasher }
    }

    fn find(&self, keys: &BinaryArray, prefix: &[u8]) -> First {
        let found = self.rows.find(self.hasher.hash_one(prefix), |row| keys.value(*row as usize).starts_with(prefix));
        found.map_or(First::Nowhere, |row| First::Row(*row as usize))
    }
}

#[cfg(test)]
mod tests;
