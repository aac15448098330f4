//! Workers: a process is listed while it renews its registration, and every takeover has a greater epoch.

use types::tiles::Micros;

use super::*;

on_every_engine!(
    a_takeover_has_a_greater_epoch_than_every_earlier_one,
    a_registration_is_stored_with_the_epoch_it_names,
    a_process_that_died_is_forgotten
);

const HOUR: Micros = 3_600_000_000;

fn worker(name: &str, epoch: i64, expires_at: Micros) -> WorkerRecord {
    WorkerRecord { name: name.into(), address: format!("http://{name}:7"), epoch, expires_at }
}

async fn take_over(test: &TestCatalog, name: &str, expires_at: Micros) -> Revision {
    let worker = NewWorker { name: name.into(), address: format!("http://{name}:7"), expires_at };
    test.catalog.commit(adds(vec![Add::NewWorker(worker)])).await.unwrap()
}

async fn renew(test: &TestCatalog, record: WorkerRecord) {
    test.catalog.commit(adds(vec![Add::Worker(record)])).await.unwrap();
}

async fn listed(test: &TestCatalog) -> Vec<WorkerRecord> {
    test.another().await.state().await.unwrap().workers.clone()
}

async fn a_takeover_has_a_greater_epoch_than_every_earlier_one(test: &TestCatalog) {
    let first = take_over(test, "a", 10).await;
    let second = take_over(test, "b", 10).await;
    assert!(second > first);
    assert_eq!(listed(test).await, vec![worker("a", first, 10), worker("b", second, 10)]);
    renew(test, worker("a", first, 20)).await;
    assert_eq!(listed(test).await[0], worker("a", first, 20), "a renewal keeps it");
    let remove = vec![Remove::Worker { name: "a".into() }];
    test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    let third = take_over(test, "a", 30).await;
    assert!(third > second);
    assert_eq!(listed(test).await, vec![worker("a", third, 30), worker("b", second, 10)]);
}

/// No epoch stands for a new one.
async fn a_registration_is_stored_with_the_epoch_it_names(test: &TestCatalog) {
    take_over(test, "a", 10).await;
    renew(test, worker("b", 0, 10)).await;
    assert_eq!(listed(test).await[1], worker("b", 0, 10));
}

async fn a_process_that_died_is_forgotten(test: &TestCatalog) {
    let epoch = take_over(test, "dead", 10).await;
    take_over(test, "a", 10 + HOUR).await;
    assert_eq!(listed(test).await[1], worker("dead", epoch, 10), "for a while it is listed");
    take_over(test, "a", 11 + HOUR).await;
    assert_eq!(listed(test).await.len(), 1);
}
