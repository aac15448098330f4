use proptest::prelude::*;
use types::vector::{Offset, PartitionId};

use super::*;
use crate::fresh::{Complete, LayerSubscription, SubscriptionChange, ViewVersion};

/// The states of a layer are the records that it was made of.
type Records = Vec<(PartitionId, i64)>;
type Layer = FreshLayer<Records>;

const PARTITIONS: i32 = 2;

fn id(partition: i32) -> PartitionId {
    PartitionId::new("s", partition)
}

fn view() -> ViewVersion {
    ViewVersion::new("v", 1)
}

fn layer(start: Vector, end: Vector) -> Layer {
    let records = end.iter().flat_map(|(p, to)| (start.get(p).0..to.0).map(move |offset| (p.clone(), offset))).collect();
    let states = BTreeMap::from([(view(), Arc::new(records))]);
    FreshLayer { start, end, states, failures: BTreeMap::new(), max_event_time: BTreeMap::new() }
}

fn range(partition: i32, from: i64, to: i64) -> Layer {
    let at = |offset| Vector::from_iter([(id(partition), Offset(offset))]);
    layer(at(from), at(to))
}

fn merge(layers: &[Arc<Layer>]) -> Result<Layer, std::convert::Infallible> {
    Ok(FreshLayer::merge_by(layers, |_, states| Some(states.iter().flat_map(|states| states.iter().cloned()).collect())))
}

/// Hands a change over as another process does.
fn hand_over(mirror: &mut Mirror<Records>, sent: SubscriptionChange<Records>) -> ChangeOutcome {
    match sent.change {
        LayerChange::Compacted(merged) => {
            let Ok(()) = mirror.compact(sent.owner, &merged.start, &merged.end, merge);
            ChangeOutcome::Whole
        }
        change => mirror.apply(sent.owner, change),
    }
}

fn end_after(fresh: &Fresh<Records>, vector: &str) -> String {
    fresh.after(&vector.parse().unwrap()).end.to_string()
}

#[test]
fn an_older_epoch_is_not_accepted_after_a_newer_one() {
    let node = Fresh::default();
    let (mut old, mut new) = (Mirror::new(&node), Mirror::new(&node));
    let claim = |epoch| LayerChange::TakenOver(vec![Claim { partition: id(0), epoch, from: Offset(0) }]);
    let layer = |from, to| LayerChange::Published { layer: Arc::new(range(0, from, to)), complete_to: Vec::new() };
    assert_eq!(old.apply(1, claim(3)), ChangeOutcome::Whole);
    assert_eq!(old.apply(1, layer(0, 20)), ChangeOutcome::Whole);
    assert_eq!(new.apply(1, claim(4)), ChangeOutcome::Whole);
    assert_eq!(end_after(&node, ""), "", "what the former owner said is withdrawn");
    assert_eq!(old.apply(1, layer(20, 30)), ChangeOutcome::Refused);
    assert_eq!(old.apply(1, layer(0, 20)), ChangeOutcome::Refused);
    assert_eq!(new.apply(1, layer(0, 15)), ChangeOutcome::Whole);
    assert_eq!(old.apply(1, claim(3)), ChangeOutcome::Refused);
    assert_eq!(end_after(&node, ""), "s/0:15");
    let snapshot = Snapshot {
        claims: vec![(1, Claim { partition: id(0), epoch: 3, from: Offset(0) })],
        layers: vec![(1, Arc::new(range(0, 0, 20)))],
        complete_to: Vec::new(),
    };
    assert_eq!(old.reset(snapshot), ChangeOutcome::Refused, "nor in a snapshot");
    assert_eq!(end_after(&node, ""), "s/0:15");
    drop(new);
    assert_eq!(end_after(&node, ""), "");
    assert_eq!(old.apply(1, layer(0, 20)), ChangeOutcome::Refused, "nor after the newer one is gone");
}

