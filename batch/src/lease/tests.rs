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
