use proptest::collection::btree_set;
use proptest::prelude::*;

use super::*;

fn source(partition: i32) -> TopicPartition {
    TopicPartition { topic: "events".into(), partition }
}

fn facts(now: Micros, partitions: i32, members: &[&str], leases: &[(i32, Option<&str>, i64, Micros)]) -> LeaseFacts {
    let lease = |&(partition, owner, epoch, expires_at): &(i32, Option<&str>, i64, Micros)| {
        (source(partition), Lease { owner: owner.map(str::to_owned), epoch, expires_at })
    };
    LeaseFacts {
        now,
        topics: BTreeMap::from([("events".into(), partitions)]),
        members: BTreeMap::from([("events".into(), members.iter().map(|member| member.to_string()).collect())]),
        leases: leases.iter().map(lease).collect(),
    }
}

fn held(epochs: &[(i32, i64)]) -> BTreeMap<TopicPartition, i64> {
    epochs.iter().map(|(partition, epoch)| (source(*partition), *epoch)).collect()
}

#[test]
fn a_lone_worker_takes_everything() {
    let plan = plan("a", &held(&[]), &facts(100, 3, &["a"], &[]));
    assert_eq!(plan.take, [(source(0), 1), (source(1), 1), (source(2), 1)]);
}

#[test]
fn a_worker_with_more_than_its_share_gives_up_the_rest() {
    let leases = [(0, Some("a"), 1, 900), (1, Some("a"), 1, 900), (2, Some("a"), 1, 900), (3, Some("a"), 1, 900)];
    let facts = facts(100, 4, &["a", "b"], &leases);
    let overloaded = plan("a", &held(&[(0, 1), (1, 1), (2, 1), (3, 1)]), &facts);
    assert_eq!(overloaded, Plan { give_up: vec![source(2), source(3)], ..Plan::default() });
    assert_eq!(plan("b", &held(&[]), &facts), Plan::default());
}

#[test]
fn an_expired_lease_is_taken_over_with_a_higher_epoch() {
    let leases = [(0, Some("a"), 4, 100), (1, Some("a"), 4, 101)];
    let plan = plan("b", &held(&[]), &facts(100, 2, &["b"], &leases));
    assert_eq!(plan.take, [(source(0), 5)]);
}

#[test]
fn a_worker_whose_lease_was_taken_over_finds_out() {
    let leases = [(0, Some("b"), 5, 900), (1, Some("a"), 4, 900), (2, Some("a"), 6, 900)];
    let plan = plan("a", &held(&[(0, 4), (1, 4), (2, 4)]), &facts(100, 3, &["a"], &leases));
    assert_eq!(plan.lost, [source(0), source(2)]);
    assert_eq!(plan.take, []);
}

#[test]
fn a_restarted_worker_takes_its_own_lease_at_once() {
    let plan = plan("a", &held(&[]), &facts(100, 1, &["a"], &[(0, Some("a"), 4, 900)]));
    assert_eq!(plan.take, [(source(0), 5)]);
}

proptest! {
    #[test]
    fn the_shares_of_all_workers_are_all_partitions_and_nearly_equal(
        workers in btree_set("[a-z]{1,6}", 1..8), partitions in 0..40i32, topic in "[a-z]{1,8}"
    ) {
        let shares: Vec<usize> = workers.iter().map(|worker| fair_share(worker, &topic, partitions, Some(&workers))).collect();
        prop_assert_eq!(shares.iter().sum::<usize>(), partitions as usize);
        prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
    }

    #[test]
    fn what_another_holds_is_never_taken(partitions in 1..20i32, expires in 0..200i64) {
        let leases: Vec<_> = (0..partitions).map(|partition| (partition, Some("b"), 1, expires)).collect();
        let plan = plan("a", &held(&[]), &facts(100, partitions, &["a"], &leases));
        prop_assert_eq!(plan.take.is_empty(), expires > 100);
    }
}
