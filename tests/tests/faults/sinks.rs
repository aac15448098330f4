//! Sinks: one record for each accepted event, whatever dies, with what the event saw.
//!
//! The expected side is a walk through each partition of the log, in plain Rust, that shares nothing with the layers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use basestream_tests::services::needed;
use basestream_tests::{Harness, now};
use batch::{BacktestClock, Known, RunTime};
use catalog::DefinitionKind;
use definitions::parse;
use engine::fresh::Fresh;
use event_log::embedded::EmbeddedLog;
use event_log::{Consumer, Fetched, Log, LogOutput, NewRecord, OutputAppender, PartitionBounds, Subscription, TakenOutput, TopicPartition};
use event_sinks::{SinkSettings, Sinks, open_node, source_of};
use jobs::outputs::OutputReader;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use serving::ServingClock;
use speed::WorkerProgress;
use tokio_util::sync::CancellationToken;
use types::tiles::{Clock, Micros};
use types::vector::Offset;
use types::{Error, Result};
use uuid::Uuid;

use super::{seeds, show_logs};

mod ahead;
pub(super) mod backtest;
mod chains;
mod controls;
mod fleet;
pub(super) mod parameters;
mod scoring;
mod stalled;
mod switches;

const MINUTE: Micros = 60_000_000;
const HOUR: Micros = 60 * MINUTE;
const BEGIN: Micros = 1_772_000_000_000_000;
const PARTITIONS: u32 = 2;
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(150);
const KEYS: u8 = 4;
/// As many numbers of events as there are in two hours.
const PAUSE: usize = 240;

// The topics `in`, `out`, `out_before` and `out_other` get a name of their own for each run.
const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, u TEXT, x BIGINT)
    WITH (topic = '{in}', event_time = 'ts', id = 'id', key = 'k', dedup_within = '1h')";
const BY_KEY: &str = "CREATE VIEW by_key WITH (windows = '1h') AS
    SELECT k, count(*) AS n, sum(x) AS total, max(ts) FILTER (WHERE within(ts, 'all')) AS last FROM s WHERE x <> 7 GROUP BY k";
const LINKS: &str = "CREATE VIEW links AS SELECT a.k, count(DISTINCT b.x) AS linked FROM s a JOIN s b ON a.u = b.u GROUP BY a.k";
const INCLUSIVE: &str = "CREATE SINK after WITH (topic = '{out}', key = 'k') AS
    SELECT e.id, e.k, v.n_1h, v.total_1h, v.last, l.linked, CASE WHEN v.n_1h > 3 THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_key v ON v.k = e.k LEFT JOIN links l ON l.k = e.k WHERE e.x <> 5";
const EXCLUSIVE: &str = "CREATE SINK before WITH (topic = '{out_before}', features = 'exclusive') AS
    SELECT e.id, v.n_1h, v.total_1h FROM s e LEFT JOIN by_key v ON v.k = e.k";

/// The log of a test, and the names of its topics.
struct TestLog {
    url: String,
    suffix: String,
}

