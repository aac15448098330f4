//! Values that are kept within a bound, as far as queries leave the memory for them. Those that were used longest ago
//! go first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// Values by their keys.
pub(crate) struct RecentlyUsed<K, V> {
    limit: Limit,
    entries: HashMap<K, Entry<V>>,
    /// The keys by when they were last used.
    by_use: BTreeMap<u64, K>,
    uses: u64,
    bytes: usize,
    reservation: MemoryReservation,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> RecentlyUsed<K, V> {
    /// What is kept counts as memory of `consumer`.
    pub(crate) fn new(limit: Limit, consumer: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(consumer).register(pool);
        Self { limit, entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0, reservation }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        if entry.used < self.uses {
            self.by_use.remove(&entry.used);
            self.uses += 1;
            entry.used = self.uses;
            self.by_use.insert(self.uses, key.clone());
        }
        Some(entry.value.clone())
    }

    /// Keeps a value of this size, as far as there is room. Returns what goes for it, to be freed where nobody waits.
    #[must_use]
    pub(crate) fn put(&mut self, key: K, value: V, bytes: usize) -> Vec<V> {
        let mut gone = Vec::from_iter(self.remove(&key));
        let bytes = bytes + size_of::<(K, Entry<V>)>();
        if bytes > self.limit.bytes {
            // All others would go for it, and then it would go itself.
            self.reservation.resize(self.bytes);
            gone.push(value);
            return gone;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, Entry { value, bytes, used: self.uses });
        while !self.has_room() {
            match self.by_use.pop_first() {
                Some((_, oldest)) => gone.extend(self.remove(&oldest)),
                None => break,
            }
        }
        gone
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn has_room(&mut self) -> bool {
        self.bytes <= self.limit.bytes && self.entries.len() <= self.limit.entries && self.reservation.try_resize(self.bytes).is_ok()
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests;
