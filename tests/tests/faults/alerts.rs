//! Alerts: what begins and ceases is put out once, whatever dies, and silence begins by time alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::{Harness, now, records_of, until};
use batch::RunTime;
use catalog::{Add, Advance, AlertTransition, Commit, DefinitionKind, PauseRecord, Remove};
use engine::fresh::Fresh;
use event_alerts::{ALERT_HEADER, ALERT_STALLED, Alerts, StalledAlerts, alert_of};
use event_log::{Log, LogOutput, NewRecord, TopicPartition};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use serving::{Node, ServingClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::TransitionKind;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use super::sinks::Flaky;
use super::sinks::parameters::{define_value, set_to, values_of};
use super::{seeds, show_logs};

mod keys;
mod killed;
mod links;
mod refused;
mod windows;

const PARTITIONS: u32 = 2;
const KEYS: u8 = 6;
const SECOND: Micros = 1_000_000;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, x BIGINT)
    WITH (topic = 'in', event_time = 'ts', key = 'k')";
const VIEW: &str = "CREATE VIEW v AS SELECT k, sum(x) AS total, max(ts) AS last_seen FROM s GROUP BY k";
const MUCH: &str = "CREATE ALERT much WITH (topic = 'much', resolve = true) AS SELECT k, total FROM v WHERE total >= 3";
const LEAST: &str = "CREATE PARAMETER least = 3";
const AT_LEAST: &str = "CREATE ALERT much WITH (topic = 'much', resolve = true) AS SELECT k, total FROM v WHERE total >= param('least')";
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
    stalled: StalledAlerts,
    /// The node, for those who ask it.
    reads: Node,
}

impl Process {
    async fn start(harness: &Harness, name: &str, has_worker: bool, failed: &Arc<AtomicUsize>) -> Process {
        Process::start_by(ServingClock::Wall, harness, name, has_worker, failed).await
    }

    async fn start_by(clock: ServingClock, harness: &Harness, name: &str, has_worker: bool, failed: &Arc<AtomicUsize>) -> Process {
        let fresh = has_worker.then(Fresh::default);
        let node = harness.node(clock, fresh.clone()).await.unwrap();
        Process::start_with(node, fresh, harness, name, failed)
    }

    /// It has a worker if it has a list of fresh layers.
    fn start_with(node: Node, fresh: Option<Fresh>, harness: &Harness, name: &str, failed: &Arc<AtomicUsize>) -> Process {
        let seed = name.bytes().map(u64::from).sum();
        Process::start_on(Flaky::at_random(harness.log.clone(), seed, failed), node, fresh, harness, name)
    }

