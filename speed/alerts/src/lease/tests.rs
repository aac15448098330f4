use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use catalog::Commit;
use types::liveness::LockFolder;
use types::threads::clock_noting_threads;
use uuid::Uuid;

use super::*;

const TTL: Duration = Duration::from_micros(60);

/// A process with a clock that the test sets.
fn process(catalog: &Catalog, owner: &str, now: &Arc<AtomicI64>) -> Arc<AlertLeases> {
    let now = now.clone();
    AlertLeases::new(catalog.clone(), owner.into(), TTL, Arc::new(move || now.load(Ordering::Relaxed)))
}

async fn two_processes() -> (Arc<AlertLeases>, Arc<AlertLeases>, Arc<AtomicI64>) {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let now = Arc::new(AtomicI64::new(1_000));
    (process(&catalog, "a", &now), process(&catalog, "b", &now), now)
}

async fn acquire(leases: &Arc<AlertLeases>, alert: &str) -> Result<Option<HeldLease>> {
    Ok(HeldLease::acquire(leases, &AlertVersion { name: alert.into(), version: 1 }).await?.map(|(held, _)| held))
}

#[tokio::test]
async fn all_that_move_are_renewed_by_one_commit() {
    let (a, b, now) = two_processes().await;
    let mut held = Vec::new();
    for alert in ["one", "two", "three"] {
        held.push(acquire(&a, alert).await.unwrap().unwrap());
    }
    for round in 1..=10 {
        now.store(1_000 + round * 20, Ordering::Relaxed);
        let revision = a.catalog.revision().await.unwrap();
        held.iter().try_for_each(HeldLease::note_progress).unwrap();
        a.refresh().await.unwrap();
        assert_eq!(a.catalog.revision().await.unwrap(), revision + 1);
        b.refresh().await.unwrap();
        assert!(acquire(&b, "two").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_runner_that_does_not_move_loses_its_lease_and_no_other() {
    let (a, b, now) = two_processes().await;
    let (stuck, moving) = (acquire(&a, "stuck").await.unwrap().unwrap(), acquire(&a, "moving").await.unwrap().unwrap());
    for at in [1_020, 1_040, 1_060, 1_080, 1_100] {
        now.store(at, Ordering::Relaxed);
        moving.note_progress().unwrap();
        a.refresh().await.unwrap();
    }
    b.refresh().await.unwrap();
    assert!(acquire(&b, "moving").await.unwrap().is_none());
    let taken = acquire(&b, "stuck").await.unwrap().unwrap();
    assert_eq!(stuck.note_progress().unwrap_err().kind(), ErrorKind::Conflict);
    taken.note_progress().unwrap();
    // What it let go of is free at once; what it lost is not its own to release.
    stuck.release().await.unwrap();
    moving.release().await.unwrap();
    b.refresh().await.unwrap();
    assert!(acquire(&b, "moving").await.unwrap().is_some());
    taken.note_progress().unwrap();
}

/// The runner goes on, as one in a process that only seems dead.
#[tokio::test]
async fn an_alert_of_a_dead_process_is_taken_over_at_once_and_its_runner_commits_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let processes = LockFolder::new(folder.path());
    let catalog = Catalog::open("sqlite::memory:").await.unwrap().with_processes(processes.clone());
    let now = Arc::new(AtomicI64::new(1_000));
    let (a, b) = (process(&catalog, "a", &now), process(&catalog, "b", &now));
    let alive = processes.begin("a", &BTreeSet::new()).unwrap();
    let left = acquire(&a, "one").await.unwrap().unwrap();
    b.refresh().await.unwrap();
    assert!(acquire(&b, "one").await.unwrap().is_none());
    drop(alive);
    let taken = acquire(&b, "one").await.unwrap().unwrap();
    assert_eq!(taken.epoch, left.epoch + 1);
    let under = |held: &HeldLease| Commit { id: Uuid::new_v4(), expect: vec![held.expect()], ..Commit::default() };
    assert_eq!(catalog.commit(under(&left)).await.unwrap_err().kind(), ErrorKind::Conflict);
    catalog.commit(under(&taken)).await.unwrap();
    // Its news are not committed either, and it hears that the lease is lost.
    a.refresh().await.unwrap();
    assert_eq!(left.note_progress().unwrap_err().kind(), ErrorKind::Conflict);
    taken.note_progress().unwrap();
    // Whether "b" is alive is not known: it has no file.
    let c = process(&catalog, "c", &now);
    assert!(acquire(&c, "one").await.unwrap().is_none());
}

#[tokio::test]
async fn one_that_is_lost_costs_no_other_its_renewal() {
    let (a, b, now) = two_processes().await;
    let (lost, kept) = (acquire(&a, "lost").await.unwrap().unwrap(), acquire(&a, "kept").await.unwrap().unwrap());
    // Another process took it while this one slept.
    let lease = a.known().held["alert/lost"].lease.clone();
    a.catalog.release_lease(&lease).await.unwrap();
    let _taken = acquire(&b, "lost").await.unwrap().unwrap();
    now.store(1_030, Ordering::Relaxed);
    lost.note_progress().unwrap();
    kept.note_progress().unwrap();
    a.refresh().await.unwrap();
    assert_eq!(lost.note_progress().unwrap_err().kind(), ErrorKind::Conflict);
    now.store(1_080, Ordering::Relaxed);
    kept.note_progress().unwrap();
}

#[tokio::test]
async fn what_runners_say_is_committed_with_their_leases_and_news_at_once() {
    let (a, _, now) = two_processes().await;
    let held = acquire(&a, "one").await.unwrap().unwrap();
    let said = async || a.catalog.alert_runners().await.unwrap().pop();
    assert!(said().await.is_none());
    a.refresh().await.unwrap();
    assert_eq!(said().await.unwrap().evaluated_at, None);
    held.note_evaluated(900);
    now.store(1_001, Ordering::Relaxed);
    a.refresh().await.unwrap();
    assert_eq!((said().await.unwrap().evaluated_at, said().await.unwrap().at), (Some(1_000), Some(900)));
    // That it is evaluated again and again is no news.
    held.note_evaluated(901);
    a.refresh().await.unwrap();
    assert_eq!(said().await.unwrap().at, Some(900));
    assert!(held.note_waiting("the log") && !held.note_waiting("the log"));
    a.refresh().await.unwrap();
    assert_eq!(said().await.unwrap().waits.as_deref(), Some("the log"));
    held.note_evaluated(902);
    a.refresh().await.unwrap();
    assert_eq!((said().await.unwrap().waits, said().await.unwrap().at), (None, Some(902)));
}

/// Whoever renews reads the clock, which notes on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn the_leases_of_alerts_are_renewed_on_the_threads_for_leases() {
    let (clock, mut threads) = clock_noting_threads(|| 1_000);
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let stop = CancellationToken::new();
    let keeping = AlertLeases::new(catalog, "a".into(), TTL, clock).keep(stop.clone());
    let thread = tokio::time::timeout(Duration::from_secs(60), threads.recv()).await.expect("timed out: nothing is renewed");
    assert_eq!(thread.as_deref(), Some("leases"));
    stop.cancel();
    keeping.await.unwrap();
}