impl TestLog {
    fn topic(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    fn sql(&self, text: &str) -> String {
        ["in", "out", "out_before", "out_other"]
            .iter()
            .fold(text.to_owned(), |text, name| text.replace(&format!("{{{name}}}"), &self.topic(name)))
    }

    fn group(&self) -> String {
        self.topic("group")
    }

    /// A handle of its own, as in another process.
    async fn log(&self) -> Arc<dyn Log> {
        event_log::open(&self.url, &BTreeMap::new()).await.unwrap()
    }
}

/// The views by a key and of links, and the sink over both.
const AFTER: [(DefinitionKind, &str, &str); 4] = [
    (DefinitionKind::Stream, "s", STREAM),
    (DefinitionKind::View, "by_key", BY_KEY),
    (DefinitionKind::View, "links", LINKS),
    (DefinitionKind::Sink, "after", INCLUSIVE),
];

/// A project over the embedded log, whose topics have this many partitions.
async fn project_of(partitions: u32, definitions: &[(DefinitionKind, &str, &str)]) -> (Harness, TestLog) {
    let mut harness = Harness::new().await.unwrap();
    let url = format!("file://{}", harness.path().join("log").display());
    let test_log = TestLog { url, suffix: format!("-{}", Uuid::new_v4().simple()) };
    harness.log = test_log.log().await;
    for topic in ["in", "out"] {
        harness.log.create_topic(&test_log.topic(topic), partitions).await.unwrap();
    }
    let texts: Vec<String> = definitions.iter().map(|(_, _, sql)| test_log.sql(sql)).collect();
    let defined = definitions.iter().zip(&texts).map(|((kind, name, _), sql)| (*kind, *name, &**sql));
    harness.define(&defined.collect::<Vec<_>>()).await.unwrap();
    (harness, test_log)
}

/// What a sink is expected to say of one event.
#[derive(Default)]
struct Expected {
    after: Option<Value>,
    before: Value,
    /// Its time, its `x` and its key.
    event: (Micros, i64, Value),
}

/// When the event of this number happens, unless it is late.
fn time_of(number: usize) -> Micros {
    BEGIN + number as Micros * MINUTE / 2
}

/// One event of the log, as JSON.
fn event(rng: &mut StdRng, number: usize) -> (Option<String>, String) {
    if rng.random_ratio(1, 40) {
        return (Some("k0".into()), "{\"id\": 3}".into());
    }
    let key = (!rng.random_ratio(1, 15)).then(|| format!("k{}", rng.random_range(0..KEYS)));
    // Some are the same as an earlier one, and some are late.
    let id = if rng.random_ratio(1, 10) { number.saturating_sub(rng.random_range(1..20)) } else { number };
    let late = if rng.random_ratio(1, 5) { rng.random_range(0..3 * HOUR) } else { 0 };
    let time = time_of(number) - late;
    let user = format!("{}-u{}", key.as_deref().unwrap_or_default(), rng.random_range(0..3));
    let value = json!({ "id": format!("e{id}"), "ts": time, "k": key, "u": user, "x": rng.random_range(0..9) });
    (key, value.to_string())
}

/// Walks through the partitions of the log, with windows that end at the time by this clock. Links are between events
/// of one key alone, so that they too follow from one partition.
async fn expected(harness: &Harness, test_log: &TestLog, clock: ServingClock) -> BTreeMap<(i32, i64), Expected> {
    let mut expected = BTreeMap::new();
    let partitions = harness.log.bounds(&test_log.topic("in")).await.unwrap().len();
    for partition in 0..partitions as i32 {
        let source = TopicPartition { topic: test_log.topic("in").into(), partition };
        let fetched = harness.log.read(&source, Offset(0), 100_000).await.unwrap();
        let (mut ids, mut t) = (HashSet::new(), Micros::MIN);
        let mut of_key: HashMap<Value, Vec<(Micros, i64)>> = HashMap::new();
        let mut linked: HashMap<Value, BTreeMap<String, BTreeSet<i64>>> = HashMap::new();
        for record in &fetched.records {
            let value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            if value["ts"].is_null() || !ids.insert(value["id"].as_str().unwrap().to_owned()) {
                continue;
            }
            let (time, x, key) = (value["ts"].as_i64().unwrap(), value["x"].as_i64().unwrap(), value["k"].clone());
            t = t.max(match clock {
                ServingClock::Wall => record.timestamp,
                ServingClock::Event => time,
            });
            let from = (t - HOUR).div_euclid(MINUTE) * MINUTE;
            let row = |events: &[(Micros, i64)]| {
                let in_window: Vec<i64> = events.iter().filter(|(time, _)| *time >= from).map(|(_, x)| *x).collect();
                let last = events.iter().map(|(time, _)| *time).max();
                let total = (!in_window.is_empty()).then(|| in_window.iter().sum::<i64>());
                (in_window.len(), total, last)
            };
            let events = of_key.entry(key.clone()).or_default();
            let (n, total, _) = if key.is_null() { (0, None, None) } else { row(events) };
            let before = json!({ "id": value["id"], "n_1h": n, "total_1h": total });
            if x != 7 {
                events.push((time, x));
            }
            let of_users = linked.entry(key.clone()).or_default();
            of_users.entry(value["u"].as_str().unwrap().to_owned()).or_default().insert(x);
            let (n, total, last) = if key.is_null() { (0, None, None) } else { row(events) };
            let all_linked: BTreeSet<i64> = of_users.values().flatten().copied().collect();
            let all_linked = if key.is_null() { 0 } else { all_linked.len() };
            let last = last.map(engine::events::format_timestamp);
            let decision = if n > 3 { "review" } else { "allow" };
            let after = json!({ "id": value["id"], "k": key, "n_1h": n, "total_1h": total, "last": last, "linked": all_linked, "decision": decision });
            expected.insert((partition, record.offset.0), Expected { after: (x != 5).then_some(after), before, event: (time, x, key) });
        }
    }
    expected
}

/// What a sink put out, by event. Each event at most once, and those of a partition in their order.
async fn put_out(harness: &Harness, test_log: &TestLog, sql: &str) -> BTreeMap<(i32, i64), Value> {
    let sink = parse::parse_sink(&test_log.sql(sql)).unwrap();
    let mut found = BTreeMap::new();
    let mut twice = Vec::new();
    let mut take = |record: &types::record::Record| {
        let (source, offset) = source_of(&record.headers).unwrap();
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        if found.insert((source.partition, offset.0), value).is_some() {
            twice.push((source, offset));
        }
        Ok(true)
    };
    OutputReader::of_sink(&*harness.log, &sink).read(&mut take).await.unwrap();
    assert_eq!(twice, [], "these events have more than one record");
    found
}

/// A log that does not take the records of a sink, is given them twice, or takes them and does not say so: the worker
/// of this process begins again from its committed position, beside a node that has read further.
pub(super) struct Flaky {
    log: Arc<dyn Log>,
    append: Arc<dyn Fn(&str) -> Append + Send + Sync>,
    failed: Arc<AtomicUsize>,
}

/// What becomes of one append to a topic.
#[derive(Debug, Clone, Copy, Default)]
struct Append {
    is_lost: bool,
    is_repeated: bool,
    has_no_reply: bool,
}

impl Flaky {
    /// Each of these now and then.
    pub(super) fn at_random(log: Arc<dyn Log>, seed: u64, failed: &Arc<AtomicUsize>) -> Arc<Flaky> {
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        let append = move |_: &str| {
            let mut rng = rng.lock().unwrap();
            let (is_lost, is_repeated) = (rng.random_ratio(1, 15), rng.random_ratio(1, 5));
            Append { is_lost, is_repeated, has_no_reply: rng.random_ratio(1, 15) }
        };
        Arc::new(Flaky { log, append: Arc::new(append), failed: failed.clone() })
    }

