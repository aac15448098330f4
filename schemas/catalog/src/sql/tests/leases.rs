//! Leases: one holder at a time, and a former one changes nothing any more.

use std::collections::BTreeSet;
use std::time::Duration;
use types::liveness::LockFolder;
use types::tiles::Micros;

use super::*;

on_every_engine!(
    a_lease_has_one_holder_until_it_expires,
    a_zombie_of_an_expired_lease_changes_nothing,
    a_released_lease_never_repeats_an_epoch,
    of_concurrent_acquisitions_exactly_one_wins,
    a_holder_moves_its_pin_by_renewing,
    several_leases_are_renewed_together_or_none_of_them,
    the_lease_of_a_dead_process_is_free_at_once_and_that_of_any_other_is_not,
    of_processes_that_find_one_dead_exactly_one_gets_its_lease,
);

const TTL: Duration = Duration::from_micros(10);

async fn acquire(catalog: &Catalog, owner: &str, now: Micros) -> Option<LeaseRecord> {
    catalog.acquire_lease("run/v", owner, TTL, now, None).await.unwrap()
}

fn under(lease: &LeaseRecord, now: Micros) -> Expect {
    Expect::Lease { name: lease.name.clone(), owner: lease.owner.clone(), epoch: lease.epoch, now }
}

async fn a_lease_has_one_holder_until_it_expires(test: &TestCatalog) {
    let lease = acquire(&test.catalog, "a", 100).await.unwrap();
    assert_eq!(lease.expires_at, 110);
    assert_eq!(test.catalog.state().await.unwrap().leases, vec![lease.clone()]);
    assert_eq!(acquire(&test.catalog, "b", 109).await, None);
    let free = Expect::LeaseFree { name: "run/v".into(), owner: "b".into(), now: 109 };
    assert!(conflict(test.catalog.commit(expects(free)).await).contains("found holder: a at epoch"));
    test.catalog.commit(expects(under(&lease, 109))).await.unwrap();
    let renewed = test.catalog.renew_lease(&lease, TTL, 105).await.unwrap();
    assert_eq!((renewed.expires_at, renewed.epoch), (115, lease.epoch));
    assert_eq!(acquire(&test.catalog, "b", 114).await, None);
    assert!(acquire(&test.catalog, "b", 115).await.is_some());
}

async fn a_zombie_of_an_expired_lease_changes_nothing(test: &TestCatalog) {
    let zombie = acquire(&test.catalog, "a", 100).await.unwrap();
    // Expired, even though nobody else has taken it yet.
    conflict(test.catalog.renew_lease(&zombie, TTL, 110).await);
    let held = acquire(&test.catalog, "b", 110).await.unwrap();
    assert!(held.epoch > zombie.epoch);
    // The zombie's own clock stands still: it believes that it holds the lease.
    let write = Commit { add: vec![Add::Run(run("v"))], ..expects(under(&zombie, 101)) };
    assert!(conflict(test.catalog.commit(write).await).contains("found holder: b"));
    conflict(test.catalog.renew_lease(&zombie, TTL, 101).await);
    conflict(test.catalog.begin_run(run("v"), vec![under(&zombie, 101)]).await);
    test.catalog.release_lease(&zombie).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!((&state.leases, &state.runs), (&vec![held], &vec![]));
}

async fn a_released_lease_never_repeats_an_epoch(test: &TestCatalog) {
    let first = acquire(&test.catalog, "a", 100).await.unwrap();
    test.catalog.release_lease(&first).await.unwrap();
    assert!(test.catalog.state().await.unwrap().leases.is_empty());
    let second = acquire(&test.catalog, "a", 100).await.unwrap();
    assert!(second.epoch > first.epoch);
    conflict(test.catalog.commit(expects(under(&first, 101))).await);
    // Also the owner's own earlier self is fenced off.
    let third = acquire(&test.catalog, "a", 101).await.unwrap();
    conflict(test.catalog.renew_lease(&second, TTL, 102).await);
    test.catalog.release_lease(&second).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().leases, vec![third]);
}

async fn of_concurrent_acquisitions_exactly_one_wins(test: &TestCatalog) {
    let mut tasks = Vec::new();
    for number in 0..6 {
        let catalog = test.another().await;
        tasks.push(tokio::spawn(async move { acquire(&catalog, &format!("owner {number}"), 100).await }));
    }
    let mut holders = Vec::new();
    for task in tasks {
        holders.extend(task.await.unwrap());
    }
    assert_eq!(holders.len(), 1);
    assert_eq!(test.catalog.state().await.unwrap().leases, holders);
}

async fn a_holder_moves_its_pin_by_renewing(test: &TestCatalog) {
    let pin = |text: &str| Some(text.parse().unwrap());
    let lease = test.catalog.acquire_lease("serve/1", "node", TTL, 0, pin("payments/0:3")).await.unwrap().unwrap();
    let moved = LeaseRecord { pin: pin("payments/0:8"), ..lease };
    let renewed = test.catalog.renew_lease(&moved, TTL, 5).await.unwrap();
    assert_eq!(renewed.pin, pin("payments/0:8"));
    assert_eq!(test.catalog.state().await.unwrap().leases, vec![renewed]);
}

