//! Alerts: what begins and ceases is put out once, whatever dies, and silence begins by time alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::{Harness, now};
use batch::RunTime;
use catalog::DefinitionKind;
use engine::fresh::Fresh;
use event_alerts::{Alerts, alert_of};
use event_log::{Log, TopicPartition};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use serving::ServingClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::tiles::Micros;
use types::vector::Offset;

use super::show_logs;
use super::sinks::Flaky;

const PARTITIONS: u32 = 2;
const KEYS: u8 = 6;
const SECOND: Micros = 1_000_000;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, x BIGINT)
    WITH (topic = 'in', event_time = 'ts', key = 'k')";
const VIEW: &str = "CREATE VIEW v AS SELECT k, sum(x) AS total, max(ts) AS last_seen FROM s GROUP BY k";
const MUCH: &str = "CREATE ALERT much WITH (topic = 'much', resolve = true) AS SELECT k, total FROM v WHERE total >= 3";
const SILENT: &str = "CREATE ALERT silent WITH (topic = 'silent', repeat = '1s') AS
    SELECT k, last_seen FROM v WHERE as_of() - last_seen > INTERVAL '1 second'";

async fn harness(alerts: &[(&str, &str)]) -> Harness {
    show_logs();
    let harness = Harness::new().await.unwrap();
    harness.log.create_topic("in", PARTITIONS).await.unwrap();
    let alerts = alerts.iter().map(|(name, sql)| (DefinitionKind::Alert, *name, *sql));
    let definitions = [(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, "v", VIEW)].into_iter().chain(alerts);
    harness.define(&definitions.collect::<Vec<_>>()).await.unwrap();
    harness
}

/// A process with a worker, a node that shares its fresh layers, and alerts.
struct Process {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Process {
    async fn start(harness: &Harness, name: &str, has_worker: bool, failed: &Arc<AtomicUsize>) -> Process {
        let fresh = has_worker.then(Fresh::default);
        let node = harness.node(ServingClock::Wall, fresh.clone()).await.unwrap();
        let seed = name.bytes().map(u64::from).sum();
        let log: Arc<dyn Log> = Flaky::at_random(harness.log.clone(), seed, failed);
        let (group, lease) = ("basestream".to_owned(), Duration::from_millis(600));
        let clock = Arc::new(now);
        let alerts = Alerts { node: node.clone(), log, group, partitions: PARTITIONS, owner: name.into(), lease, clock };
        let stop = CancellationToken::new();
        let mut tasks = Vec::new();
        if has_worker {
            let (speed, stop) = (harness.speed(name, Duration::from_millis(200), fresh), stop.clone());
            tasks.push(tokio::spawn(async move { speed.run(stop).await.unwrap() }));
        }
        let (of_node, of_alerts) = (stop.clone(), stop.clone());
        tasks.push(tokio::spawn(async move { node.run(of_node).await }));
        tasks.push(tokio::spawn(async move { alerts.run(of_alerts).await }));
        Process { tasks, stop }
    }

    /// As if the process had died: nothing is drained.
    async fn kill(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        for task in self.tasks {
            let _ = task.await;
        }
    }