    /// No record of an output is taken as long as this holds.
    pub(super) fn refusing(log: Arc<dyn Log>, is_refused: &Arc<AtomicBool>) -> Arc<Flaky> {
        let is_refused = is_refused.clone();
        let append = move |_: &str| Append { is_lost: is_refused.load(Ordering::Relaxed), ..Append::default() };
        Arc::new(Flaky { log, append: Arc::new(append), failed: Arc::default() })
    }

    /// The log of a process, whose name is the seed.
    async fn of_process(test_log: &TestLog, name: &str, failed: &Arc<AtomicUsize>) -> Arc<Flaky> {
        Self::at_random(test_log.log().await, name.bytes().map(u64::from).sum(), failed)
    }
}

impl std::fmt::Debug for Flaky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.log.fmt(f)
    }
}

#[async_trait]
impl Log for Flaky {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        self.log.create_topic(topic, partitions).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        self.log.bounds(topic).await
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        self.log.identity(topic).await
    }

    async fn append(&self, topic: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.log.append(topic, records).await
    }

    async fn take_over_output(&self, output: &LogOutput) -> Result<TakenOutput> {
        let TakenOutput { appender, next } = self.log.take_over_output(output).await?;
        let appender = FlakyAppender { appender, append: self.append.clone(), failed: self.failed.clone() };
        Ok(TakenOutput { appender: Arc::new(appender), next })
    }

    async fn read(&self, source: &TopicPartition, from: Offset, max_records: usize) -> Result<Fetched> {
        self.log.read(source, from, max_records).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Consumer> {
        self.log.subscribe(subscription).await
    }
}

/// The owner of an output of a [`Flaky`] log.
struct FlakyAppender {
    appender: Arc<dyn OutputAppender>,
    append: Arc<dyn Fn(&str) -> Append + Send + Sync>,
    failed: Arc<AtomicUsize>,
}

impl std::fmt::Debug for FlakyAppender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.appender.fmt(f)
    }
}

#[async_trait]
impl OutputAppender for FlakyAppender {
    async fn append(&self, topic: &str, records: Vec<(Offset, NewRecord)>, next: Offset) -> Result<()> {
        let Append { is_lost, is_repeated, has_no_reply } = (self.append)(topic);
        if !is_lost && is_repeated {
            self.appender.append(topic, records.clone(), next).await?;
        }
        if !is_lost {
            self.appender.append(topic, records, next).await?;
        }
        match is_lost || has_no_reply {
            true => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Err(Error::unavailable("the log does not answer"))
            }
            false => Ok(()),
        }
    }
}

