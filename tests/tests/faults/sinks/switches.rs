//! Versions, pauses and kills: each accepted event has the record of the version that the catalog says, or lies in a
//! recorded pause and has none.

use basestream_tests::until;
use catalog::{Add, Commit, DefinitionRecord, DefinitionStatus, PauseRecord, Remove, SinkRange, SinkSwitch};
use event_sinks::sink_of;
use types::vector::PartitionId;

use super::*;

const SINK: &str = "switched";
const EVENTS: usize = 260;

/// Versions differ in what they say and in what they leave out. Their topic is the same.
fn text(version: u32) -> String {
    let condition = if leaves_out(version) { " WHERE e.x <> 5" } else { "" };
    format!(
        "CREATE SINK {SINK} WITH (topic = '{{out_before}}', features = 'exclusive') AS
        SELECT e.id, v.n_1h, v.total_1h, {version} AS made_by FROM s e LEFT JOIN by_key v ON v.k = e.k{condition}"
    )
}

fn leaves_out(version: u32) -> bool {
    version.is_multiple_of(2)
}

struct Run {
    harness: Harness,
    test_log: TestLog,
    version: u32,
    is_paused: bool,
    seed: u64,
    lives: usize,
    failed: Arc<AtomicUsize>,
}

impl Run {
    async fn start(seed: u64, kafka: Option<String>) -> Run {
        let mut harness = Harness::new().await.unwrap();
        let embedded = format!("file://{}", harness.path().join("log").display());
        let test_log = TestLog { url: kafka.unwrap_or(embedded), suffix: format!("-{}", Uuid::new_v4().simple()) };
        harness.log = test_log.log().await;
        for topic in ["in", "out_before"] {
            harness.log.create_topic(&test_log.topic(topic), PARTITIONS).await.unwrap();
        }
        let (stream, sink) = (test_log.sql(STREAM), test_log.sql(&text(1)));
        let definitions =
            [(DefinitionKind::Stream, "s", &*stream), (DefinitionKind::View, "by_key", BY_KEY), (DefinitionKind::Sink, SINK, &sink)];
        harness.define(&definitions).await.unwrap();
        Run { harness, test_log, version: 1, is_paused: false, seed, lives: 0, failed: Arc::default() }
    }

    async fn process(&mut self) -> Process {
        self.lives += 1;
        Process::start(&self.harness, &self.test_log, &format!("w{}-{}", self.seed, self.lives), &self.failed).await
    }

    async fn commit(&self, add: Vec<Add>, remove: Vec<Remove>) {
        let commit = Commit { id: Uuid::now_v7(), add, remove, ..Commit::default() };
        self.harness.catalog.commit_with_retry(commit).await.unwrap();
    }

    async fn apply(&mut self) {
        let record = |version, status| DefinitionRecord {
            kind: DefinitionKind::Sink,
            name: SINK.into(),
            version,
            sql: self.test_log.sql(&text(version)),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        };
        let (before, after) = (self.version, self.version + 1);
        let records = [record(before, DefinitionStatus::Retired), record(after, DefinitionStatus::Active)];
        self.commit(records.map(Add::Definition).into(), Vec::new()).await;
        self.version = after;
    }