    /// The records of its alerts go to this log.
    fn start_on(log: Arc<dyn Log>, node: Node, fresh: Option<Fresh>, harness: &Harness, name: &str) -> Process {
        let (group, lease) = ("basestream".to_owned(), Duration::from_millis(600));
        let clock = Arc::new(now);
        let (owner, stalled) = (name.into(), StalledAlerts::default());
        let reads = node.clone();
        let alerts = Alerts { node: node.clone(), log, group, partitions: PARTITIONS, owner, lease, clock, stalled: stalled.clone() };
        let stop = CancellationToken::new();
        let mut tasks = Vec::new();
        if fresh.is_some() {
            let (speed, stop) = (harness.speed(name, Duration::from_millis(200), fresh), stop.clone());
            tasks.push(tokio::spawn(async move { speed.run(stop).await.unwrap() }));
        }
        let (of_node, of_alerts) = (stop.clone(), stop.clone());
        tasks.push(tokio::spawn(async move { node.run(of_node).await }));
        tasks.push(tokio::spawn(async move { alerts.run(of_alerts).await }));
        Process { tasks, stop, stalled, reads }
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
    for (_, record) in records_of(&*harness.log, topic).await.unwrap() {
        assert_eq!(alert_of(&record.headers), Some((topic, 1)));
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        assert_eq!(record.key.as_deref(), Some(value["k"].as_str().unwrap().as_bytes()));
        found.entry(value["k"].as_str().unwrap().to_owned()).or_default().push(value);
    }
    found
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
    let (failed, mut records) = (Arc::new(AtomicUsize::new(0)), 0);
    for seed in seeds(2) {
        let harness = harness(&[("much", MUCH)]).await;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut totals: BTreeMap<u8, i64> = BTreeMap::new();
        // Another process stands by: it reads what is committed.
        let standby = Process::start(&harness, "standby", false, &failed).await;
        let mut process = Process::start(&harness, "w0", true, &failed).await;
        let (mut lives, began) = (0, Instant::now());
        for round in 0.. {
            // However slow the machine is, alerts begin and cease, and some appends fail.
            let count = async || put_out(&harness, "much").await.values().map(Vec::len).sum::<usize>();
            if round >= 80 && failed.load(Ordering::Relaxed) > 0 && count().await > 8 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(180), "timed out: seed {seed}: few records are out, or no append has failed");
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
        // What is out may be right before the last events are read, and wrong after some of them.
        harness.committed("s", "in").await.unwrap();
        until("the last records", async || {
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
async fn a_parameter_that_is_set_begins_and_resolves_alerts_without_an_event() {
    let harness = harness(&[("much", AT_LEAST)]).await;
    harness.define(&[(DefinitionKind::Parameter, "least", LEAST)]).await.unwrap();
    define_value(&harness, "least", "BIGINT", "3").await;
    let failed = Arc::new(AtomicUsize::new(0));
    let standby = Process::start(&harness, "standby", false, &failed).await;
    let mut process = Process::start(&harness, "w0", true, &failed).await;
    let totals: Vec<(u8, i64)> = (0..KEYS).map(|key| (key, i64::from(key) + 1)).collect();
    append(&harness, &totals).await;
    let (mut rng, mut lives) = (StdRng::seed_from_u64(1), 0);
    for round in 0..10 {
        let least = rng.random_range(1..=i64::from(KEYS) + 1);
        set_to(&harness, "least", least).await;
        if round % 3 == 2 {
            lives += 1;
            process.kill().await;
            process = Process::start(&harness, &format!("w{lives}"), true, &failed).await;
        }
        until("the alerts to follow the parameter", async || {
            let found = put_out(&harness, "much").await;
            totals
                .iter()
                .all(|(key, total)| (state(found.get(&format!("k{key}")).and_then(|of| of.last())) == "began") == (*total >= least))
        })
        .await;
    }
    process.finish().await;
    standby.finish().await;
    let values = values_of(&harness, "least").await;
    let mut records = 0;
    for (key, of_key) in put_out(&harness, "much").await {
        let (mut last, mut is_open) = (0, false);
        for record in of_key {
            let version = record["_parameters"]["least"].as_u64().unwrap() as u32;
            let holds = record["total"].as_i64().unwrap() >= values[&version];
            assert_eq!(state(Some(&record)), if holds { "began" } else { "resolved" }, "{key}: {record}");
            assert!(version >= last && holds != is_open, "{key}: {record}");
            (last, is_open, records) = (version, holds, records + 1);
        }
    }
    assert!(records > 10, "{records}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_begins_by_time_alone_and_is_repeated() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let process = Process::start(&harness, "w0", true, &failed).await;
    // One key goes on for three seconds, the other one is silent after its first event.
    append(&harness, &[(1, 1)]).await;
    // Where this machine stands still for more than a second, the first key is silent as well.
    let (mut rounds, mut last, mut pauses) = (0, now(), 0);
    until("the other key to be silent for long", async || {
        let before = now();
        append(&harness, &[(0, 1)]).await;
        pauses += usize::from(now() - last > SECOND);
        (rounds, last) = (rounds + 1, before);
        tokio::time::sleep(Duration::from_millis(80)).await;
        rounds >= 30 && put_out(&harness, "silent").await.get("k1").is_some_and(|records| records.len() > 1)
    })
    .await;
    let found = put_out(&harness, "silent").await;
    pauses += usize::from(now() - last > SECOND);
    assert!(pauses > 0 || !found.contains_key("k0"), "{found:#?}");
    let states: Vec<&str> = found["k1"].iter().map(|record| state(Some(record))).collect();
    assert_eq!((states[0], states[1]), ("began", "repeated"), "{found:#?}");
    // It dies. What was put out is not put out again, and what lasts is repeated.
    process.kill().await;
    let process = Process::start(&harness, "w1", true, &failed).await;
    until("the silence of the other key", async || put_out(&harness, "silent").await.contains_key("k0")).await;
    append(&harness, &[(1, 1)]).await;
    until("the second silence", async || {
        put_out(&harness, "silent").await["k1"].iter().filter(|record| state(Some(record)) == "began").count() == 2
    })
    .await;
    process.finish().await;
    let found = put_out(&harness, "silent").await;
    let begins = |key: &str| found[key].iter().filter(|record| state(Some(record)) == "began").count();
    assert!((1..=1 + pauses).contains(&begins("k0")), "{pauses} pauses: {found:#?}");
    assert_eq!(begins("k1"), 2, "{found:#?}");
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
    append(&harness, &[(0, 1)]).await;
    harness.commit_at_once("w0", &[("s", "in")]).await.unwrap();
    // The alert is run, and no worker reads: the key goes on, unseen, for longer than its silence may last. Nothing
    // evaluates it before the first of these events is there.
    append(&harness, &[(0, 1)]).await;
    let runs_alone = Process::start(&harness, "alone", false, &failed).await;
    let mut last = now();
    for _ in 0..25 {
        last = now();
        append(&harness, &[(0, 1)]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    silence_begins_once_the_events_are_read(&harness, runs_alone, last, &failed).await;
}

/// Nothing is put out of k0 until a worker reads its events, of which the last has this time or a later one.
async fn silence_begins_once_the_events_are_read(harness: &Harness, runs_alone: Process, last: Micros, failed: &Arc<AtomicUsize>) {
    let found = put_out(harness, "silent").await;
    assert!(found.is_empty(), "{found:#?}");
    let process = Process::start(harness, "w1", true, failed).await;
    until("the silence", async || put_out(harness, "silent").await.contains_key("k0")).await;
    process.finish().await;
    runs_alone.finish().await;
    let began = &put_out(harness, "silent").await["k0"][0];
    assert!(time(began, "_since") > last + SECOND, "it began at {began}, before the last event's second was over");
}

/// A key of records for each of the two partitions.
async fn keys_of_partitions(harness: &Harness) -> [String; 2] {
    harness.log.create_topic("probe", PARTITIONS).await.unwrap();
    let keys: Vec<String> = (0..16).map(|key| format!("p{key}")).collect();
    let record = |key: &String| NewRecord { key: Some(key.clone().into()), ..NewRecord::default() };
    let places = harness.log.append("probe", keys.iter().map(record).collect()).await.unwrap();
    [0, 1].map(|partition| keys[places.iter().position(|(of, _)| *of == partition).unwrap()].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_partition_that_was_never_committed_are_no_silence() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    // The device has events in both.
    let [read, unread] = keys_of_partitions(&harness).await;
    let append = async |partition: &str| {
        let event = json!({ "ts": now(), "k": "k0", "x": 1 }).to_string();
        harness.append("in", PARTITIONS, vec![(Some(partition.to_owned()), event)]).await.unwrap();
    };
    append(&read).await;
    harness.commit_at_once("w0", &[("s", "in")]).await.unwrap();
    // A worker elsewhere goes on with the first partition, and none reads the other one. Nothing evaluates the
    // key before the first event there.
    append(&unread).await;
    let runs_alone = Process::start(&harness, "alone", false, &failed).await;
    let mut last = now();
    for _ in 0..25 {
        last = now();
        append(&unread).await;
        let state = harness.catalog.state().await.unwrap();
        assert_eq!(state.partitions.len(), 1);
        let known = state.partitions.values().next().unwrap();
        let complete = Advance {
            partition: known.id.clone(),
            start: known.next_offset,
            end: known.next_offset,
            log_identity: known.log_identity.clone(),
            clock: known.clock,
            max_event_time: known.max_event_time,
            complete_to: Some(now()),
        };
        harness.catalog.commit(Commit { id: Uuid::now_v7(), advance: vec![complete], ..Commit::default() }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    silence_begins_once_the_events_are_read(&harness, runs_alone, last, &failed).await;
}

/// No worker commits anything of a partition without records, and a process without one reads what is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_records_holds_no_silence_up() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let worker = harness.worker("w0", Duration::from_millis(200), None);
    let runs_alone = Process::start(&harness, "alone", false, &failed).await;
    append(&harness, &[(0, 1)]).await;
    until("the silence", async || put_out(&harness, "silent").await.contains_key("k0")).await;
    runs_alone.finish().await;
    worker.stop.cancel();
    worker.task.await.unwrap().unwrap();
    assert_eq!(harness.catalog.state().await.unwrap().partitions.len(), 1);
}

/// The process that runs the alert had read a partition itself, and follows nobody: it learns from the catalog how far
/// another one is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_goes_on_when_a_partition_goes_to_another_process() {
    let harness = harness(&[("silent", SILENT)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let runs = Process::start(&harness, "w0", true, &failed).await;
    let [first, second] = keys_of_partitions(&harness).await;
    let report = async |device: &str| {
        let event = |partition: &String| (Some(partition.clone()), json!({ "ts": now(), "k": device, "x": 1 }).to_string());
        harness.append("in", PARTITIONS, [&first, &second].map(event).into()).await.unwrap();
    };
    report("k0").await;
    until("the first silence", async || put_out(&harness, "silent").await.contains_key("k0")).await;
    let joins = harness.worker("w1", Duration::from_millis(200), None);
    tokio::time::sleep(Duration::from_secs(4)).await;
    report("k1").await;
    until("the silence after the second process joined", async || put_out(&harness, "silent").await.contains_key("k1")).await;
    assert_eq!(harness.catalog.alert_runners().await.unwrap()[0].owner, "w0");
    runs.finish().await;
    joins.stop.cancel();
    joins.task.await.unwrap().unwrap();
}

/// What begins and lasts is put out after the pause, what was open and ended in it is resolved, and nothing meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_that_is_paused_puts_nothing_out_and_looks_at_all_keys_when_it_is_resumed() {
    let harness = harness(&[("much", MUCH)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let process = Process::start(&harness, "w0", true, &failed).await;
    append(&harness, &[(0, 3)]).await;
    until("the first key", async || put_out(&harness, "much").await.contains_key("k0")).await;
    let (kind, name) = (DefinitionKind::Alert, Arc::from("much"));
    let pause = Add::Pause(PauseRecord { kind, name, since: now() });
    harness.catalog.commit(Commit { add: vec![pause], ..Commit::default() }).await.unwrap();
    // The process evaluates no event after this.
    let is_paused = async || process.reads.loaded().unwrap().registry.alerts.iter().all(|alert| alert.paused_since.is_some());
    until("the pause to be known", is_paused).await;
    append(&harness, &[(0, -1), (1, 3), (2, 3), (2, -1)]).await;
    harness.committed("s", "in").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let found = put_out(&harness, "much").await;
    assert!(found.len() == 1 && found["k0"].len() == 1, "{found:#?}");
    let resume = Remove::Pause { kind, name: "much".into() };
    harness.catalog.commit(Commit { remove: vec![resume], ..Commit::default() }).await.unwrap();
    until("the second key", async || put_out(&harness, "much").await.contains_key("k1")).await;
    until("the first key to be resolved", async || state(put_out(&harness, "much").await["k0"].last()) == "resolved").await;
    process.finish().await;
    let found = put_out(&harness, "much").await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["k0", "k1"], "{found:#?}");
    check_alternating(&found);
}

/// A view may get other keys, and read other streams, while an alert over it stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_open_of_a_key_that_the_view_does_not_have_any_more_ceases() {
    const MUCH: &str = "CREATE ALERT much WITH (topic = 'much') AS SELECT k, total FROM v WHERE total >= 3";
    let harness = harness(&[("much", MUCH)]).await;
    let open = AlertTransition {
        alert: "much".into(),
        version: 1,
        seq: 0,
        id: "much@1:{\"device\":9}:1970-01-01T00:00:00.000005Z".to_owned(),
        kind: TransitionKind::Began,
        keys: "{\"device\":9}".to_owned(),
        since: 5,
        at: 5,
        record: Some("{\"k\":\"k9\"}".to_owned()),
        record_key: Some("k9".to_owned()),
    };
    let mut position = Vector::new();
    position.set(PartitionId::new("gone", 0), Offset(7));
    let position = Add::AlertPosition { alert: "much".into(), version: 1, position, at: 5 };
    let add = vec![Add::AlertTransition(Box::new(open)), position];
    harness.catalog.commit(Commit { add, ..Commit::default() }).await.unwrap();
    let process = Process::start(&harness, "w0", true, &Arc::new(AtomicUsize::new(0))).await;
    append(&harness, &[(0, 3)]).await;
    until("the key", async || put_out(&harness, "much").await.contains_key("k0")).await;
    process.finish().await;
    let open = harness.catalog.open_alerts(Some("much"), None, 10).await.unwrap();
    assert_eq!(open.iter().map(|open| &*open.keys).collect::<Vec<_>>(), ["{\"k\":\"k0\"}"]);
    let kinds: Vec<TransitionKind> =
        harness.catalog.alert_transitions("much", 1, 0, 10).await.unwrap().iter().map(|made| made.kind).collect();
    assert_eq!(kinds, [TransitionKind::Began, TransitionKind::Resolved, TransitionKind::Began]);
}

/// The view's version is no part of the name of what is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_satisfies_the_condition_by_a_new_version_of_the_view_too_stays_open() {
    const LARGE: &str =
        "CREATE VIEW v AS SELECT k, sum(CASE WHEN x > 1 THEN x ELSE 0 END) AS total, max(ts) AS last_seen FROM s GROUP BY k";
    let harness = harness(&[("much", MUCH)]).await;
    let process = Process::start(&harness, "w0", true, &Arc::new(AtomicUsize::new(0))).await;
    // By the new version, the first key stays above the limit, the second falls below it, and the third exceeds it.
    append(&harness, &[(0, 3), (1, 1), (1, 1), (1, 1), (2, -4), (2, 5)]).await;
    until("two keys", async || put_out(&harness, "much").await.len() == 2).await;
    let version = |version, sql, status| crate::record(DefinitionKind::View, "v", version, sql, status);
    let versions = vec![version(1, VIEW, catalog::DefinitionStatus::Retired), version(2, LARGE, catalog::DefinitionStatus::Active)];
    crate::put(&harness, versions).await;
    until("the third key", async || put_out(&harness, "much").await.contains_key("k2")).await;
    until("the second key to be resolved", async || state(put_out(&harness, "much").await["k1"].last()) == "resolved").await;
    process.finish().await;
    let found = put_out(&harness, "much").await;
    assert_eq!(found.values().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1], "{found:#?}");
    check_alternating(&found);
    let first = &found["k0"][0];
    assert_eq!(first["_id"], json!(format!("much@1:{{\"k\":\"k0\"}}:{}", first["_since"].as_str().unwrap())));
    let open = harness.catalog.open_alerts(Some("much"), None, 10).await.unwrap();
    assert_eq!(open.iter().map(|open| &*open.keys).collect::<Vec<_>>(), ["{\"k\":\"k0\"}", "{\"k\":\"k2\"}"]);
    assert_eq!(open[0].since, time(first, "_since"));
}

/// A catalog that was restored from a copy does not know what was put out since the copy was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_after_the_catalog_was_restored_is_put_out() {
    let harness = harness(&[("much", MUCH)]).await;
    harness.log.create_topic("much", PARTITIONS).await.unwrap();
    let name = "alert/much@1";
    let source = TopicPartition { topic: name.into(), partition: 0 };
    let identity = harness.catalog.identity().to_owned();
    let output = LogOutput { group: "basestream".to_owned(), sink: name.into(), source, identity };
    let owner = harness.log.take_over_output(&output).await.unwrap().appender;
    let headers = vec![(ALERT_HEADER.to_owned(), "much@1".into())];
    let value = json!({ "k": "k9", "_state": "began" }).to_string();
    let known = NewRecord { key: Some("k9".into()), value: Some(value.into()), headers, partition_by: None };
    owner.append("much", (0..5).map(|seq| (Offset(seq), known.clone())).collect(), Offset(5)).await.unwrap();
    let process = Process::start(&harness, "w0", true, &Arc::new(AtomicUsize::new(0))).await;
    append(&harness, &[(0, 3)]).await;
    until("the key", async || put_out(&harness, "much").await.contains_key("k0")).await;
    process.finish().await;
    assert_eq!(harness.catalog.alert_progress().await.unwrap()[0].next_seq, 6);
}

/// Of a log that is cut off behind a worker's back, as an older copy of it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_whose_log_was_replaced_says_so_and_puts_nothing_out() {
    let harness = harness(&[("much", MUCH)]).await;
    let failed = Arc::new(AtomicUsize::new(0));
    let process = Process::start(&harness, "w0", true, &failed).await;
    append(&harness, &[(0, 3), (1, 3)]).await;
    until("the records", async || put_out(&harness, "much").await.len() == 2).await;
    let runners = async || harness.catalog.alert_runners().await.unwrap();
    until("the runner to say that it evaluated", async || runners().await.last().is_some_and(|runner| runner.evaluated_at.is_some())).await;
    let runner = async || runners().await.pop().unwrap();
    assert_eq!(runner().await.waits, None);
    process.finish().await;
    // What it was evaluated with is not there any more: as if it had seen records that the log has lost.
    let progress = harness.catalog.alert_progress().await.unwrap().pop().unwrap();
    let mut position = progress.position.clone();
    let (partition, next) = progress.position.iter().map(|(partition, next)| (partition.clone(), next)).next().unwrap();
    position.set(partition.clone(), Offset(next.0 + 10));
    let add = vec![catalog::Add::AlertPosition { alert: "much".into(), version: 1, position, at: progress.at }];
    harness.catalog.commit(catalog::Commit { add, ..catalog::Commit::default() }).await.unwrap();
    let process = Process::start(&harness, "w1", true, &failed).await;
    append(&harness, &[(2, 3)]).await;
    until("the runner to say why it waits", async || runner().await.waits.is_some()).await;
    let waits = runner().await.waits.unwrap();
    let needed = Offset(next.0 + 10);
    let expected = format!("the log was replaced or lost records: it was evaluated with the records of {partition} before offset {needed}");
    assert!(waits.starts_with(&expected), "{waits}");
    let outage = process.stalled.outage().expect("the process is ready");
    assert_eq!((outage.what, outage.error), (ALERT_STALLED, format!("the alert \"much\": {waits}")));
    assert_eq!(put_out(&harness, "much").await.len(), 2);
    // It goes on by itself once the log is as far again.
    let late: Vec<(u8, i64)> = (0..120).map(|key| (key % 6, 0)).collect();
    append(&harness, &late).await;
    until("the record after the wait", async || put_out(&harness, "much").await.len() == 3).await;
    until("the runner to say no more that it waits", async || runner().await.waits.is_none() && process.stalled.outage().is_none()).await;
    process.finish().await;
}