/// A process: a node and a worker that share fresh layers.
struct Process {
    worker: tokio::task::JoinHandle<Result<()>>,
    node: tokio::task::JoinHandle<()>,
    /// The node, for those who ask it.
    reads: serving::Node,
    sinks: Sinks,
    stop: CancellationToken,
    progress: WorkerProgress,
}

impl Process {
    async fn start(harness: &Harness, test_log: &TestLog, name: &str, failed: &Arc<AtomicUsize>) -> Process {
        Self::start_on(harness, test_log, name, Flaky::of_process(test_log, name, failed).await).await
    }

    async fn start_on(harness: &Harness, test_log: &TestLog, name: &str, log: Arc<Flaky>) -> Process {
        Self::start_committing(harness, test_log, name, log, CHECKPOINT_INTERVAL).await
    }

    /// With a worker that commits a checkpoint that often.
    async fn start_committing(harness: &Harness, test_log: &TestLog, name: &str, log: Arc<Flaky>, every: Duration) -> Process {
        let fresh = Fresh::default();
        let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
        Self::start_with(harness, test_log, name, log, (node, fresh), every)
    }

    /// With a node that reads these fresh layers.
    fn start_with(
        harness: &Harness,
        test_log: &TestLog,
        name: &str,
        log: Arc<Flaky>,
        (node, fresh): (serving::Node, Fresh),
        checkpoint_interval: Duration,
    ) -> Process {
        let mut speed = harness.speed(name, checkpoint_interval, Some(fresh));
        (speed.log, speed.settings.group) = (log.log.clone(), test_log.group());
        let (progress, functions) = (speed.progress.clone(), harness.functions.clone());
        let settings = SinkSettings { group: test_log.group(), partitions: PARTITIONS, max_future: Duration::from_secs(600) };
        let sinks = Sinks::new(open_node(node.clone()), log, harness.catalog.clone(), functions, settings);
        speed.sinks = Some(Arc::new(sinks.clone()));
        node.attach_scorer(Arc::new(sinks.clone()));
        let reads = node.clone();
        let stop = CancellationToken::new();
        let (of_worker, of_node) = (stop.clone(), stop.clone());
        let worker = tokio::spawn(async move { speed.run(of_worker).await });
        let node = tokio::spawn(async move { tokio::join!(node.run(of_node.clone()), asked_all_the_time(&node, &of_node)).0 });
        Process { worker, node, reads, sinks, stop, progress }
    }

    /// As if the process had died: nothing is drained.
    async fn kill(self) {
        self.worker.abort();
        self.node.abort();
        let _ = self.worker.await;
        let _ = self.node.await;
    }

    async fn finish(self) {
        self.stop.cancel();
        self.worker.await.unwrap().unwrap();
        self.node.await.unwrap();
    }
}