    async fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        let (kind, name) = (DefinitionKind::Sink, Arc::from(SINK));
        match self.is_paused {
            true => self.commit(vec![Add::Pause(PauseRecord { kind, name, since: now() })], Vec::new()).await,
            false => self.commit(Vec::new(), vec![Remove::Pause { kind, name }]).await,
        }
    }

    /// What is in the topic, by event: the version that its header names, and the record.
    async fn put_out(&self) -> BTreeMap<(i32, i64), (u32, Value)> {
        let sink = parse::parse_sink(&self.test_log.sql(&text(self.version))).unwrap();
        let (mut found, mut twice) = (BTreeMap::new(), Vec::new());
        let mut take = |record: &types::record::Record| {
            let (source, offset) = source_of(&record.headers).unwrap();
            let (_, version) = sink_of(&record.headers).unwrap();
            let value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
            if found.insert((source.partition, offset.0), (version, value)).is_some() {
                twice.push((source, offset));
            }
            Ok(true)
        };
        OutputReader::of_sink(&*self.harness.log, &sink).read(&mut take).await.unwrap();
        assert_eq!(twice, [], "seed {}: these events have more than one record", self.seed);
        found
    }

    /// The versions that made records.
    async fn versions(&self) -> BTreeSet<u32> {
        self.put_out().await.into_values().map(|(version, _)| version).collect()
    }

    /// Whether a worker has recorded that it makes no records.
    async fn has_paused(&self) -> bool {
        let ranges = self.harness.catalog.sink_ranges(Some(SINK), u32::MAX).await.unwrap();
        ranges.iter().any(|range| range.to.is_none() && range.switch.paused)
    }

    /// Holds every accepted event against the switches of its partition.
    async fn holds(&self) {
        let seed = self.seed;
        let ranges = self.harness.catalog.sink_ranges(Some(SINK), u32::MAX).await.unwrap();
        let accepted = expected(&self.harness, &self.test_log, ServingClock::Event).await;
        let mut found = self.put_out().await;
        let (mut paused, mut versions) = (0, BTreeSet::new());
        for ((partition, offset), event) in &accepted {
            let by = range_of(&ranges, *partition, *offset);
            let by = by.unwrap_or_else(|| panic!("seed {seed}: no range has the offset {offset} of partition {partition}: {ranges:#?}"));
            let is_left_out = leaves_out(by.version) && event.event.1 == 5;
            let mut row = event.before.clone();
            row["made_by"] = json!(by.version);
            let expected = (!by.paused && !is_left_out).then_some((by.version, row));
            assert_eq!(found.remove(&(*partition, *offset)), expected, "seed {seed}: {partition}/{offset} of {ranges:#?}");
            paused += usize::from(by.paused);
            versions.extend((!by.paused).then_some(by.version));
        }
        assert_eq!(found, BTreeMap::new(), "seed {seed}: records of what was not accepted");
        assert!(versions.len() > 1 && paused > 0, "seed {seed}: {} versions, {paused} events in pauses", versions.len());
    }
}

/// The switch of the one range that the offset lies in.
fn range_of(ranges: &[SinkRange], partition: i32, offset: i64) -> Option<&SinkSwitch> {
    let partition = PartitionId::new("s", partition);
    let has = |range: &&SinkRange| range.switch.from.0 <= offset && range.to.is_none_or(|to| offset < to.0);
    let mut found = ranges.iter().filter(|range| range.switch.partition == partition).filter(has);
    let first = found.next();
    assert!(found.next().is_none(), "{offset} of {partition} lies in two ranges: {ranges:#?}");
    first.map(|range| &range.switch)
}