#[test]
fn a_lost_workers_layers_go_and_a_snapshot_brings_them_back_at_once() {
    let (process, node) = (Fresh::unread(), Fresh::default());
    let (one, other) = (process.for_worker(), process.for_worker());
    one.take_over(1, &Vector::new(), &[id(0)]);
    other.take_over(2, &Vector::new(), &[id(1)]);
    one.publish(range(0, 0, 5), []);
    let mut subscription = process.subscribe();
    other.publish(range(1, 0, 3), []);
    let mut mirror = Mirror::new(&node);
    mirror.reset(subscription.snapshot);
    assert_eq!(end_after(&node, ""), "s/0:5");
    hand_over(&mut mirror, subscription.changes.try_recv().unwrap());
    assert_eq!(end_after(&node, ""), "s/0:5,s/1:3");
    mirror.clear();
    assert_eq!((end_after(&node, ""), node.layers()), (String::new(), 0));
    mirror.reset(process.subscribe().snapshot);
    assert_eq!((end_after(&node, ""), node.layers()), ("s/0:5,s/1:3".into(), 2));
    mirror.reset(process.subscribe().snapshot);
    assert_eq!(node.layers(), 2, "a snapshot takes the place of the one before");
}

#[test]
fn a_merge_does_not_hide_a_gap() {
    let node = Fresh::default();
    let mut mirror = Mirror::new(&node);
    mirror.apply(1, LayerChange::TakenOver(vec![Claim { partition: id(0), epoch: 1, from: Offset(0) }]));
    for (from, to) in [(0, 5), (7, 9)] {
        mirror.apply(1, LayerChange::Published { layer: Arc::new(range(0, from, to)), complete_to: Vec::new() });
    }
    let Ok(()) = mirror.compact(1, &Vector::new(), &"s/0:9".parse().unwrap(), merge);
    assert_eq!((end_after(&node, ""), node.layers()), ("s/0:5".into(), 2));
}

#[test]
fn a_process_does_not_hand_on_what_it_mirrors() {
    let process = Fresh::default();
    let mut subscription = process.subscribe();
    let mut mirror = Mirror::new(&process);
    mirror.apply(1, LayerChange::TakenOver(vec![Claim { partition: id(0), epoch: 1, from: Offset(0) }]));
    mirror.apply(1, LayerChange::Published { layer: Arc::new(range(0, 0, 5)), complete_to: Vec::new() });
    assert!(subscription.changes.try_recv().is_err());
    let snapshot = process.subscribe().snapshot;
    assert_eq!((snapshot.claims.len(), snapshot.layers.len()), (0, 0));
    assert_eq!(end_after(&process, ""), "s/0:5");
}

#[test]
fn an_owner_that_was_overtaken_by_mistake_is_read_once_it_claims_again() {
    let (process, node) = (Fresh::unread(), Fresh::default());
    let owner = process.for_worker();
    owner.take_over(3, &Vector::new(), &[id(0)]);
    owner.publish(range(0, 0, 5), []);
    let mut late = Mirror::new(&node);
    late.apply(1, LayerChange::TakenOver(vec![Claim { partition: id(0), epoch: 4, from: Offset(0) }]));
    let mut mirror = Mirror::new(&node);
    let mut subscription = process.subscribe();
    assert_eq!(mirror.reset(process.subscribe().snapshot), ChangeOutcome::Refused);
    process.claim_again(5);
    assert!(subscription.changes.try_recv().is_err() && subscription.changes.is_closed());
    assert_eq!(mirror.reset(process.subscribe().snapshot), ChangeOutcome::Whole);
    assert_eq!(end_after(&node, ""), "s/0:5");
}

#[test]
fn what_a_worker_gave_up_is_not_claimed_from_its_next_owner() {
    let (first, second, node) = (Fresh::unread(), Fresh::unread(), Fresh::default());
    let (former, next) = (first.for_worker(), second.for_worker());
    former.take_over(3, &Vector::new(), &[id(0), id(1)]);
    former.publish(range(0, 0, 5), []);
    former.give_up(&[id(0)]);
    next.take_over(4, &"s/0:5".parse().unwrap(), &[id(0)]);
    let LayerSubscription { snapshot, mut changes } = second.subscribe();
    let (mut of_first, mut of_second) = (Mirror::new(&node), Mirror::new(&node));
    assert_eq!(of_second.reset(snapshot), ChangeOutcome::Whole);
    assert!(!first.is_behind(&[(id(0), 4)]), "the next owner's epoch is greater");
    assert!(first.is_behind(&[(id(1), 4)]));
    first.claim_again(5);
    let snapshot = first.subscribe().snapshot;
    assert_eq!((snapshot.claims.len(), snapshot.layers.len()), (1, 0));
    assert_eq!(of_first.reset(snapshot), ChangeOutcome::Whole);
    next.publish(range(0, 5, 8), []);
    assert_eq!(hand_over(&mut of_second, changes.try_recv().unwrap()), ChangeOutcome::Whole);
    assert_eq!(end_after(&node, "s/0:5"), "s/0:8");
    former.take_over(6, &"s/0:8".parse().unwrap(), &[id(0)]);
    assert!(first.is_behind(&[(id(0), 7)]), "it is owned again");
    former.give_up_all();
    assert!(!first.is_behind(&[(id(0), 7), (id(1), 7)]));
}