/// A node that was asked does not answer from an earlier position: what its worker's sinks read may be one.
async fn asked_all_the_time(node: &serving::Node, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let _ = node.read_view();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// By which clock processes answer. The wall clock, by which the log timestamps what is appended too, is as late as the
/// events that arrive.
struct TestClock {
    kind: ServingClock,
    wall: Arc<AtomicI64>,
}

impl TestClock {
    fn new(kind: ServingClock) -> TestClock {
        TestClock { kind, wall: Arc::new(AtomicI64::new(BEGIN)) }
    }

    fn wall(&self) -> Clock {
        let wall = self.wall.clone();
        Arc::new(move || wall.load(Ordering::Relaxed))
    }

    /// It is as late as the event of this number.
    fn advance_to(&self, number: usize) {
        self.wall.store(time_of(number), Ordering::Relaxed);
    }

    /// The log to which events are appended.
    async fn log(&self, harness: &Harness, test_log: &TestLog) -> Arc<dyn Log> {
        match self.kind {
            ServingClock::Wall => Arc::new(EmbeddedLog::open_with_clock(&harness.path().join("log"), self.wall()).await.unwrap()),
            ServingClock::Event => test_log.log().await,
        }
    }

    async fn start(&self, harness: &Harness, test_log: &TestLog, name: &str, log: Arc<Flaky>) -> Process {
        let fresh = Fresh::default();
        let node = match self.kind {
            ServingClock::Wall => harness.node_by(ServingClock::Wall, Some(fresh.clone()), self.wall()).await,
            ServingClock::Event => harness.node(ServingClock::Event, Some(fresh.clone())).await,
        };
        Process::start_with(harness, test_log, name, log, (node.unwrap(), fresh), CHECKPOINT_INTERVAL)
    }

    /// A time after which every event comes: by the wall clock now.
    fn of_run(&self) -> RunTime {
        match self.kind {
            ServingClock::Wall => RunTime::At(self.wall.load(Ordering::Relaxed)),
            ServingClock::Event => RunTime::EventClock,
        }
    }

    fn of_backtest(&self) -> BacktestClock {
        match self.kind {
            ServingClock::Wall => BacktestClock::Wall,
            ServingClock::Event => BacktestClock::Event,
        }
    }
}

/// How events arrive, and how often the process is killed afterwards: this many times in four.
struct Arrivals {
    least_events: usize,
    at_once: Range<usize>,
    kills_in_four: u32,
}

/// A micro-batch has a few events.
const FEW_AT_ONCE: Arrivals = Arrivals { least_events: 240, at_once: 1..30, kills_in_four: 1 };
/// The same, and more arrive after each kill. They are decided once no window of theirs would reach back to them.
const WITH_PAUSES: Arrivals = Arrivals { least_events: 240, at_once: 1..30, kills_in_four: 2 };
/// A micro-batch is read in several sections.
const MANY_AT_ONCE: Arrivals = Arrivals { least_events: 1_500, at_once: 1_200..1_400, kills_in_four: 4 };

async fn run(seed: u64, kafka: Option<String>, arrivals: &Arrivals, clock: &TestClock) {
    show_logs();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut harness = Harness::new().await.unwrap();
    let embedded = format!("file://{}", harness.path().join("log").display());
    let test_log = TestLog { url: kafka.unwrap_or(embedded), suffix: format!("-{}", Uuid::new_v4().simple()) };
    harness.log = clock.log(&harness, &test_log).await;
    for topic in ["in", "out", "out_before", "out_other"] {
        harness.log.create_topic(&test_log.topic(topic), PARTITIONS).await.unwrap();
    }
    let views = [("by_key", BY_KEY), ("links", LINKS)].map(|(name, sql)| (DefinitionKind::View, name, sql));
    let sinks = [("after", test_log.sql(INCLUSIVE)), ("before", test_log.sql(EXCLUSIVE))];
    let sinks = sinks.each_ref().map(|(name, sql)| (DefinitionKind::Sink, *name, sql.as_str()));
    let stream = test_log.sql(STREAM);
    let stream = [(DefinitionKind::Stream, "s", stream.as_str())];
    harness.define(&stream.into_iter().chain(views).chain(sinks).collect::<Vec<_>>()).await.unwrap();
    let (mut number, mut sent, mut lives) = (0, 0, 0);
    let failed = Arc::new(AtomicUsize::new(0));
    let mut process = clock.start(&harness, &test_log, "w0", Flaky::of_process(&test_log, "w0", &failed).await).await;
    let began = Instant::now();
    // However slow the machine is, and how few its appends are, some fail. Many at once are few appends: they may all
    // succeed.
    let is_tried = || failed.load(Ordering::Relaxed) > 0 || arrivals.at_once.start > 1;
    while sent < arrivals.least_events || !is_tried() {
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: seed {seed}: no append has failed");
        let count = rng.random_range(arrivals.at_once.clone());
        append_events(&harness, &test_log, clock, &mut rng, number..number + count).await;
        (number, sent) = (number + count, sent + count);
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..120))).await;
        if rng.random_ratio(arrivals.kills_in_four, 4) && lives < 4 {
            lives += 1;
            process.kill().await;
            if clock.kind == ServingClock::Wall {
                let count = rng.random_range(arrivals.at_once.clone());
                append_events(&harness, &test_log, clock, &mut rng, number..number + count).await;
                (number, sent) = (number + count + PAUSE, sent + count);
                clock.advance_to(number);
            }
            let name = format!("w{lives}");
            process = clock.start(&harness, &test_log, &name, Flaky::of_process(&test_log, &name, &failed).await).await;
        }
        if rng.random_ratio(1, 6) {
            let view = if rng.random_bool(0.5) { "by_key" } else { "links" };
            // Another process may run it. On a slow machine some events may be without a record, of a time that the
            // snapshot does not keep any more: they would see a later one.
            if harness.committed("s", &test_log.topic("in")).await.is_ok() {
                let _ = harness.batch(view, clock.of_run()).await;
            }
        }
    }
    let expected = expected(&harness, &test_log, clock.kind).await;
    let after: BTreeMap<_, _> = expected.iter().filter_map(|(event, row)| Some((*event, row.after.clone()?))).collect();
    let before: BTreeMap<_, _> = expected.iter().map(|(event, row)| (*event, row.before.clone())).collect();
    let began = Instant::now();
    while put_out(&harness, &test_log, INCLUSIVE).await.len() < after.len()
        || put_out(&harness, &test_log, EXCLUSIVE).await.len() < before.len()
    {
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: seed {seed}: the records do not come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    process.finish().await;
    // A stream whose sink fails may be left out for a while: a process with a log that answers commits the rest.
    let answers = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: failed.clone() };
    let process = clock.start(&harness, &test_log, "last", Arc::new(answers)).await;
    harness.committed("s", &test_log.topic("in")).await.unwrap();
    process.finish().await;
    assert!(lives > 0 && is_tried() && after.len() > 100, "seed {seed}: {lives} kills, {failed:?} failures, {} records", after.len());
    for (sql, expected) in [(INCLUSIVE, after), (EXCLUSIVE, before)] {
        let found = put_out(&harness, &test_log, sql).await;
        for (event, row) in &expected {
            assert_eq!(found.get(event), Some(row), "seed {seed}, event {event:?} of {}, at {}", expected.len(), now());
        }
        assert_eq!(found.len(), expected.len());
    }
    backtested(&harness, &test_log, &expected, clock.of_backtest()).await;
}

