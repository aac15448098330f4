//! The keys of a view whose rows are asked for.

use std::collections::HashSet;

/// What a key costs in memory beside its bytes.
const KEY_BYTES: usize = 48;

/// Keys of a view, encoded.
#[derive(Debug, Default)]
pub(crate) struct WantedKeys(HashSet<Box<[u8]>>);

impl WantedKeys {
    /// Adds a key. Returns the bytes that it takes in memory: none if it is there already.
    pub(crate) fn add(&mut self, key: &[u8]) -> usize {
        if self.0.contains(key) {
            return 0;
        }
        self.0.insert(key.into());
        key.len() + KEY_BYTES
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(key)
    }
}
