use engine::fresh::FreshLayer;
use types::threads::clock_noting_threads;
use types::vector::{PartitionId, Vector};

use super::*;

async fn catalog() -> Catalog {
    Catalog::open("sqlite::memory:").await.unwrap()
}

async fn begin(catalog: &Catalog, name: &str) -> Registration {
    Registration::begin(catalog, name, "http://host:7", Arc::new(|| 1_000_000)).await.unwrap()
}

#[tokio::test]
async fn a_process_is_listed_from_its_start_to_its_end_and_each_takeover_has_a_greater_epoch() {
    let catalog = catalog().await;
    let (one, other) = (begin(&catalog, "one").await, begin(&catalog, "other").await);
    let workers = catalog.state().await.unwrap().workers.clone();
    assert_eq!(
        workers.iter().map(|worker| (worker.name.as_str(), worker.address.as_str())).collect::<Vec<_>>(),
        [("one", "http://host:7"), ("other", "http://host:7")]
    );
    assert_eq!(workers[0].expires_at, 31_000_000);
    let epochs = [one.take_over().await.unwrap(), other.take_over().await.unwrap(), one.take_over().await.unwrap()];
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    one.renew().await.unwrap();
    assert_eq!(catalog.state().await.unwrap().workers[0].epoch, epochs[2], "a renewal keeps the epoch");
    let stop = CancellationToken::new();
    stop.cancel();
    one.keep(&Fresh::unread(), stop).await.unwrap();
    assert_eq!(catalog.state().await.unwrap().workers.len(), 1);
}

#[tokio::test]
async fn an_owner_that_a_node_no_longer_believes_claims_its_partitions_again() {
    let catalog = catalog().await;
    let (registration, fresh, stop) =
        (begin(&catalog, "one").await, Fresh::<engine::states::StateRows>::unread(), CancellationToken::new());
    let epoch = registration.take_over().await.unwrap();
    let partition = PartitionId::new("s", 0);
    fresh.take_over(epoch, &Vector::new(), std::slice::from_ref(&partition));
    let (start, end) = (Vector::new(), "s/0:5".parse().unwrap());
    let (states, failures, max_event_time) = Default::default();
    fresh.publish(FreshLayer { start, end, states, failures, max_event_time }, []);
    registration.overtaken().notify_one();
    let keeping = tokio::spawn({
        let (registration, fresh, stop) = (registration.clone(), fresh.clone(), stop.clone());
        async move { registration.keep(&fresh, stop).await }
    });
    let claimed = async {
        while fresh.epochs()[&partition] <= epoch {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), claimed).await.expect("timed out: the partition is not claimed again");
    assert_eq!(fresh.layers(), 1, "its layers stay");
    stop.cancel();
    keeping.await.unwrap().unwrap();
}

/// Whoever renews reads the clock, which notes on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_renewed_on_the_threads_for_leases() {
    let (clock, mut threads) = clock_noting_threads(|| 1_000_000);
    let registration = Registration::begin(&catalog().await, "one", "http://host:7", clock).await.unwrap();
    threads.try_recv().expect("it begins on the thread of its caller");
    registration.overtaken().notify_one();
    let stop = CancellationToken::new();
    let keeping = tokio::spawn({
        let stop = stop.clone();
        async move { registration.keep(&Fresh::unread(), stop).await }
    });
    let thread = tokio::time::timeout(Duration::from_secs(60), threads.recv()).await.expect("timed out: it is not renewed");
    assert_eq!(thread.as_deref(), Some("leases"));
    stop.cancel();
    keeping.await.unwrap().unwrap();
}

/// The clock goes with the last one that could read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_nobody_waits_for_is_not_renewed_any_more() {
    let (clock, mut threads) = clock_noting_threads(|| 1_000_000);
    let registration = Registration::begin(&catalog().await, "one", "http://host:7", clock).await.unwrap();
    threads.try_recv().expect("it begins");
    registration.overtaken().notify_one();
    let keeping = tokio::spawn(async move { registration.keep(&Fresh::unread(), CancellationToken::new()).await });
    tokio::time::timeout(Duration::from_secs(60), threads.recv()).await.expect("timed out: it is not renewed");
    keeping.abort();
    let ended = async { while threads.recv().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("timed out: it is still renewed");
}
