use types::threads::clock_noting_threads;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Whoever renews reads the clock, which notes on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_run_or_a_pin_is_renewed_on_the_threads_for_leases() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let ttl = Duration::from_millis(30);
    let lease = catalog.acquire_lease("run/v", "owner", ttl, 0, None).await.unwrap().unwrap();
    let (clock, mut threads) = clock_noting_threads(|| 0);
    let keeping = KeepLease::start(catalog, lease, ttl, clock);
    for _ in 0..3 {
        let thread = tokio::time::timeout(LONG, threads.recv()).await.expect("timed out: the lease is not renewed");
        assert_eq!(thread.as_deref(), Some("leases"));
    }
    assert_eq!(keeping.stop().await.owner, "owner");
}

#[tokio::test]
async fn one_run_of_a_process_has_a_lease_at_a_time() {
    let (catalog, another) = (Catalog::open("sqlite::memory:").await.unwrap(), Catalog::open("sqlite::memory:").await.unwrap());
    let acquire = |catalog: &Catalog, owner, name| ProcessHold::acquire(catalog, owner, name);
    let held = acquire(&catalog, "owner", "run/v").unwrap();
    assert!(acquire(&catalog, "owner", "run/v").is_none());
    assert!(acquire(&catalog, "owner", "run/v").is_none(), "who did not get it does not take it away");
    assert!(
        [acquire(&catalog, "owner", "run/w"), acquire(&catalog, "other", "run/v"), acquire(&another, "owner", "run/v")]
            .iter()
            .all(Option::is_some)
    );
    drop(held);
    assert!(acquire(&catalog, "owner", "run/v").is_some());
}