    async fn finish(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn append(harness: &Harness, events: &[(u8, i64)]) {
    let event = |(key, x): &(u8, i64)| (Some(format!("k{key}")), json!({ "ts": now(), "k": format!("k{key}"), "x": x }).to_string());
    harness.append("in", PARTITIONS, events.iter().map(event).collect()).await.unwrap();
}

/// The records of a topic by key, in their order.
async fn put_out(harness: &Harness, topic: &str) -> BTreeMap<String, Vec<Value>> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for bounds in harness.log.bounds(topic).await.unwrap() {
        let source = TopicPartition { topic: topic.into(), partition: bounds.partition };
        for record in harness.log.read(&source, Offset(0), 100_000).await.unwrap().records {
            assert_eq!(alert_of(&record.headers), Some((topic, 1)));
            let value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            assert_eq!(record.key.as_deref(), Some(value["k"].as_str().unwrap().as_bytes()));
            found.entry(value["k"].as_str().unwrap().to_owned()).or_default().push(value);
        }
    }
    found
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn state(record: Option<&Value>) -> &str {
    record.map_or("nothing", |record| record["_state"].as_str().unwrap())
}

fn time(record: &Value, member: &str) -> Micros {
    chrono::DateTime::parse_from_rfc3339(record[member].as_str().unwrap()).unwrap().timestamp_micros()
}

/// Begins and resolutions alternate, each with an id of its own.
fn check_alternating(records: &BTreeMap<String, Vec<Value>>) {
    let mut ids = BTreeSet::new();
    for (key, records) in records {
        let mut open: Option<&Value> = None;
        for record in records {
            assert!(time(record, "_since") <= time(record, "_at"), "{record}");
            match (open, state(Some(record))) {
                (None, "began") => {
                    assert!(ids.insert(record["_id"].as_str().unwrap()), "twice: {record}");
                    assert!(record["total"].as_i64().unwrap() >= 3, "{record}");
                    open = Some(record);
                }
                (Some(began), "resolved") => {
                    assert_eq!((&began["_id"], &began["_since"]), (&record["_id"], &record["_since"]));
                    assert!(record["total"].as_i64().unwrap() < 3, "{record}");
                    open = None;
                }
                (open, other) => panic!("{key}: {other} after {open:?} in {records:#?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_and_ceases_is_put_out_once_whatever_dies() {
    let seeds = std::env::var("BASESTREAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    let (failed, mut records) = (Arc::new(AtomicUsize::new(0)), 0);
    for seed in 1..=seeds {
        let harness = harness(&[("much", MUCH)]).await;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut totals: BTreeMap<u8, i64> = BTreeMap::new();
        // Another process stands by: it reads what is committed.
        let standby = Process::start(&harness, "standby", false, &failed).await;
        let mut process = Process::start(&harness, "w0", true, &failed).await;
        let mut lives = 0;
        for round in 0..80 {
            let events: Vec<(u8, i64)> =
                (0..rng.random_range(1..6)).map(|_| (rng.random_range(0..KEYS), rng.random_range(-2..4))).collect();
            events.iter().for_each(|(key, x)| *totals.entry(*key).or_default() += x);
            append(&harness, &events).await;
            // Values go down again.
            if rng.random_ratio(1, 4) {
                let (key, total) = totals.iter().next_back().map(|(key, total)| (*key, *total)).unwrap();
                append(&harness, &[(key, -total)]).await;
                totals.insert(key, 0);
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..150))).await;
            if round % 20 == 19 {
                lives += 1;
                process.kill().await;
                process = Process::start(&harness, &format!("w{lives}"), true, &failed).await;
            }
            if round % 25 == 24 {
                let _ = harness.batch("v", RunTime::At(now())).await;
            }
        }
        until("the last records do not come", async || {
            let found = put_out(&harness, "much").await;
            totals.iter().all(|(key, total)| (state(found.get(&format!("k{key}")).and_then(|of| of.last())) == "began") == (*total >= 3))
        })
        .await;
        process.finish().await;
        standby.finish().await;
        let found = put_out(&harness, "much").await;
        check_alternating(&found);
        let open = harness.catalog.open_alerts(Some("much"), None, 100).await.unwrap();
        let open: BTreeSet<String> = open.into_iter().map(|open| open.keys).collect();
        let expected = totals.iter().filter(|(_, total)| **total >= 3).map(|(key, _)| format!("{{\"k\":\"k{key}\"}}"));
        assert_eq!(open, expected.collect::<BTreeSet<_>>(), "seed {seed}");
        records += found.values().map(Vec::len).sum::<usize>();
    }
    let failed = failed.load(Ordering::Relaxed);
    assert!(records > 16 && failed > 0, "{records} records, {failed} failures");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_begins_by_time_alone_and_is_repeated() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let process = Process::start(&harness, "w0", true, &failed).await;
    // One key goes on for three seconds, the other one is silent after its first event.
    append(&harness, &[(1, 1)]).await;
    for _ in 0..30 {
        append(&harness, &[(0, 1)]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = put_out(&harness, "silent").await;
    assert!(!found.contains_key("k0"), "{found:#?}");
    let states: Vec<&str> = found["k1"].iter().map(|record| state(Some(record))).collect();
    assert_eq!((states[0], states[1]), ("began", "repeated"), "{found:#?}");
    // It dies. What was put out is not put out again, and what lasts is repeated.
    process.kill().await;
    let process = Process::start(&harness, "w1", true, &failed).await;
    until("the silence of the other key does not begin", async || put_out(&harness, "silent").await.contains_key("k0")).await;
    append(&harness, &[(1, 1)]).await;
    until("the second silence does not begin", async || {
        put_out(&harness, "silent").await["k1"].iter().filter(|record| state(Some(record)) == "began").count() == 2
    })
    .await;
    process.finish().await;
    let found = put_out(&harness, "silent").await;
    let begins = |key: &str| found[key].iter().filter(|record| state(Some(record)) == "began").count();
    assert_eq!((begins("k0"), begins("k1")), (1, 2), "{found:#?}");
    for records in found.values() {
        let mut last = Micros::MIN;
        for record in records {
            let (since, at, seen) = (time(record, "_since"), time(record, "_at"), time(record, "last_seen"));
            assert!(since > seen + SECOND && at > last, "{records:#?}");
            match state(Some(record)) {
                "began" => assert_eq!(since, at),
                _ => assert!(at >= last + SECOND, "{records:#?}"),
            }
            last = at;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_nobody_has_read_yet_are_no_silence() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let process = Process::start(&harness, "w0", true, &failed).await;
    append(&harness, &[(0, 1)]).await;
    harness.committed("s", "in").await.unwrap();
    process.finish().await;
    // The alert is run, and no worker reads: the key goes on, unseen, for longer than its silence may last.
    let runs_alone = Process::start(&harness, "alone", false, &failed).await;
    for _ in 0..25 {
        append(&harness, &[(0, 1)]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = put_out(&harness, "silent").await;
    assert!(found.is_empty(), "{found:#?}");
    let last = now();
    let process = Process::start(&harness, "w1", true, &failed).await;
    until("the silence does not begin", async || put_out(&harness, "silent").await.contains_key("k0")).await;
    process.finish().await;
    runs_alone.finish().await;
    let began = &put_out(&harness, "silent").await["k0"][0];
    assert!(time(began, "_since") > last, "it began at {began}, before the last event's second was over");
}