/// What happens next; numbers choose among what there is.
#[derive(Debug, Clone, Copy)]
enum Step {
    Publish {
        worker: usize,
        records: [i64; PARTITIONS as usize],
    },
    Merge {
        worker: usize,
    },
    Commit {
        worker: usize,
    },
    TakeOver {
        worker: usize,
        partition: i32,
    },
    Deliver {
        worker: usize,
        messages: usize,
    },
    /// The connection breaks: what was under way is lost.
    Cut {
        worker: usize,
    },
    Connect {
        worker: usize,
    },
    /// The node loads the catalog's present state.
    Load,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..3_usize;
    let step = prop_oneof![
        6 => (worker.clone(), [0..4_i64, 0..4_i64]).prop_map(|(worker, records)| Step::Publish { worker, records }),
        3 => worker.clone().prop_map(|worker| Step::Merge { worker }),
        2 => worker.clone().prop_map(|worker| Step::Commit { worker }),
        2 => (worker.clone(), 0..PARTITIONS).prop_map(|(worker, partition)| Step::TakeOver { worker, partition }),
        6 => (worker.clone(), 1..6_usize).prop_map(|(worker, messages)| Step::Deliver { worker, messages }),
        1 => worker.clone().prop_map(|worker| Step::Cut { worker }),
        2 => worker.prop_map(|worker| Step::Connect { worker }),
        2 => Just(Step::Load),
    ];
    prop::collection::vec(step, 1..80)
}

/// A worker process as its subscribers see it.
struct Process {
    fresh: Fresh<Records>,
    worker: Fresh<Records>,
    /// The committed position and the next one of each partition that it believes to own.
    owned: BTreeMap<PartitionId, (Offset, Offset)>,
    layers: Vec<Arc<Layer>>,
    mirror: Mirror<Records>,
    subscription: Option<LayerSubscription<Records>>,
}

struct World {
    committed: Vector,
    epoch: i64,
    node: Fresh<Records>,
    loaded: Vector,
    processes: Vec<Process>,
    /// Every position at which a layer ended, on any worker.
    ends: BTreeSet<(PartitionId, Offset)>,
}

