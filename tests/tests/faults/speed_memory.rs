//! What a worker holds while it reads: `checkpoint_bytes` and half as much, whatever the views keep, with one key and
//! with many.
//!
//! A worker begins a checkpoint at a quarter of `checkpoint_bytes`, of events and states together. It holds that
//! quarter until it is committed, merges and encodes it, and reads the next one meanwhile.

use std::time::Duration;

use arrow::array::Array;
use basestream_tests::{Harness, Worker, until};
use catalog::DefinitionKind::{Stream, View};
use engine::events::format_timestamp;
use engine::fresh::Fresh;
use storage::StatesObject;
use tokio_util::sync::CancellationToken;
use types::files::FileKind;
use types::vector::{Offset, PartitionId};

use crate::heap::{Growth, alone};
use crate::run_memory::{AGGREGATES, mixed};

const LIMIT_BYTES: usize = 16 << 20;
/// Half as much again for the plans of twenty-five views, the records that are being decided, and what the views make
/// of one micro-batch.
const MOST_BYTES: usize = LIMIT_BYTES + LIMIT_BYTES / 2;
/// Aggregates whose states are small, however many events a key has.
const SMALL: [&str; 12] = [
    "count(*)",
    "sum(x)",
    "sum(d)",
    "avg(d)",
    "max(u)",
    "approx_distinct(u)",
    "approx_median(x)",
    "first_value(u ORDER BY ts)",
    "last_n(u, 20)",
    "top_k(u, 20)",
    "var_pop(x)",
    "retention(x > 5, x > 10)",
];
/// `top_k` keeps 768 values, of 200 bytes here.
const SMALL_BYTES: usize = 256 << 10;
const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT, d DECIMAL(18, 2), u TEXT) \
    WITH (format = 'json', event_time = 'ts', keep_raw = false)";
const BASE: i64 = 1_767_225_600_000_000;
const DAY: i64 = 86_400_000_000;

/// What a worker reads.
struct Feed {
    keys: i64,
    events: i64,
    /// The log has no more than this for it at a time: what waits to be decided is not under the limit.
    at_once: i64,
    /// How many checkpoints it takes at the least, if events and states are counted.
    checkpoints: usize,
}

/// The events of one key are what takes the memory: several checkpoints' worth. Of many keys it is the states, of which
/// each key has twenty-five: several times the limit.
const FEEDS: [Feed; 2] =
    [Feed { keys: 1, events: 40_000, at_once: 1_000, checkpoints: 3 }, Feed { keys: 6_000, events: 12_000, at_once: 250, checkpoints: 4 }];

/// All aggregates together, so that none can hold more alone. If they do, each is measured.
#[test]
fn a_worker_of_all_aggregates_holds_its_limit_and_half_as_much_at_most() {
    alone("speed_memory::a_worker_of_all_aggregates_holds_its_limit_and_half_as_much_at_most", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            for feed in &FEEDS {
                let (held, checkpoints) = held_by_a_worker(feed, &AGGREGATES).await;
                println!("{} keys: {} KiB held, {checkpoints} checkpoints", feed.keys, held >> 10);
                if held > MOST_BYTES {
                    for aggregate in AGGREGATES {
                        println!("{aggregate} of {} keys alone: {} KiB", feed.keys, held_by_a_worker(feed, &[aggregate]).await.0 >> 10);
                    }
                }
                assert!(held <= MOST_BYTES, "{} keys: {held} bytes are held, expected at most {MOST_BYTES}", feed.keys);
                assert!(checkpoints >= feed.checkpoints, "{} keys: {checkpoints} checkpoints, expected {}", feed.keys, feed.checkpoints);
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
    });
}

/// The growth of the heap while a worker with a view for each aggregate reads, and how many checkpoints it made.
async fn held_by_a_worker(feed: &Feed, aggregates: &[&'static str]) -> (usize, usize) {
    let harness = Harness::new().await.unwrap();
    let sql_of = |(number, aggregate): (usize, &&str)| format!("CREATE VIEW v{number} AS SELECT k, {aggregate} AS a FROM s GROUP BY k");
    let views: Vec<(String, String)> = aggregates.iter().enumerate().map(|view| (format!("v{}", view.0), sql_of(view))).collect();
    let mut definitions = vec![(Stream, "s", STREAM)];
    definitions.extend(views.iter().map(|(name, sql)| (View, name.as_str(), sql.as_str())));
    harness.define(&definitions).await.unwrap();
    harness.log.create_topic("s", 1).await.unwrap();

    let growth = Growth::begin();
    let fresh = Fresh::unread();
    let worker = start(&harness, fresh.clone());
    let partition = PartitionId::new("s", 0);
    for from in (0..feed.events).step_by(feed.at_once as usize) {
        let records = (from..from + feed.at_once).map(|number| (None::<String>, event(number, feed.keys)));
        harness.append("s", 1, records.collect()).await.unwrap();
        until("the worker to read on", async || {
            assert!(!worker.task.is_finished(), "the worker ended");
            let committed = harness.catalog.state().await.unwrap().vector();
            fresh.after(&committed).end.get(&partition) >= Offset(from + feed.at_once)
        })
        .await;
    }
    worker.finish().await.unwrap();
    let held = growth.bytes();
    (held, check_states(&harness, feed, aggregates).await)
}

/// No checkpoint is due because of its age.
fn start(harness: &Harness, fresh: Fresh) -> Worker {
    let mut speed = harness.speed("one", Duration::from_secs(3_600), Some(fresh));
    speed.settings.checkpoint_bytes = LIMIT_BYTES;
    let stop = CancellationToken::new();
    let token = stop.clone();
    Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
}

fn event(number: i64, keys: i64) -> String {
    let (time, mixed) = (format_timestamp(BASE + mixed(number) % DAY), mixed(number));
    let (key, whole, cents) = (mixed % keys, number / 100, number % 100);
    format!(r#"{{"ts":"{time}","k":"key {key:08}","x":{number},"d":"{whole}.{cents:02}","u":"{mixed:0200}"}}"#)
}

/// Checks that each checkpoint has the states of all views, and that they are compact. Returns how many there are.
async fn check_states(harness: &Harness, feed: &Feed, aggregates: &[&'static str]) -> usize {
    let state = harness.catalog.state().await.unwrap();
    let mut counted = 0;
    for file in state.readable(FileKind::States) {
        let object = StatesObject::open(&harness.storage, file).await.unwrap();
        assert_eq!(object.sections().len(), aggregates.len(), "views in {}", file.path);
        for section in object.sections() {
            let aggregate = aggregates[section.view[1..].parse::<usize>().unwrap()];
            let batches = object.read_section(section).await.unwrap();
            let columns = batches.iter().flat_map(|batch| batch.columns());
            let bytes: usize = columns.map(|column| column.to_data().get_slice_memory_size().unwrap()).sum();
            counted += usize::from(bytes > 0);
            assert!(feed.keys > 1 || !SMALL.contains(&aggregate) || bytes <= SMALL_BYTES, "{aggregate} keeps {bytes} bytes of a key");
        }
    }
    assert!(counted >= aggregates.len(), "only {counted} sections have states");
    state.checkpoints.len()
}
