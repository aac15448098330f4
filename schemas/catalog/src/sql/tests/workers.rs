//! Workers: a process is listed while it renews its registration, and every takeover has a greater epoch.

use types::tiles::Micros;

use super::*;

on_every_engine!(a_takeover_has_a_greater_epoch_than_every_earlier_one, a_process_that_died_is_forgotten);

const HOUR: Micros = 3_600_000_000;

fn worker(name: &str, epoch: i64, expires_at: Micros) -> WorkerRecord {
    WorkerRecord { name: name.into(), address: format!("http://{name}:7"), epoch, expires_at }
}

async fn put(test: &TestCatalog, record: WorkerRecord) -> Revision {
    test.catalog.commit(adds(vec![Add::Worker(record)])).await.unwrap()
}

async fn listed(test: &TestCatalog) -> Vec<WorkerRecord> {
    test.another().await.state().await.unwrap().workers.clone()
}

async fn a_takeover_has_a_greater_epoch_than_every_earlier_one(test: &TestCatalog) {
    let first = put(test, worker("a", 0, 10)).await;
    let second = put(test, worker("b", 0, 10)).await;
    assert!(second > first);
    assert_eq!(listed(test).await, vec![worker("a", first, 10), worker("b", second, 10)]);
    put(test, worker("a", first, 20)).await;
    assert_eq!(listed(test).await[0], worker("a", first, 20), "a renewal keeps it");
    let remove = vec![Remove::Worker { name: "a".into() }];
    test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    let third = put(test, worker("a", 0, 30)).await;
    assert!(third > second);
    assert_eq!(listed(test).await, vec![worker("a", third, 30), worker("b", second, 10)]);
}

async fn a_process_that_died_is_forgotten(test: &TestCatalog) {
    let epoch = put(test, worker("dead", 0, 10)).await;
    put(test, worker("a", 0, 10 + HOUR)).await;
    assert_eq!(listed(test).await[1], worker("dead", epoch, 10), "for a while it is listed");
    put(test, worker("a", 0, 11 + HOUR)).await;
    assert_eq!(listed(test).await.len(), 1);
}
