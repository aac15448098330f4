//! A row from the cache is always the row that would be made now, whatever is published, committed or merged.

use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::FairSpillPool;
use engine::fresh::ViewVersion;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use types::tiles::Micros;

use super::*;
use crate::answerer::WantedPaths;
use crate::harness::{Harness, NOW, event};
use crate::lookup::{KeyRows, Keys};
use crate::query_context::QueryContext;
use crate::{HotFrom, NodeSettings};

const MINUTE: Micros = 60_000_000;
const ALIKE: &str = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) FILTER (WHERE within(theirs.ts, '2h')) AS devices \
    FROM payments mine JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";
const AGES: &str = "CREATE VIEW ages AS SELECT device, as_of() - max(ts) AS age, count(*) AS n FROM payments GROUP BY device";
const VIEWS: [&str; 4] = ["velocity", "pairs", "alike", "ages"];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Every key that is asked for is hot.
async fn harness() -> Harness {
    let harness = Harness::with_settings(|settings| NodeSettings { hot_keys: always(settings.hot_keys.row_cache_bytes), ..settings }).await;
    harness.define_view("alike", ALIKE).await;
    harness.define_view("ages", AGES).await;
    harness
}

fn always(row_cache_bytes: usize) -> crate::HotKeySettings {
    let hot = HotFrom { share: 1.0, per_second: 0.0 };
    crate::HotKeySettings { events: hot, lookups: hot, row_cache_bytes }
}

/// A lookup of one key at a time.
fn lookup(harness: &Harness, view: &str, device: &str, t: Micros) -> KeyRows {
    let mut read_view = harness.node.read_view().unwrap();
    read_view.now = t;
    let columns = (0..read_view.live(view).unwrap().plan.columns.len()).collect();
    let context = QueryContext::new(read_view, None, &[view]).unwrap();
    let mut key = vec![ScalarValue::from(device)];
    if view == "pairs" {
        key.push(ScalarValue::from("ok"));
    }
    KeyRows { context, view: view.into(), keys: vec![key], columns, paths: WantedPaths::default() }
}

async fn answered(harness: &Harness, view: &str, device: &str, t: Micros) -> (RecordBatch, bool) {
    let answers = lookup(harness, view, device, t).answer(harness.node.runtime()).await.unwrap();
    (answers.rows, answers.found[0])
}

fn anew(harness: &Harness, view: &str, device: &str, t: Micros) -> (RecordBatch, bool) {
    let lookup = lookup(harness, view, device, t);
    let columns = lookup.key_columns(lookup.view().unwrap()).unwrap();
    let answers = lookup.rows(&columns, None, None, &|| Ok(())).unwrap();
    (answers.rows, answers.found[0])
}