/// Appends the events of these numbers, when the last one happens.
async fn append_events(harness: &Harness, test_log: &TestLog, clock: &TestClock, rng: &mut StdRng, numbers: Range<usize>) {
    clock.advance_to(numbers.end);
    let events = numbers.map(|number| event(rng, number)).collect();
    harness.append(&test_log.topic("in"), PARTITIONS, events).await.unwrap();
}

/// What ran live, and what the same sinks say of it from the archive.
async fn backtested(harness: &Harness, test_log: &TestLog, expected: &BTreeMap<(i32, i64), Expected>, clock: BacktestClock) {
    let all = (Micros::MIN, Micros::MAX);
    let mut times: Vec<Micros> = expected.values().map(|row| row.event.0).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 3], times[2 * times.len() / 3]);
    for (name, sql) in [("before", EXCLUSIVE), ("after", INCLUSIVE)] {
        let live = put_out(harness, test_log, sql).await;
        assert_eq!(backtest::scored(harness, name, all, (Known::Log, clock)).await, live);
        let in_range = |event: &(i32, i64)| (from..to).contains(&expected[event].event.0);
        let live: BTreeMap<_, _> = live.into_iter().filter(|(event, _)| in_range(event)).collect();
        assert!(live.len() > 10);
        assert_eq!(backtest::scored(harness, name, (from, to), (Known::Log, clock)).await, live);
    }
    let events = expected.iter().map(|(position, of_event)| (*position, of_event.event.clone())).collect();
    let by_time = backtest::scored(harness, "before", (BEGIN - 4 * HOUR, BEGIN + 100 * HOUR), (Known::Event, clock)).await;
    for (event, (n, total)) in backtest::by_event_time(&events) {
        let found = &by_time[&event];
        assert_eq!((&found["n_1h"], &found["total_1h"]), (&json!(n), &json!(total)), "event {event:?}");
    }
    assert_eq!(by_time.len(), events.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_accepted_event_has_one_record_with_what_it_saw() {
    for seed in seeds(4) {
        run(seed, None, &FEW_AT_ONCE, &TestClock::new(ServingClock::Event)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_wall_clock_an_event_saw_what_there_was_when_the_log_received_it() {
    for seed in seeds(4) {
        run(seed, None, &WITH_PAUSES, &TestClock::new(ServingClock::Wall)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_of_a_large_micro_batch_saw_those_before_it() {
    run(7, None, &MANY_AT_ONCE, &TestClock::new(ServingClock::Event)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs services: just test-services"]
async fn the_same_on_kafka() {
    let [url] = needed(["BASESTREAM_TEST_KAFKA"]);
    for seed in seeds(2) {
        run(seed, Some(url.clone()), &FEW_AT_ONCE, &TestClock::new(ServingClock::Event)).await;
    }
}
