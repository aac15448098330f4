use std::sync::Arc;

use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use proptest::prelude::*;

use super::*;

const LIMIT: Limit = Limit { bytes: 4_096, entries: 10 };

/// Of values: most fit, some do not fit even alone.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..1_500, 1 => 4_000usize..5_000]
}

proptest! {
    /// What was used last is kept, and nothing but that. For what never fits, nothing else goes.
    #[test]
    fn what_is_kept_is_what_was_used_last_and_fits(steps in prop::collection::vec((0u8..20, prop::option::of(sizes())), 1..200)) {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1 << 20));
        let mut kept = RecentlyUsed::new(LIMIT, "test", &pool);
        // The newest last, each with its size.
        let mut expected: Vec<(u8, usize)> = Vec::new();
        for (key, bytes) in steps {
            let known = expected.iter().position(|(known, _)| *known == key);
            match bytes {
                None => {
                    prop_assert_eq!(kept.get(&key), known.map(|_| key));
                    known.map(|at| expected.remove(at)).into_iter().for_each(|used| expected.push(used));
                }
                Some(bytes) => {
                    known.map(|at| expected.remove(at));
                    drop(kept.put(key, key, bytes));
                    let bytes = bytes + size_of::<(u8, Entry<u8>)>();
                    if bytes <= LIMIT.bytes {
                        expected.push((key, bytes));
                    }
                    while expected.len() > LIMIT.entries || expected.iter().map(|(_, bytes)| bytes).sum::<usize>() > LIMIT.bytes {
                        expected.remove(0);
                    }
                }
            }
            let bytes: usize = expected.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!((kept.len(), kept.bytes(), pool.reserved()), (expected.len(), bytes, bytes));
            let keys: Vec<u8> = kept.by_use.values().copied().collect();
            prop_assert_eq!(keys, expected.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        }
    }
}