impl World {
    fn new() -> Self {
        let node = Fresh::default();
        let process = || {
            let fresh = Fresh::unread();
            let (worker, mirror) = (fresh.for_worker(), Mirror::new(&node));
            Process { fresh, worker, owned: BTreeMap::new(), layers: Vec::new(), mirror, subscription: None }
        };
        let processes = (0..3).map(|_| process()).collect();
        World { committed: Vector::new(), epoch: 0, loaded: Vector::new(), processes, ends: BTreeSet::new(), node }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish { worker, records } => self.publish(worker, &records),
            Step::Merge { worker } => self.processes[worker].merge(),
            Step::Commit { worker } => self.commit(worker),
            Step::TakeOver { worker, partition } => {
                self.epoch += 1;
                let (process, from) = (&mut self.processes[worker], self.committed.get(&id(partition)));
                // A rebalance: what it had is dropped as a whole, or was committed before.
                process.lose(&self.committed);
                process.worker.take_over(self.epoch, &self.committed, &[id(partition)]);
                process.owned.insert(id(partition), (from, from));
            }
            Step::Deliver { worker, messages } => {
                for _ in 0..messages {
                    self.processes[worker].deliver();
                }
            }
            Step::Cut { worker } => {
                let process = &mut self.processes[worker];
                process.subscription = None;
                process.mirror.clear();
            }
            Step::Connect { worker } => {
                let process = &mut self.processes[worker];
                let mut subscription = process.fresh.subscribe();
                let empty = Snapshot { claims: Vec::new(), layers: Vec::new(), complete_to: Vec::new() };
                let snapshot = std::mem::replace(&mut subscription.snapshot, empty);
                process.subscription = Some(subscription);
                process.mirror.reset(snapshot);
            }
            Step::Load => {
                self.loaded = self.committed.clone();
                self.node.release(&self.loaded);
            }
        }
    }

    fn publish(&mut self, worker: usize, records: &[i64; PARTITIONS as usize]) {
        let process = &mut self.processes[worker];
        let (mut start, mut end) = (Vector::new(), Vector::new());
        for (partition, (_, next)) in &mut process.owned {
            let records = records[partition.partition as usize];
            if records > 0 {
                start.set(partition.clone(), *next);
                *next = Offset(next.0 + records);
                end.set(partition.clone(), *next);
                self.ends.insert((partition.clone(), *next));
            }
        }
        let complete =
            process.owned.iter().map(|(partition, (_, next))| Complete { partition: partition.clone(), position: *next, time: next.0 });
        let complete: Vec<Complete> = complete.collect();
        if start.is_empty() {
            return process.worker.complete(complete);
        }
        let layer = layer(start, end);
        process.layers.push(Arc::new(layer.clone()));
        process.worker.publish(layer, complete);
    }

    /// Compare-and-advance: an owner that lost a partition commits nothing, and drops its work.
    fn commit(&mut self, worker: usize) {
        let process = &mut self.processes[worker];
        if process.owned.iter().any(|(partition, (from, _))| self.committed.get(partition) != *from) {
            return process.lose(&self.committed);
        }
        for (partition, (from, next)) in &mut process.owned {
            *from = *next;
            self.committed.set(partition.clone(), *next);
        }
        process.layers.clear();
        process.fresh.committed(&process.owned.iter().map(|(partition, (_, next))| (partition.clone(), *next)).collect());
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let chain = self.node.after(&self.loaded);
        let mut seen: BTreeMap<PartitionId, Vec<i64>> = BTreeMap::new();
        for (partition, offset) in chain.layers.iter().flat_map(|layer| layer.states[&view()].iter()) {
            seen.entry(partition.clone()).or_default().push(*offset);
        }
        for partition in (0..PARTITIONS).map(id) {
            let (from, end) = (self.loaded.get(&partition), chain.end.get(&partition));
            let mut seen = seen.remove(&partition).unwrap_or_default();
            seen.sort_unstable();
            prop_assert_eq!(seen, (from.0..end.0).collect::<Vec<i64>>(), "each record after the committed vector once");
            prop_assert!(end == from || self.ends.contains(&(partition.clone(), end)), "a position that a worker had: {end}");
            if let Some(time) = chain.complete_to.get(&partition) {
                prop_assert!(*time <= end.0, "complete to {time}, read to {end}");
            }
        }
        Ok(())
    }
}

impl Process {
    fn merge(&mut self) {
        if self.layers.len() > 1 {
            let Ok(merged) = merge(&self.layers);
            self.layers = vec![Arc::new(merged.clone())];
            self.worker.compact(merged);
        }
    }

    fn lose(&mut self, committed: &Vector) {
        let partitions: Vec<PartitionId> = self.owned.keys().cloned().collect();
        self.worker.withdraw(committed, &partitions);
        self.owned.clear();
        self.layers.clear();
    }

    fn deliver(&mut self) {
        let Some(subscription) = &mut self.subscription else { return };
        if let Ok(sent) = subscription.changes.try_recv() {
            hand_over(&mut self.mirror, sent);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_node_sees_what_a_worker_had_right_after_the_committed_vector(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check()?;
        }
        // Once all of it has arrived, it sees what the last owners have.
        for worker in 0..3 {
            world.processes[worker].lose(&world.committed);
        }
        for worker in [0, 1] {
            world.step(Step::TakeOver { worker, partition: worker as i32 });
            world.step(Step::Publish { worker, records: [3, 2] });
        }
        world.step(Step::Load);
        (0..3).for_each(|worker| world.step(Step::Connect { worker }));
        world.check()?;
        let expected = [(id(0), 3), (id(1), 2)].map(|(partition, records)| (Offset(world.committed.get(&partition).0 + records), partition));
        let chain = world.node.after(&world.loaded);
        for (end, partition) in expected {
            prop_assert_eq!(chain.end.get(&partition), end, "of {}", partition);
        }
    }
}
