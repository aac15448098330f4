use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_takes_long_keeps_everything_until_it_is_done() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let clock: Clock = Arc::new(|| 0);
    let leases = async || catalog.state().await.unwrap().leases.clone();
    let short = TakeoverPin::begin(&catalog, "w", &clock);
    assert!(leases().await.is_empty(), "most takeovers are short");
    short.end().await;
    let long = TakeoverPin::begin_after(Duration::ZERO, &catalog, "w", &clock);
    let held = loop {
        if let Some(lease) = leases().await.pop() {
            break lease;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&*held.name, held.pin), ("takeover/w", Some(Vector::new())));
    while long.lease.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    long.end().await;
    assert!(leases().await.is_empty());
}
