use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer};

use super::*;

const LIMIT: usize = 64 << 10;

fn name(key: &str) -> KeyName {
    KeyName { view: ViewVersion::new("v", 1), key: key.as_bytes().into() }
}

fn keys(pool: &Arc<dyn MemoryPool>) -> KeptKeys {
    KeptKeys::new(LIMIT, pool)
}

fn pool(bytes: usize) -> Arc<dyn MemoryPool> {
    Arc::new(FairSpillPool::new(bytes))
}

/// How many keys there are, and what they take.
fn sizes(kept: &KeptKeys) -> (usize, usize) {
    let kept = kept.lock();
    (kept.len(), kept.bytes())
}

#[test]
fn what_was_used_longest_ago_goes_when_there_is_no_room() {
    let pool = pool(LIMIT);
    let kept = keys(&pool);
    let names: Vec<KeyName> = (0..1_000).map(|at| name(&format!("key {at}"))).collect();
    for at in 0..names.len() {
        kept.put(names[at].clone(), &Arc::default());
        assert!(kept.get(&names[0]).is_some(), "it was used just now");
        assert!(kept.get(&names[at]).is_some());
    }
    assert!(kept.get(&names[1]).is_none());
    let (entries, bytes) = sizes(&kept);
    assert!(entries > 1 && bytes <= LIMIT / PART);
    assert_eq!(pool.reserved(), bytes);
    drop(kept);
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn a_key_that_is_kept_again_takes_its_place() {
    let pool = pool(LIMIT);
    let kept = keys(&pool);
    for _ in 0..3 {
        kept.put(name("a"), &Arc::default());
    }
    assert_eq!(sizes(&kept).0, 1);
    assert!(kept.get(&name("b")).is_none());
    assert!(kept.get(&KeyName { view: ViewVersion::new("v", 2), ..name("a") }).is_none(), "another version");
}

#[test]
fn queries_that_take_all_memory_leave_nothing_to_keep() {
    let pool = pool(LIMIT);
    let query = MemoryConsumer::new("query").register(&pool);
    query.try_resize(LIMIT).unwrap();
    let kept = keys(&pool);
    kept.put(name("a"), &Arc::default());
    assert!(kept.get(&name("a")).is_none());
    query.try_resize(0).unwrap();
    kept.put(name("a"), &Arc::default());
    assert!(kept.get(&name("a")).is_some());
}

#[tokio::test]
async fn a_turn_is_one_askers_at_a_time_and_each_key_has_its_own() {
    let kept = keys(&pool(LIMIT));
    let first = kept.turn(&name("a")).lock_owned().await;
    assert!(kept.turn(&name("a")).try_lock_owned().is_err());
    assert!(kept.turn(&name("b")).try_lock_owned().is_ok());
    drop(first);
    assert!(kept.turn(&name("a")).try_lock_owned().is_ok());
}