fn is_same(one: &RecordBatch, other: &RecordBatch) -> bool {
    one.columns().iter().zip(other.columns()).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Events of the devices `a` and `b`, or of one more, each this long before now.
type Events = Vec<(u8, Micros)>;

#[derive(Debug, Clone)]
enum Step {
    Publish(i32, Events),
    /// What is published of a partition is committed.
    Commit(i32),
    /// It is taken back, and read again.
    Withdraw(i32),
    Snapshot(usize),
    Later(Micros),
    Ask,
}

fn step() -> impl Strategy<Value = Step> {
    let events = || prop::collection::vec((0u8..3, 0..300 * MINUTE), 1..6);
    prop_oneof![
        4 => (0..2, events()).prop_map(|(partition, events)| Step::Publish(partition, events)),
        2 => (0..2).prop_map(Step::Commit),
        1 => (0..2).prop_map(Step::Withdraw),
        1 => (0..2usize).prop_map(Step::Snapshot),
        2 => (0..20 * MINUTE).prop_map(Step::Later),
        1 => (0..5_000_000i64).prop_map(Step::Later),
        2 => Just(Step::Ask),
    ]
}

/// What is not committed yet, of each partition.
#[derive(Default)]
struct Pending {
    events: [Vec<String>; 2],
    count: usize,
}

impl Pending {
    fn made(&mut self, events: &Events) -> Vec<String> {
        let one = |(device, before): &(u8, Micros)| {
            self.count += 1;
            let ts = engine::events::format_timestamp(NOW - before);
            event(&self.count.to_string(), &ts, ["a", "b", "c"][usize::from(*device)], "1.50", "ok")
        };
        events.iter().map(one).collect()
    }

    async fn take(&mut self, harness: &Harness, step: &Step) {
        match step {
            Step::Publish(partition, events) => {
                let made = self.made(events);
                harness.fresh(*partition, &made).await;
                self.events[*partition as usize].extend(made);
            }
            Step::Commit(partition) if !self.events[*partition as usize].is_empty() => {
                let events = std::mem::take(&mut self.events[*partition as usize]);
                harness.withdraw(*partition);
                harness.checkpoint(*partition, &events).await;
                harness.node.refresh().await.unwrap();
            }
            Step::Withdraw(partition) => {
                let events = std::mem::take(&mut self.events[*partition as usize]);
                harness.withdraw(*partition);
                if !events.is_empty() {
                    harness.fresh(*partition, &events).await;
                    self.events[*partition as usize] = events;
                }
            }
            Step::Snapshot(view) => {
                harness.snapshot(VIEWS[*view]).await;
                harness.node.refresh().await.unwrap();
            }
            Step::Commit(_) | Step::Later(_) | Step::Ask => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Floating point numbers are compared bit by bit.
    #[test]
    fn a_cached_row_is_the_row_that_is_made_anew(steps in prop::collection::vec(step(), 1..24)) {
        RUNTIME.block_on(async {
            let harness = harness().await;
            let (mut pending, mut t) = (Pending::default(), NOW);
            for step in &steps {
                pending.take(&harness, step).await;
                if let Step::Later(by) = step {
                    t += by;
                }
                for (view, device) in VIEWS.iter().flat_map(|view| ["a", "b"].map(|device| (view, device))) {
                    let expected = anew(&harness, view, device, t);
                    prop_assert_eq!(answered(&harness, view, device, t).await, expected.clone(), "{} of {} after {:?}", device, view, step);
                    let again = answered(&harness, view, device, t).await;
                    prop_assert_eq!(again, expected, "again: {} of {} after {:?}", device, view, step);
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_row_stays_until_a_layer_touches_its_key_or_an_edge_moves() {
    let harness = harness().await;
    harness.checkpoint(0, &[event("1", "2026-03-02T11:30:00Z", "a", "1.00", "ok")]).await;
    harness.node.refresh().await.unwrap();
    let ask = async |t: Micros| answered(&harness, "velocity", "a", t).await.0;
    let first = ask(NOW).await;
    assert!(is_same(&ask(NOW).await, &first), "it is made again");
    harness.fresh(1, &[event("2", "2026-03-02T11:58:00Z", "b", "1.00", "ok")]).await;
    assert!(is_same(&ask(NOW).await, &first), "a layer without the key");
    // The hop of an hour is a minute, that of seven days an hour.
    assert!(is_same(&ask(NOW + MINUTE - 1).await, &first), "within a hop");
    assert!(!is_same(&ask(NOW + MINUTE).await, &first), "past an edge");
    let second = ask(NOW).await;
    harness.fresh(0, &[event("3", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
    assert!(!is_same(&ask(NOW).await, &second), "a layer with the key");
    let third = ask(NOW).await;
    harness.snapshot("velocity").await;
    harness.node.refresh().await.unwrap();
    assert!(!is_same(&ask(NOW).await, &third), "a snapshot in the place of a checkpoint");
}

#[tokio::test]
async fn a_row_that_a_walk_makes_stays_until_a_layer_touches_its_view() {
    let harness = harness().await;
    harness.checkpoint(0, &[event("1", "2026-03-02T11:30:00Z", "a", "1.00", "ok")]).await;
    harness.node.refresh().await.unwrap();
    let ask = async |t: Micros| answered(&harness, "alike", "a", t).await.0;
    let first = ask(NOW).await;
    assert!(is_same(&ask(NOW).await, &first), "it is walked again");
    assert!(!is_same(&ask(NOW + 3 * 60 * MINUTE).await, &first), "past an edge");
    let second = ask(NOW).await;
    harness.fresh(1, &[event("2", "2026-03-02T11:58:00Z", "b", "1.00", "ok")]).await;
    assert!(!is_same(&ask(NOW).await, &second), "another key's event links to it");
}

#[tokio::test]
async fn a_row_that_changes_with_the_time_is_made_each_time() {
    let harness = harness().await;
    harness.fresh(0, &[event("1", "2026-03-02T11:30:00Z", "a", "1.00", "ok")]).await;
    let first = answered(&harness, "ages", "a", NOW).await.0;
    assert!(!is_same(&answered(&harness, "ages", "a", NOW).await.0, &first));
    assert_ne!(answered(&harness, "ages", "a", NOW + 1).await.0, first);
}

#[tokio::test]
async fn the_row_is_cached_and_what_the_answer_says_of_itself_is_not() {
    let harness = harness().await;
    harness.checkpoint(0, &[event("1", "2026-03-02T11:30:00Z", "a", "1.00", "ok")]).await;
    harness.node.refresh().await.unwrap();
    let ask = async || harness.node.lookup("velocity", Keys::Text(vec![vec![("device".into(), "a".into())]]), None).await.unwrap();
    let first = ask().await;
    harness.fresh(1, &[event("2", "2026-03-02T11:58:00Z", "b", "1.00", "ok")]).await;
    let second = ask().await;
    assert!(is_same(&second.rows, &first.rows), "it is made again");
    assert_eq!(second.meta.cut, "payments/0:1,payments/1:1".parse().unwrap());
    assert_eq!(first.meta.cut, "payments/0:1".parse().unwrap());
    assert_eq!(
        second.meta.complete_to,
        harness.node.read_view().unwrap().complete_to_of(&harness.node.read_view().unwrap().live("velocity").unwrap().clone())
    );
}

#[tokio::test]
async fn only_rows_of_hot_keys_are_kept_and_none_of_several_keys_or_of_a_time_that_is_named() {
    let harness = Harness::filled().await;
    let key = |device: &str| vec![("device".to_owned(), device.to_owned())];
    let ask = async |devices: &[&str], as_of: Option<Micros>| {
        harness.node.lookup("velocity", Keys::Text(devices.iter().map(|device| key(device)).collect()), as_of).await.unwrap().rows
    };
    let first = ask(&["a"], None).await;
    assert!(!is_same(&ask(&["a"], None).await, &first), "it is not hot yet");
    for _ in 0..20 {
        ask(&["a"], None).await;
    }
    let hot = ask(&["a"], None).await;
    assert!(is_same(&ask(&["a"], None).await, &hot));
    assert!(!is_same(&ask(&["a"], Some(NOW)).await, &hot) && !is_same(&ask(&["a", "b"], None).await, &hot));
}

#[tokio::test]
async fn without_room_no_row_is_kept() {
    let harness = Harness::with_settings(|settings| NodeSettings { hot_keys: always(0), ..settings }).await;
    let first = answered(&harness, "velocity", "a", NOW).await.0;
    assert!(!is_same(&answered(&harness, "velocity", "a", NOW).await.0, &first));

    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1 << 20));
    let cache = RowCache::new(20_000, &pool);
    let answers = lookup(&harness, "velocity", "a", NOW).answer(harness.node.runtime()).await.unwrap();
    for at in 0..1_000u32 {
        let key = KeyName { view: ViewVersion::new("v", 1), key: at.to_be_bytes().as_slice().into() };
        let name = RowName { key, columns: Arc::new([0]) };
        let RowValidity::New(basis) = (RowInputs { spans: Vec::new(), parts: Vec::new() }).compared(None) else { panic!() };
        cache.put(name.clone(), basis, &answers);
        assert!(cache.get(&name).is_some() && pool.reserved() <= 20_000);
    }
    assert!(cache.lock().unwrap().len() > 5, "{cache:?}");
}
