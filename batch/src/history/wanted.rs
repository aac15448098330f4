//! The keys of a view whose rows are asked for.

use std::collections::HashSet;

/// The memory of a key in addition to its bytes.
const KEY_BYTES: usize = 48;

/// Keys of a view, encoded.
#[derive(Debug, Default)]
pub(crate) struct WantedKeys(HashSet<Box<[u8]>>);

impl WantedKeys {
    /// Adds a key. Returns the bytes of memory that it adds: 0 if it was added before.
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
