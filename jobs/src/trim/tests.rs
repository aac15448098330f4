use catalog::{LeaseRecord, PartitionRecord, run_lease};

use super::*;

fn state(read: &[(&str, i32, i64, &str)]) -> CatalogState {
    let record = |(stream, partition, next, identity): &(&str, i32, i64, &str)| PartitionRecord {
        id: PartitionId::new(*stream, *partition),
        next_offset: Offset(*next),
        log_identity: (*identity).to_owned(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let partitions = read.iter().map(record).map(|record| (record.id.clone(), record)).collect();
    CatalogState { partitions, ..CatalogState::default() }
}

#[test]
fn what_every_stream_has_committed_may_go_but_for_the_last_record() {
    let state = state(&[("a", 0, 100, "log"), ("b", 0, 40, "log"), ("a", 1, 7, "log"), ("a", 2, 9, "other")]);
    let streams = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
    let may_go = |names: &[&str], partition| trimmable(&state, &streams(names), (partition, "log"), 0).map(|offset| offset.0);
    assert_eq!(may_go(&["a"], 0), Some(99));
    assert_eq!(may_go(&["a", "b"], 0), Some(39), "the slower stream needs the rest");
    assert_eq!(may_go(&["a", "b"], 1), None, "b has read nothing of it");
    assert_eq!(may_go(&["a"], 2), None, "it was read from another log");
    assert_eq!(may_go(&["a"], 3), None);
}

#[test]
fn what_a_replay_reads_stays_while_its_lease_holds() {
    let mut state = state(&[("a", 0, 100, "log")]);
    let pin = Some([(PartitionId::new("a", 0), Offset(20))].into_iter().collect());
    let lease = |name: String| LeaseRecord { name, owner: "p".into(), epoch: 1, expires_at: 5, pin: pin.clone() };
    let may_go = |state: &CatalogState, now| trimmable(state, &["a".into()], (0, "log"), now).map(|offset| offset.0);
    state.leases.push(lease("serve/a node".into()));
    assert_eq!(may_go(&state, 4), Some(99), "a node reads no log");
    state.leases.push(lease(run_lease("v", 1)));
    assert_eq!((may_go(&state, 4), may_go(&state, 5)), (Some(19), Some(99)));
}
