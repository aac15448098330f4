use std::collections::BTreeMap;

use types::threads::clock_noting_threads;

use super::*;
use crate::harness::{Harness, NOW};

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

fn in_use(loaded: &Arc<Loaded>, current_at: Instant) -> InUse {
    InUse { loaded: Arc::downgrade(loaded), current_at }
}

fn text(vector: Option<Vector>) -> Option<String> {
    vector.map(|vector| vector.to_string())
}

/// What a query reads that began before an archive file was replaced may be in that file.
#[test]
fn a_query_that_reads_a_replaced_state_for_long_keeps_everything() {
    let (now, before, present) = (Instant::now(), loaded("s/0:4"), loaded("s/0:9"));
    let states = [in_use(&before, now), in_use(&present, now + LONG)];
    assert_eq!(text(oldest_of(&states, now + LONG)), Some("s/0:4".into()));
    assert_eq!(oldest_of(&states, now + LONG + Duration::from_secs(1)), Some(Vector::new()));
    assert_eq!(text(oldest_of(&states[1..], now + 2 * LONG)), Some("s/0:9".into()));
    assert_eq!(oldest_of(&[], now), None);
}

/// While the next state is loaded, or cannot be, queries read the one before, whose files may be superseded.
#[test]
fn a_state_whose_next_one_takes_long_to_load_keeps_everything() {
    let (now, present) = (Instant::now(), loaded("s/0:9"));
    let mut states = [in_use(&present, now)];
    let late = now + LONG + Duration::from_secs(1);
    note_current(&mut states, present.state.revision + 1, late);
    assert_eq!(oldest_of(&states, late), Some(Vector::new()), "the catalog is at another state");
    note_current(&mut states, present.state.revision, late);
    assert_eq!(text(oldest_of(&states, late)), Some("s/0:9".into()), "the catalog is still at this state");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_look_at_the_catalog_notes_whether_its_state_is_the_one_in_use() {
    let harness = Harness::new().await;
    let follower = harness.follower();
    follower.refresh().await.unwrap();
    let current_at = || follower.lock_in_use().iter().map(|state| state.current_at).collect::<Vec<_>>();
    let loaded_at = current_at();
    follower.check_catalog(&mut Some(harness.catalog.revision().await.unwrap())).await.unwrap();
    let looked_at = current_at();
    assert!(looked_at.len() == 1 && looked_at > loaded_at, "{loaded_at:?} {looked_at:?}");
    let moved = harness.catalog.acquire_lease("another", "owner", LONG, 0, None).await.unwrap().unwrap();
    follower.check_catalog(&mut Some(moved.epoch)).await.unwrap();
    assert_eq!(current_at(), looked_at, "the next state is not loaded yet");
}

/// Whoever renews reads the clock, which notes on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_on_served_files_is_renewed_on_the_threads_for_leases() {
    let harness = Harness::new().await;
    let (clock, mut threads) = clock_noting_threads(|| NOW);
    let (follower, stop) = (harness.follower_with_clock(clock), CancellationToken::new());
    let holding = tokio::spawn(follower.hold_files_apart(stop.clone()));
    let thread = tokio::time::timeout(LONG, threads.recv()).await.expect("timed out: there is no lease");
    assert_eq!(thread.as_deref(), Some("leases"));
    stop.cancel();
    holding.await.unwrap();
}
