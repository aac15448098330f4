use types::threads::clock_noting_threads;

use super::*;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_takes_long_keeps_everything_until_it_is_done() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let clock: Clock = Arc::new(|| 0);
    let leases = async || catalog.state().await.unwrap().leases.clone();
    let short = TakeoverPin::begin(&catalog, "w", &clock);
    assert!(leases().await.is_empty(), "most takeovers are short");
    short.end().await;
    let long = TakeoverPin::begin_after(Duration::ZERO, &catalog, "w", &clock);
    let held = async {
        loop {
            if let Some(lease) = leases().await.pop() {
                break lease;
            }
            tokio::task::yield_now().await;
        }
    };
    let held = tokio::time::timeout(LONG, held).await.expect("timed out: there is no lease");
    assert_eq!((&*held.name, held.pin), ("takeover/w", Some(Vector::new())));
    let known = async {
        while long.lease.lock().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, known).await.expect("timed out: the pin does not know its lease");
    long.end().await;
    assert!(leases().await.is_empty());
}

/// Whoever renews reads the clock, which notes on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_pin_of_a_takeover_is_renewed_on_the_threads_for_leases() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let (clock, mut threads) = clock_noting_threads(|| 0);
    let pin = TakeoverPin::begin_after(Duration::ZERO, &catalog, "w", &clock);
    let thread = tokio::time::timeout(LONG, threads.recv()).await.expect("timed out: nothing is pinned");
    assert_eq!(thread.as_deref(), Some("leases"));
    pin.end().await;
}
