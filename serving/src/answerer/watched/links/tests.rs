use std::sync::atomic::{AtomicUsize, Ordering};

use catalog::DefinitionKind;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use engine::alerts::KeyWatch;
use engine::events::format_timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use types::vector::Vector;

use super::*;
use crate::answerer::watched::{keys_since, parts_of_about, watched_parts};
use crate::harness::{Harness, NOW, PAYMENTS, event};

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;

/// The hop of an hour is a minute.
const ALIKE: &str = "CREATE VIEW alike WITH (windows = '1h') AS SELECT mine.device, count(DISTINCT theirs.device) AS devices \
    FROM payments mine JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";
const CROWD: &str = "CREATE VIEW crowd WITH (windows = '1h') AS SELECT mine.device, count(*) AS pairs \
    FROM payments mine JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";
const EVER: &str = "CREATE VIEW ever AS SELECT mine.device, count(DISTINCT theirs.device) AS devices \
    FROM payments mine JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";
const RING: &str = "CREATE ALERT ring WITH (topic = 'ring', resolve = true) AS SELECT device, devices_1h FROM alike WHERE devices_1h >= 2";
const PACK: &str = "CREATE ALERT pack WITH (topic = 'pack', resolve = true) AS SELECT device, pairs_1h FROM crowd WHERE pairs_1h >= 4";
const KIN: &str = "CREATE ALERT kin WITH (topic = 'kin', resolve = true) AS SELECT device, devices FROM ever WHERE devices >= 2";

async fn harness() -> Harness {
    let views = [("alike", ALIKE), ("crowd", CROWD), ("ever", EVER)];
    let harness = Harness::with_definitions(PAYMENTS, &views, |settings| settings).await;
    harness.define(DefinitionKind::Alert, "ring", RING).await;
    harness.define(DefinitionKind::Alert, "pack", PACK).await;
    harness.define(DefinitionKind::Alert, "kin", KIN).await;
    harness
}

fn planned(read_view: &ReadView, name: &str) -> Arc<AlertPlan> {
    let alert = read_view.loaded.registry.alerts.iter().find(|alert| *alert.name == *name).unwrap();
    alert.plan.clone().unwrap()
}

fn index_within(limit_bytes: usize) -> ReverseIndex {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit_bytes));
    ReverseIndex::new(&pool)
}

/// Indexes what is not indexed yet. Returns whether there is room for it.
fn brought_up_to(index: &mut ReverseIndex, read_view: &ReadView, view: &LoadedView) -> bool {
    let Some(lacking) = index.lacking(read_view, view, &|| Ok(())).unwrap() else { return false };
    lacking.into_iter().for_each(|rows| index.add(view, rows).unwrap());
    true
}

fn every_key(read_view: &ReadView, view: &LoadedView) -> BTreeSet<Arc<[u8]>> {
    keys_in_parts(read_view, view, &watched_parts(read_view, view).unwrap()).0.into_iter().collect()
}

