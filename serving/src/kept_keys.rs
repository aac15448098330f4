//! What was merged of hot keys, kept for their next questions ([`KeptKey`]), and one question at a time of each key
//! that is merged anew: who asks the same meanwhile waits, and takes what was merged.
//!
//! Kept states take a part of the queries' memory. Those that were used longest ago go first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::fresh::ViewVersion;
use engine::states::KeptKey;

/// At most one of this many parts of the queries' memory is for kept states.
const PART: usize = 4;

/// A key of a view version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeyName {
    pub(crate) view: ViewVersion,
    pub(crate) key: Arc<[u8]>,
}

/// The kept keys of a node.
pub(crate) struct KeptKeys {
    limit_bytes: usize,
    state: Mutex<State>,
    /// One question at a time is merged of each.
    turns: Mutex<HashMap<KeyName, Weak<tokio::sync::Mutex<()>>>>,
}

struct State {
    entries: HashMap<KeyName, Entry>,
    /// The names by when they were last used.
    by_use: BTreeMap<u64, KeyName>,
    uses: u64,
    bytes: usize,
    reservation: MemoryReservation,
}

struct Entry {
    kept: Arc<KeptKey>,
    bytes: usize,
    used: u64,
}

impl KeptKeys {
    /// With room for a part of these queries' memory.
    pub(crate) fn new(queries_limit_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new("KeptKeys").register(pool);
        let state = State { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0, reservation };
        Self { limit_bytes: queries_limit_bytes / PART, state: Mutex::new(state), turns: Mutex::default() }
    }

    /// What is kept of a key, if anything is.
    pub(crate) fn get(&self, name: &KeyName) -> Option<Arc<KeptKey>> {
        self.lock().used(name)
    }

    /// Keeps what was merged of a key, as far as there is room.
    pub(crate) fn put(&self, name: KeyName, kept: &Arc<KeptKey>) {
        if kept.memory_bytes() > self.limit_bytes {
            kept.drop_sets();
        }
        // Freed after the lock: it may take a while.
        let mut gone: Vec<Entry> = Vec::new();
        let mut state = self.lock();
        gone.extend(state.put(name, kept));
        while state.bytes > self.limit_bytes || state.reservation.try_resize(state.bytes).is_err() {
            match state.take_oldest() {
                Some(oldest) => gone.push(oldest),
                None => break,
            }
        }
        metrics::gauge!("basestream_serving_kept_bytes").set(state.bytes as f64);
    }

    /// The turn of a key: who holds it merges, in the order of asking.
    pub(crate) fn turn(&self, name: &KeyName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used(&mut self, name: &KeyName) -> Option<Arc<KeptKey>> {
        let entry = self.entries.get_mut(name)?;
        self.by_use.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(self.uses, name.clone());
        Some(entry.kept.clone())
    }

    /// Returns what it replaces.
    fn put(&mut self, name: KeyName, kept: &Arc<KeptKey>) -> Option<Entry> {
        let replaced = self.remove(&name);
        self.uses += 1;
        let bytes = kept.memory_bytes() + name.key.len() + size_of::<(KeyName, Entry)>();
        self.bytes += bytes;
        self.by_use.insert(self.uses, name.clone());
        self.entries.insert(name, Entry { kept: kept.clone(), bytes, used: self.uses });
        replaced
    }

    fn take_oldest(&mut self) -> Option<Entry> {
        let (_, name) = self.by_use.pop_first()?;
        self.remove(&name)
    }

    fn remove(&mut self, name: &KeyName) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl fmt::Debug for KeptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptKeys({} keys)", self.lock().entries.len())
    }
}

#[cfg(test)]
mod tests;
