use std::time::Instant;

use super::*;
use types::vector::Offset;

fn layer(ranges: &[(i32, i64, i64)]) -> FreshLayer {
    let id = |partition: i32| PartitionId::new("s", partition);
    FreshLayer {
        start: ranges.iter().map(|(p, start, _)| (id(*p), Offset(*start))).collect(),
        end: ranges.iter().map(|(p, _, end)| (id(*p), Offset(*end))).collect(),
        states: BTreeMap::new(),
        failures: BTreeMap::new(),
        max_event_time: BTreeMap::new(),
    }
}

fn fresh(layers: &[&[(i32, i64, i64)]]) -> Fresh {
    let fresh = Fresh::default();
    for ranges in layers {
        let layer = layer(ranges);
        let partition = PartitionId::new("s", 0);
        let complete = Complete { position: layer.end.get(&partition), partition, time: 7 };
        fresh.publish(layer, [complete]);
    }
    fresh
}

fn end_of(chain: &Chain) -> String {
    chain.end.to_string()
}

#[test]
fn layers_of_two_units_follow_an_older_vector() {
    let fresh = fresh(&[&[(0, 0, 5), (1, 0, 3)], &[(0, 5, 9)], &[(1, 3, 4)]]);
    let chain = fresh.after(&Vector::new());
    assert_eq!((chain.layers.len(), end_of(&chain)), (3, "s/0:9,s/1:4".into()));
    let committed: Vector = "s/0:5,s/1:3".parse().unwrap();
    assert_eq!(fresh.after(&committed).layers.len(), 2);
}

#[test]
fn what_a_dead_worker_left_is_not_counted_beside_what_its_successor_made() {
    let fresh = fresh(&[&[(0, 0, 20)], &[(0, 0, 15)], &[(0, 15, 25)]]);
    let chain = fresh.after(&Vector::new());
    assert_eq!((chain.layers.len(), end_of(&chain)), (1, "s/0:20".into()));
    assert_eq!(*chain.complete_to, BTreeMap::from([(PartitionId::new("s", 0), 7)]), "all records before that time are before 20");
    fresh.complete([Complete { partition: PartitionId::new("s", 0), position: Offset(25), time: 8 }]);
    assert!(fresh.after(&Vector::new()).complete_to.is_empty(), "the chain does not have all that the time was sent with");
    fresh.withdraw(&Vector::new(), &[PartitionId::new("s", 0)]);
    assert!(fresh.after(&Vector::new()).layers.is_empty());
}

#[test]
fn a_layer_past_a_vector_that_is_not_reached_yet_waits() {
    let fresh = fresh(&[&[(0, 15, 25), (1, 0, 2)]]);
    assert!(fresh.after(&Vector::new()).layers.is_empty());
    assert_eq!(fresh.after(&"s/0:15".parse().unwrap()).layers.len(), 1);
}

#[test]
fn a_layer_that_somebody_else_committed_in_part_is_withdrawn() {
    let fresh = fresh(&[&[(0, 10, 20)], &[(1, 0, 4)]]);
    fresh.withdraw(&"s/0:15,s/1:4".parse().unwrap(), &[PartitionId::new("s", 0), PartitionId::new("s", 1)]);
    assert!(fresh.after(&"s/0:10,s/1:4".parse().unwrap()).layers.is_empty());
    assert_eq!(fresh.after(&"s/0:10".parse().unwrap()).layers.len(), 1, "what is committed stays for readers that are behind");
}

#[test]
fn a_worker_that_lost_a_partition_takes_back_its_own_layers_and_not_its_successors() {
    let fresh = Fresh::default();
    let (loser, successor) = (fresh.for_worker(), fresh.for_worker());
    let lost = [PartitionId::new("s", 0)];
    loser.publish(layer(&[(0, 0, 20)]), []);
    successor.take_over(0, &Vector::new(), &lost);
    successor.publish(layer(&[(0, 0, 15)]), []);
    successor.publish(layer(&[(0, 15, 25)]), []);
    loser.compact(layer(&[(0, 0, 25)]));
    loser.withdraw(&Vector::new(), &lost);
    let chain = fresh.after(&Vector::new());
    assert_eq!((chain.layers.len(), end_of(&chain)), (2, "s/0:25".into()));
}

#[test]
fn compacting_keeps_the_chain_in_the_order_of_offsets() {
    let fresh = fresh(&[&[(0, 0, 5)], &[(0, 5, 6)], &[(0, 6, 9)]]);
    fresh.compact(layer(&[(0, 0, 6)]));
    let chain = fresh.after(&Vector::new());
    assert_eq!((chain.layers.len(), end_of(&chain), chain.complete_to.len()), (2, "s/0:9".into(), 1));
}

#[test]
fn a_time_counts_for_those_who_read_up_to_its_position() {
    let fresh = fresh(&[&[(0, 0, 5)], &[(0, 5, 9)]]);
    let partition = PartitionId::new("s", 0);
    fresh.complete([Complete { partition: partition.clone(), position: Offset(9), time: 8 }]);
    assert_eq!(*fresh.after(&Vector::new()).complete_to, BTreeMap::from([(partition.clone(), 8)]));
    // What was committed and released may be ahead of a reader.
    fresh.release(&"s/0:9".parse().unwrap());
    assert!(fresh.after(&Vector::new()).complete_to.is_empty());
    assert_eq!(fresh.after(&"s/0:9".parse().unwrap()).complete_to.len(), 1);
}