async fn several_leases_are_renewed_together_or_none_of_them(test: &TestCatalog) {
    let catalog = &test.catalog;
    let acquire = async |name: &str, owner: &str, now: Micros| catalog.acquire_lease(name, owner, TTL, now, None).await.unwrap().unwrap();
    let (one, two, other) = (acquire("alert/one", "a", 100).await, acquire("alert/two", "a", 100).await, acquire("run/v", "b", 100).await);
    let revision = catalog.revision().await.unwrap();
    let renewed = catalog.renew_leases(&[one, two], TTL, 105, Vec::new()).await.unwrap();
    assert_eq!(catalog.revision().await.unwrap(), revision + 1);
    assert_eq!(renewed.iter().map(|lease| lease.expires_at).collect::<Vec<_>>(), [115, 115]);
    assert_eq!(catalog.leases("alert/").await.unwrap(), renewed);
    assert_eq!(catalog.leases("").await.unwrap().len(), 3);
    assert_eq!(catalog.renew_leases(&[], TTL, 106, Vec::new()).await.unwrap(), []);
    // The first of them is another's now.
    acquire("alert/one", "b", 120).await;
    conflict(catalog.renew_leases(&[renewed[1].clone(), renewed[0].clone()], TTL, 107, Vec::new()).await);
    assert_eq!(catalog.leases("alert/two").await.unwrap(), renewed[1..]);
    assert_eq!(catalog.leases("run/").await.unwrap(), [other]);
}

async fn acquire_fenced(catalog: &Catalog, owner: &str, now: Micros) -> Option<LeaseRecord> {
    catalog.acquire_fenced_lease("run/v", owner, TTL, now, None).await.unwrap()
}

async fn the_lease_of_a_dead_process_is_free_at_once_and_that_of_any_other_is_not(test: &TestCatalog) {
    let folder = tempfile::tempdir().unwrap();
    let processes = LockFolder::new(folder.path());
    let catalog = test.catalog.clone().with_processes(processes.clone());
    let alive = processes.begin("a", &BTreeSet::new()).unwrap();
    let lease = acquire_fenced(&catalog, "a", 100).await.unwrap();
    assert_eq!(acquire_fenced(&catalog, "b", 101).await, None);
    drop(alive);
    // The last writes of some holders may still be on their way: their leases expire.
    assert_eq!(acquire(&catalog, "b", 101).await, None);
    let taken = acquire_fenced(&catalog, "b", 101).await.unwrap();
    assert_eq!((&*taken.owner, taken.epoch, taken.expires_at), ("b", lease.epoch + 1, 111));
    // The one before only seemed dead.
    conflict(catalog.renew_lease(&lease, TTL, 102).await);
    conflict(catalog.commit(expects(under(&lease, 102))).await);
    catalog.release_lease(&lease).await.unwrap();
    assert_eq!(catalog.leases("").await.unwrap(), [taken]);
    // Of "b" nothing is known, as if it were on another machine.
    assert_eq!(acquire_fenced(&catalog, "c", 110).await, None);
    assert!(acquire_fenced(&catalog, "c", 111).await.is_some());
}

async fn of_processes_that_find_one_dead_exactly_one_gets_its_lease(test: &TestCatalog) {
    let folder = tempfile::tempdir().unwrap();
    let processes = LockFolder::new(folder.path());
    for round in 0..4 {
        let (dead, now) = (format!("dead {round}"), 100 + round * 100);
        let alive = processes.begin(&dead, &BTreeSet::new()).unwrap();
        assert!(acquire(&test.catalog, &dead, now).await.is_some());
        drop(alive);
        let mut tasks = Vec::new();
        for number in 0..6 {
            let catalog = test.another().await.with_processes(processes.clone());
            tasks.push(tokio::spawn(async move { acquire_fenced(&catalog, &format!("owner {number}"), now + 1).await }));
        }
        let mut holders = Vec::new();
        for task in tasks {
            holders.extend(task.await.unwrap());
        }
        assert_eq!(holders.len(), 1);
        assert_eq!(test.catalog.state().await.unwrap().leases, holders);
    }
}

/// On SQLite: on PostgreSQL the clock of another machine may be ahead.
#[tokio::test]
async fn leases_that_a_clock_ahead_left_end_and_those_of_the_living_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let processes = LockFolder::new(folder.path());
    let catalog = Catalog::open("sqlite::memory:").await.unwrap().with_processes(processes.clone());
    let dead = processes.begin("dead", &BTreeSet::new()).unwrap();
    let _alive = processes.begin("alive", &BTreeSet::new()).unwrap();
    let (ahead, longest) = (1_000, Duration::from_micros(50));
    let leases = [("alert/a", "dead", ahead), ("serve/1", "gone", ahead), ("serve/2", "alive", ahead), ("run/v", "gone", 100)];
    for (name, owner, now) in leases {
        catalog.acquire_lease(name, owner, TTL, now, None).await.unwrap().unwrap();
    }
    drop(dead);
    assert_eq!(acquire_named(&catalog, "serve/1", 105).await, None, "it lasts until the clock is there again");
    assert_eq!(catalog.end_leases_of_later_clock(longest, 105).await.unwrap(), 2);
    let ends = catalog.leases("").await.unwrap().into_iter().map(|lease| (lease.name, lease.expires_at)).collect::<Vec<_>>();
    let expected = [("alert/a", 105), ("run/v", 110), ("serve/1", 105), ("serve/2", 1_010)];
    assert_eq!(ends, expected.map(|(name, end)| (name.to_owned(), end)));
    assert!(acquire_named(&catalog, "serve/1", 105).await.is_some());
    assert_eq!(catalog.end_leases_of_later_clock(longest, 105).await.unwrap(), 0);
}

async fn acquire_named(catalog: &Catalog, name: &str, now: Micros) -> Option<LeaseRecord> {
    catalog.acquire_lease(name, "b", TTL, now, None).await.unwrap()
}
