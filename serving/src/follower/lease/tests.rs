use std::collections::BTreeMap;

use super::*;

fn loaded(vector: &str) -> Arc<Loaded> {
    let vector = vector.parse().unwrap();
    Arc::new(Loaded {
        state: Arc::default(),
        registry: Arc::default(),
        vector,
        views: BTreeMap::new(),
        building: BTreeMap::new(),
        failed: BTreeMap::new(),
    })
}

/// What a query reads that began before an archive file was replaced may be in that file.
#[test]
fn a_query_that_reads_a_replaced_state_for_long_keeps_everything() {
    let (now, before, present) = (Instant::now(), loaded("s/0:4"), loaded("s/0:9"));
    let state = |loaded: &Arc<Loaded>, replaced_at| InUse { loaded: Arc::downgrade(loaded), replaced_at };
    let in_use = [state(&before, Some(now)), state(&present, None)];
    assert_eq!(oldest_of(&in_use, None, now + LONG).map(|vector| vector.to_string()), Some("s/0:4".into()));
    assert_eq!(oldest_of(&in_use, None, now + LONG + Duration::from_secs(1)), Some(Vector::new()));
    assert_eq!(oldest_of(&in_use[1..], None, now + 2 * LONG).map(|vector| vector.to_string()), Some("s/0:9".into()));
    assert_eq!(oldest_of(&[], None, now), None);
}

/// The snapshot of a version that was retired since may be among what it reads.
#[test]
fn a_node_that_is_behind_the_catalog_for_long_keeps_everything() {
    let (now, present) = (Instant::now(), loaded("s/0:9"));
    let in_use = [InUse { loaded: Arc::downgrade(&present), replaced_at: None }];
    assert_eq!(oldest_of(&in_use, Some(now), now + LONG).map(|vector| vector.to_string()), Some("s/0:9".into()));
    assert_eq!(oldest_of(&in_use, Some(now), now + LONG + Duration::from_secs(1)), Some(Vector::new()));
}