/// The keys of these parts, and how many chunks of states are read for them.
fn keys_in_parts(read_view: &ReadView, view: &LoadedView, parts: &[KeyPart]) -> (Vec<Arc<[u8]>>, usize) {
    let asked = AtomicUsize::new(0);
    let cancel_check = || {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let mut linked = LinkedKeys::new(read_view, view, parts, &cancel_check).unwrap();
    let keys = parts.iter().flat_map(|part| linked.take_part(read_view, view, part, &cancel_check).unwrap()).collect();
    (keys, asked.load(Ordering::Relaxed))
}

/// Whether each of the keys satisfies the condition at a time, and when that may change.
fn evaluated(read_view: &ReadView, alert: &AlertPlan, keys: &[&[u8]], t: Micros) -> Vec<(bool, Option<Micros>)> {
    let view = read_view.view(&alert.view.view).unwrap();
    let WatchedRows { rows, found, changes, since } = rows_of_keys(read_view, view, alert, (keys, t), &|| Ok(())).unwrap();
    assert!(since.iter().all(|since| *since <= t), "no event is later");
    let held = alert.held(&rows, &vec![t; keys.len()]).unwrap().holds;
    held.iter().zip(found).map(|(holds, found)| *holds && found).zip(changes).collect()
}

/// An alert that is looked at again and again.
struct Looked {
    alert: Arc<AlertPlan>,
    watch: KeyWatch<Arc<[u8]>>,
    index: ReverseIndex,
    last: Option<(Vector, Micros)>,
    begun: usize,
    ceased: usize,
    evaluated: usize,
}

impl Looked {
    fn new(alert: Arc<AlertPlan>) -> Looked {
        let (watch, index) = (KeyWatch::new(None, HashMap::new()), index_within(usize::MAX));
        Looked { alert, watch, index, last: None, begun: 0, ceased: 0, evaluated: 0 }
    }

    /// Evaluates the keys that may have changed and those that are due.
    fn look(&mut self, read_view: &ReadView, t: Micros) {
        let view = read_view.view(&self.alert.view.view).unwrap();
        assert!(brought_up_to(&mut self.index, read_view, view));
        let changed =
            self.last.as_ref().and_then(|(position, at)| keys_since(read_view, view, (position, *at), &self.index, &|| Ok(())).unwrap());
        let mut keys = changed.unwrap_or_else(|| every_key(read_view, view));
        while let Some((_, due)) = self.watch.due(t) {
            keys.extend(due);
        }
        let encoded: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        self.evaluated += keys.len();
        for (key, (holds, next)) in keys.iter().zip(evaluated(read_view, &self.alert, &encoded, t)) {
            match self.watch.observe(key, t, holds, next) {
                Some(_) if holds => self.begun += 1,
                Some(_) => self.ceased += 1,
                None => {}
            }
        }
        self.last = Some((read_view.vector.of_streams(&view.live.streams()), t));
    }
}

/// A step of the test: events (device, status, age in seconds) that are checkpointed or fresh, and how many seconds
/// pass.
type Step = (Vec<(u8, u8, i64)>, bool, i64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = prop::collection::vec((0u8..8, 0u8..4, 0i64..3_000), 0..4);
    // Mostly a moment passes, and sometimes long enough for windows to slide.
    let passes = prop_oneof![3 => 1i64..90, 1 => 300i64..2_400];
    prop::collection::vec((events, prop::bool::weighted(0.2), passes), 40)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_begins_and_ceases_from_look_to_look_is_what_a_look_at_every_key_finds() {
    let mut runner = TestRunner::deterministic();
    let (mut begun, mut ceased) = (0, 0);
    for _ in 0..4 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let harness = harness().await;
        let read_view = harness.node.read_view().unwrap();
        let mut looked = ["ring", "pack"].map(|name| Looked::new(planned(&read_view, name)));
        let passing: i64 = steps.iter().map(|(_, _, passes)| passes).sum();
        let (mut t, mut count, mut every) = (NOW - passing * SECOND, 0, 0);
        for (events, is_committed, passes) in steps {
            t += passes * SECOND;
            let events = events.into_iter().map(|(device, status, age)| {
                count += 1;
                event(&count.to_string(), &format_timestamp(t - age * SECOND), &format!("d{device}"), "1.00", &format!("s{status}"))
            });
            let events: Vec<String> = events.collect();
            match (events.is_empty(), is_committed) {
                (true, _) => {}
                (false, true) => {
                    harness.checkpoint(1, &events).await;
                    harness.node.refresh().await.unwrap();
                }
                (false, false) => harness.fresh(0, &events).await,
            }
            let read_view = harness.node.read_view().unwrap();
            for looked in &mut looked {
                looked.look(&read_view, t);
                let keys = every_key(&read_view, read_view.view(&looked.alert.view.view).unwrap());
                every += keys.len();
                let encoded: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
                let held = keys.iter().zip(evaluated(&read_view, &looked.alert, &encoded, t)).filter(|(_, (holds, _))| *holds);
                let expected: BTreeSet<Arc<[u8]>> = held.map(|(key, _)| key.clone()).collect();
                let found: BTreeSet<Arc<[u8]>> = looked.watch.open().keys().cloned().collect();
                assert_eq!(found, expected, "{} at {}", looked.alert.view.view, format_timestamp(t));
            }
        }
        begun += looked.iter().map(|looked| looked.begun).sum::<usize>();
        ceased += looked.iter().map(|looked| looked.ceased).sum::<usize>();
        let evaluated: usize = looked.iter().map(|looked| looked.evaluated).sum();
        assert!(evaluated < every, "{evaluated} of {every} keys");
    }
    assert!(begun > 20 && ceased > 20, "{begun} begun, {ceased} ceased");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_is_seen_again_while_it_is_live_changes_no_key_unless_events_are_counted() {
    let harness = harness().await;
    let pay = |id: &str, age: Micros, device: &str| event(id, &format_timestamp(NOW - age), device, "1.00", "one");
    harness.fresh(0, &[pay("1", 30 * SECOND, "a"), pay("2", 30 * SECOND, "b")]).await;
    let read_view = harness.node.read_view().unwrap();
    let position = read_view.vector.clone();
    harness.fresh(0, &[pay("3", SECOND, "a")]).await;
    let read_view = harness.node.read_view().unwrap();
    // Of a time after two hours, both edges had left the window.
    for (view, t, expected) in [("alike", NOW, 0), ("crowd", NOW, 2), ("alike", NOW + 2 * HOUR, 2)] {
        let view = read_view.view(view).unwrap();
        let mut index = index_within(usize::MAX);
        assert!(brought_up_to(&mut index, &read_view, view));
        let keys = keys_since(&read_view, view, (&position, t), &index, &|| Ok(())).unwrap().unwrap();
        assert_eq!(keys.len(), expected, "{} at {}", view.live.name, format_timestamp(t));
        assert_eq!(index.lacking(&read_view, view, &|| Ok(())).unwrap().map(|lacking| lacking.len()), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_edges_that_are_read_ahead_is_not_known_yet() {
    let harness = harness().await;
    let pay = |id: &str, age: Micros, device: &str, status: &str| event(id, &format_timestamp(NOW - age), device, "1.00", status);
    let ahead = [pay("1", HOUR, "a", "one"), pay("2", HOUR, "b", "one"), pay("3", HOUR, "c", "one")];
    harness.fresh(0, &ahead).await;
    let read_view = harness.node.read_view().unwrap();
    let view = read_view.view("alike").unwrap();
    let keys = every_key(&read_view, view);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
    let watched = |name: &str, t: Micros| {
        let alert = planned(&read_view, name);
        rows_of_keys(&read_view, read_view.view(&alert.view.view).unwrap(), &alert, (&keys, t), &|| Ok(())).unwrap()
    };
    assert_eq!(watched("ring", NOW - 2 * HOUR).since, [NOW - HOUR; 3]);
    // Tiles say that there is no pair before.
    let WatchedRows { found, changes, since, .. } = watched("pack", NOW - 2 * HOUR);
    assert_eq!((found, changes, since), (vec![false; 3], vec![Some(NOW - HOUR); 3], vec![Micros::MIN; 3]));
    // What is dated after the present moment is not waited for.
    harness.fresh(0, &[pay("4", -HOUR, "a", "one")]).await;
    let read_view = harness.node.read_view().unwrap();
    let ring = planned(&read_view, "ring");
    let WatchedRows { found, since, .. } =
        rows_of_keys(&read_view, read_view.view("alike").unwrap(), &ring, (&keys, NOW), &|| Ok(())).unwrap();
    assert_eq!((found, since), (vec![true; 3], vec![NOW - HOUR; 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_all_time_is_known_from_the_second_of_its_last_event_on() {
    let harness = harness().await;
    let pay = |device: &str| event(device, &format_timestamp(NOW - HOUR + SECOND / 4), device, "1.00", "one");
    harness.fresh(0, &["a", "b", "c"].map(pay)).await;
    let read_view = harness.node.read_view().unwrap();
    let (view, kin) = (read_view.view("ever").unwrap(), planned(&read_view, "kin"));
    let keys = every_key(&read_view, view);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
    let WatchedRows { found, since, .. } = rows_of_keys(&read_view, view, &kin, (&keys, NOW - HOUR), &|| Ok(())).unwrap();
    assert_eq!((found, since), (vec![true; 3], vec![NOW - HOUR; 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_share_a_limit_and_one_without_room_takes_none() {
    let harness = harness().await;
    let pay = |device: &str| event(device, &format_timestamp(NOW - HOUR), device, "1.00", "one");
    harness.fresh(0, &["a", "b", "c"].map(pay)).await;
    let first = harness.node.read_view().unwrap();
    harness.fresh(0, &[pay("d")]).await;
    let second = harness.node.read_view().unwrap();
    let views = [&first, &second].map(|read_view| (read_view, read_view.view("alike").unwrap()));
    let [(first, of_first), (second, of_second)] = views;
    // An edge takes 16 bytes.
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(5 * 16));
    let (mut one, mut other) = (ReverseIndex::new(&pool), ReverseIndex::new(&pool));
    assert!(brought_up_to(&mut one, first, of_first));
    assert_eq!((one.bytes(), pool.reserved()), (3 * 16, 3 * 16));
    assert!(brought_up_to(&mut one, second, of_second));
    assert_eq!((one.bytes(), pool.reserved()), (4 * 16, 4 * 16));
    assert!(!brought_up_to(&mut other, first, of_first));
    assert_eq!((other.bytes(), pool.reserved()), (0, 4 * 16));
    // While chunks are still to be indexed, no other index gets their room.
    one.chunks.clear();
    let lacking = one.lacking(second, of_second, &|| Ok(())).unwrap().expect("it has its room already").len();
    assert_eq!((one.bytes(), pool.reserved()), (4 * 16, 4 * 16));
    assert!(other.lacking(first, of_first, &|| Ok(())).unwrap().is_none());
    // What was not indexed to the end is indexed the next time.
    assert!(brought_up_to(&mut one, second, of_second));
    assert_eq!((one.chunks.len(), one.bytes(), pool.reserved()), (lacking, 4 * 16, 4 * 16));
    // What the view has no more takes nothing.
    assert!(brought_up_to(&mut one, first, of_first));
    assert_eq!((one.bytes(), pool.reserved()), (3 * 16, 3 * 16));
    drop(one);
    assert!(brought_up_to(&mut other, second, of_second));
    assert_eq!((other.bytes(), pool.reserved()), (4 * 16, 4 * 16));
}

/// A runner that notes its progress there keeps its lease, and one that has lost it ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_of_few_keys_can_be_ended_before_each_batch_of_edges() {
    let harness = harness().await;
    let pay = |device: &str| event(device, &format_timestamp(NOW - HOUR), device, "1.00", "one");
    harness.fresh(0, &["a", "b"].map(pay)).await;
    let position = harness.node.read_view().unwrap().vector.clone();
    harness.fresh(0, &[pay("c")]).await;
    let read_view = harness.node.read_view().unwrap();
    let (view, ring) = (read_view.view("alike").unwrap(), planned(&read_view, "ring"));
    let keys = every_key(&read_view, view);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
    let mut index = index_within(usize::MAX);
    assert!(brought_up_to(&mut index, &read_view, view));
    // The near and the far edges of the rows, and those of their times.
    for (allowed, is_read) in [(0, false), (1, false), (3, false), (4, true)] {
        let asked = AtomicUsize::new(0);
        let cancel_check = || match asked.fetch_add(1, Ordering::Relaxed) < allowed {
            true => Ok(()),
            false => Err(Error::conflict("the lease is lost")),
        };
        assert_eq!(rows_of_keys(&read_view, view, &ring, (&keys, NOW), &cancel_check).is_ok(), is_read, "{allowed}");
    }
    for is_lost in [true, false] {
        let cancel_check = || if is_lost { Err(Error::conflict("the lease is lost")) } else { Ok(()) };
        assert_eq!(keys_since(&read_view, view, (&position, NOW), &index, &cancel_check).is_err(), is_lost);
        assert_eq!(index_within(usize::MAX).lacking(&read_view, view, &cancel_check).is_err(), is_lost);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_parts_of_any_number_each_linked_key_is_once() {
    let harness = harness().await;
    let pay = |at: usize| event(&at.to_string(), &format_timestamp(NOW - HOUR), &format!("d{at}"), "1.00", "one");
    harness.checkpoint(1, &(0..20).map(pay).collect::<Vec<_>>()).await;
    harness.node.refresh().await.unwrap();
    harness.fresh(0, &(15..30).map(|at| pay(at).replace("\"id\":\"", "\"id\":\"x")).collect::<Vec<_>>()).await;
    let read_view = harness.node.read_view().unwrap();
    let view = read_view.view("alike").unwrap();
    let mut chunks_read = BTreeSet::new();
    for part_rows in [1, 7, 1_000] {
        let parts = parts_of_about(part_rows, &read_view, view).unwrap();
        let (keys, chunks) = keys_in_parts(&read_view, view, &parts);
        assert_eq!((keys.len(), keys.iter().collect::<BTreeSet<_>>().len()), (30, 30), "{} parts", parts.len());
        chunks_read.insert(chunks);
    }
    assert_eq!(chunks_read.len(), 1, "layers and fresh states are read once: {chunks_read:?}");
}