async fn run(seed: u64, kafka: Option<String>) {
    show_logs();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut run = Run::start(seed, kafka).await;
    let mut process = run.process().await;
    // One that was killed in the middle of something and goes on: it has to be refused.
    let mut left: Vec<Process> = Vec::new();
    let (mut number, mut changes, began) = (0, 0, Instant::now());
    // However slow the machine is, more than one version makes records.
    while number < EVENTS || changes < 8 || run.versions().await.len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(300), "timed out: seed {seed}: no second version makes records");
        let count = rng.random_range(1..30);
        let events = (number..number + count).map(|number| event(&mut rng, number)).collect();
        number += count;
        run.harness.append(&run.test_log.topic("in"), PARTITIONS, events).await.unwrap();
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..400))).await;
        match rng.random_range(0..5) {
            0 => run.apply().await,
            1 | 2 => run.pause().await,
            _ => continue,
        }
        changes += 1;
        // At once, or after a while in which its worker learns of the change.
        tokio::time::sleep(Duration::from_millis([0, 0, 300, 900, 1_200][rng.random_range(0..5)])).await;
        if rng.random_bool(0.5) {
            match rng.random_bool(0.7) {
                true => process.kill().await,
                // It hands its partitions over in order, beside the next one.
                false => {
                    process.stop.cancel();
                    left.push(process);
                }
            }
            process = run.process().await;
        }
    }
    // However slow the machine is, some events lie in a pause.
    if !run.is_paused {
        run.pause().await;
    }
    let began = Instant::now();
    let mut had_paused = false;
    while !had_paused {
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: seed {seed}: no worker has read that the sink is paused");
        had_paused = run.has_paused().await;
        let events = (number..number + 20).map(|number| event(&mut rng, number)).collect();
        number += 20;
        run.harness.append(&run.test_log.topic("in"), PARTITIONS, events).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    while run.harness.committed("s", &run.test_log.topic("in")).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(180), "timed out: seed {seed}: the events of a pause are not committed");
    }
    run.pause().await;
    let events = (number..number + 40).map(|number| event(&mut rng, number)).collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    run.harness.append(&run.test_log.topic("in"), PARTITIONS, events).await.unwrap();
    process.finish().await;
    for process in left {
        process.finish().await;
    }
    // A stream whose sink fails may be left out for a while: a process with a log that answers commits the rest.
    let answers = Flaky { log: run.test_log.log().await, append: Arc::new(|_| Append::default()), failed: run.failed.clone() };
    let process = Process::start_on(&run.harness, &run.test_log, "last", Arc::new(answers)).await;
    run.harness.committed("s", &run.test_log.topic("in")).await.unwrap();
    process.finish().await;
    run.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_has_the_record_of_the_recorded_version_or_lies_in_a_recorded_pause() {
    for seed in seeds(4) {
        run(seed, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs services: just test-services"]
async fn the_same_on_kafka() {
    let [url] = needed(["BASESTREAM_TEST_KAFKA"]);
    for seed in seeds(2) {
        run(seed, Some(url.clone())).await;
    }
}

/// Within about a second, whatever the sink failed on; scoring is refused, and what follows the pause is put out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_fails_holds_its_stream_up_no_longer_once_it_is_paused() {
    show_logs();
    let mut run = Run::start(0, None).await;
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let append = {
        let fails = fails.clone();
        move |_: &str| Append { is_lost: fails.load(Ordering::Relaxed), ..Append::default() }
    };
    let log = Flaky { log: run.test_log.log().await, append: Arc::new(append), failed: run.failed.clone() };
    let process = Process::start_on(&run.harness, &run.test_log, "w", Arc::new(log)).await;
    let events = |from: usize| {
        (from..from + 10).map(|n| {
            let value = json!({ "id": format!("e{n}"), "ts": BEGIN + n as Micros, "k": "k0", "u": "u", "x": 1 });
            (Some("k0".to_owned()), value.to_string())
        })
    };
    let topic = run.test_log.topic("in");
    run.harness.append(&topic, PARTITIONS, events(0).collect()).await.unwrap();
    until("the sink to fail", async || process.progress.stalled().is_some()).await;
    run.pause().await;
    run.harness.committed("s", &topic).await.unwrap();
    until("the stream to be held up no longer", async || process.progress.stalled().is_none()).await;
    run.pause().await;
    fails.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // What comes before the worker has learned of the end of the pause lies in it.
    let mut end = 10;
    until("records after the pause", async || {
        run.harness.append(&topic, PARTITIONS, events(end).collect()).await.unwrap();
        end += 10;
        tokio::time::sleep(Duration::from_millis(300)).await;
        !run.put_out().await.is_empty()
    })
    .await;
    run.harness.committed("s", &topic).await.unwrap();
    process.finish().await;
    let found = run.put_out().await;
    let first = found.keys().next().unwrap().1;
    assert!(first >= 10, "{first}");
    let found: Vec<_> = found.into_values().map(|(_, row)| row["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, (first as usize..end).map(|n| format!("e{n}")).collect::<Vec<_>>());
    let ranges = run.harness.catalog.sink_ranges(Some(SINK), 10).await.unwrap();
    let kinds: Vec<_> = ranges.iter().map(|range| (range.switch.from.0, range.to.map(|to| to.0), range.switch.paused)).collect();
    // Before the pause the sink made a record of no event.
    assert_eq!(kinds, [(first, None, false), (0, Some(first), true)]);
}