/// It may still read a topic that the stream has left.
#[test]
fn a_worker_that_lost_a_partition_does_not_say_how_far_it_is_complete() {
    let fresh = Fresh::<()>::default();
    let (before, owner) = (fresh.for_worker(), fresh.for_worker());
    let partition = PartitionId::new("s", 0);
    let at = |time| [Complete { partition: partition.clone(), position: Offset::ZERO, time }];
    before.take_over(1, &Vector::new(), std::slice::from_ref(&partition));
    before.complete(at(7));
    assert_eq!(fresh.after(&Vector::new()).complete_to.get(&partition), Some(&7));
    owner.take_over(2, &Vector::new(), std::slice::from_ref(&partition));
    before.complete(at(9));
    assert!(fresh.after(&Vector::new()).complete_to.is_empty());
    owner.complete(at(8));
    assert_eq!(fresh.after(&Vector::new()).complete_to.get(&partition), Some(&8));
}

#[test]
fn what_is_committed_is_released_by_the_worker_where_no_node_reads_it() {
    let (read, unread) = (Fresh::<()>::default(), Fresh::<()>::unread());
    for fresh in [&read, &unread] {
        let (start, end) = (Vector::new(), "s/0:5".parse().unwrap());
        let (states, failures, max_event_time) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        fresh.publish(FreshLayer { start, end, states, failures, max_event_time }, []);
        fresh.committed(&"s/0:5".parse().unwrap());
    }
    assert_eq!((read.layers(), unread.layers()), (1, 0));
}

#[test]
fn the_format_of_a_version_is_forgotten_once_no_worker_keeps_it_and_no_layer_has_it() {
    let fresh = Fresh::<()>::default();
    let (one, other) = (fresh.for_worker(), fresh.for_worker());
    let version = |version: u32| ViewVersion::new("v", version);
    let stamped = |versions: &[u32]| versions.iter().map(|number| (version(*number), Arc::<str>::from("stamp"))).collect::<Vec<_>>();
    let known = || (1..=3).filter(|number| fresh.stamp(&version(*number)).is_some()).collect::<Vec<u32>>();
    one.keep(stamped(&[1]));
    other.keep(stamped(&[1]));
    one.keep(stamped(&[2]));
    assert_eq!(known(), [1, 2], "the other worker keeps version 1");
    let end: Vector = "s/0:5".parse().unwrap();
    let states = BTreeMap::from([(version(1), Arc::new(()))]);
    let (failures, max_event_time) = (BTreeMap::new(), BTreeMap::new());
    other.publish(FreshLayer { start: Vector::new(), end: end.clone(), states, failures, max_event_time }, []);
    other.keep(stamped(&[2]));
    assert_eq!(known(), [1, 2], "a layer has states of version 1");
    fresh.release(&end);
    other.keep(stamped(&[3]));
    assert_eq!(known(), [2, 3]);
}

#[test]
fn a_subscriber_that_does_not_keep_up_is_cut_off_and_holds_nobody_up() {
    let fresh = fresh(&[&[(0, 0, 1)]]);
    let mut slow = fresh.subscribe();
    assert_eq!(slow.snapshot.layers.len(), 1);
    let complete = || [Complete { partition: PartitionId::new("s", 0), position: Offset(1), time: 8 }];
    let began = Instant::now();
    (0..10_000).for_each(|_| fresh.complete(complete()));
    let most_completed = 1 + (began.elapsed().as_millis() / subscription::COMPLETED_EVERY.as_millis()) as usize;
    for at in 1..subscription::QUEUE as i64 * 2 {
        fresh.publish(layer(&[(0, at, at + 1)]), []);
    }
    let (mut published, mut completed) = (0, 0);
    while let Ok(change) = slow.changes.try_recv() {
        match change.change {
            LayerChange::Completed(_) => completed += 1,
            _ => published += 1,
        }
    }
    assert!(slow.changes.is_closed());
    assert_eq!(published + completed, subscription::QUEUE, "one place for each layer, and for each time that is handed on");
    assert!((1..=most_completed).contains(&completed), "{completed} times of 10,000, expected {most_completed} at most");
}

#[test]
fn each_layer_is_seen_once_by_who_observes_also_in_another_process() {
    let (process, node) = (Fresh::unread(), Fresh::default());
    let mut mirror = Mirror::new(&node);
    let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let observer = |name: &'static str| -> Arc<LayerObserver<StateRows>> {
        let seen = seen.clone();
        Arc::new(move |layer: &FreshLayer| seen.lock().unwrap().push(format!("{name} {}", layer.end)))
    };
    let (here, there) = (observer("here"), observer("there"));
    process.observe(&here);
    node.observe(&there);
    let mut changes = process.subscribe().changes;
    process.take_over(1, &Vector::new(), &[PartitionId::new("s", 0)]);
    process.publish(layer(&[(0, 0, 5)]), []);
    process.publish(layer(&[(0, 5, 9)]), []);
    process.compact(layer(&[(0, 0, 9)]));
    process.complete([]);
    while let Ok(sent) = changes.try_recv() {
        mirror.apply(sent.owner, sent.change);
    }
    assert_eq!(*seen.lock().unwrap(), ["here s/0:5", "here s/0:9", "there s/0:5", "there s/0:9"]);
    // What was there before is in a snapshot: it was seen when it came.
    mirror.reset(process.subscribe().snapshot);
    drop(here);
    process.publish(layer(&[(0, 9, 12)]), []);
    assert_eq!(seen.lock().unwrap().len(), 4);
}
