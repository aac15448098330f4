//! Parameters that are set while a sink runs and its processes die: an event has one record, made with a value that was
//! in effect, whose version the record names.

use basestream_tests::until;
use catalog::{Add, Commit, ParameterRecord};
use committed::parameters::{Setting, set};
use committed::registry::Registry;
use engine::events::{Decoder, EventBatchBuilder};
use event_sinks::parameters_of;
use serving::Scorer;
use speed::{Accepted, EventSinks};
use types::ErrorKind;
use types::record::Record;
use types::vector::PartitionId;

use super::*;

const MOST: &str = "CREATE PARAMETER most = 4";
const JUDGED: &str = "CREATE SINK judged WITH (topic = '{out}') AS
    SELECT e.id, e.x, v.n_1h, param('most') AS most, CASE WHEN e.x > param('most') THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_key v ON v.k = e.k";

async fn project() -> (Harness, TestLog) {
    let definitions = [
        (DefinitionKind::Stream, "s", STREAM),
        (DefinitionKind::View, "by_key", BY_KEY),
        (DefinitionKind::Sink, "judged", JUDGED),
        (DefinitionKind::Parameter, "most", MOST),
    ];
    let (harness, test_log) = project_of(PARTITIONS, &definitions).await;
    define_value(&harness, "most", "BIGINT", "4").await;
    (harness, test_log)
}

/// The value with which a parameter begins.
pub(crate) async fn define_value(harness: &Harness, parameter: &str, value_type: &str, value: &str) {
    let record = ParameterRecord {
        parameter: parameter.into(),
        version: 1,
        value_type: value_type.to_owned(),
        value: value.to_owned(),
        set_at: now(),
        set_by: "files".to_owned(),
    };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Parameter(record)], ..Commit::default() };
    harness.catalog.commit(commit).await.unwrap();
}

pub(crate) async fn set_to(harness: &Harness, parameter: &str, value: i64) -> u32 {
    let value = value.to_string();
    let setting = Setting { parameter, value: &value, set_by: "ann", now: now() };
    set(&harness.catalog, &harness.functions, setting).await.unwrap().after.version
}

/// The values that a parameter had, by version.
pub(crate) async fn values_of(harness: &Harness, parameter: &str) -> BTreeMap<u32, i64> {
    let records = harness.catalog.parameter_values(parameter, 1_000).await.unwrap();
    records.into_iter().map(|record| (record.version, record.value.parse().unwrap())).collect()
}

/// The version that each event's record names.
async fn versions(harness: &Harness, test_log: &TestLog) -> BTreeMap<(i32, i64), u32> {
    let sink = parse::parse_sink(&test_log.sql(JUDGED)).unwrap();
    let mut found = BTreeMap::new();
    let mut take = |record: &Record| {
        let (source, offset) = source_of(&record.headers).unwrap();
        let used = parameters_of(&record.headers);
        assert_eq!(used.keys().map(|name| &**name).collect::<Vec<_>>(), ["most"]);
        found.insert((source.partition, offset.0), used["most"]);
        Ok(true)
    };
    OutputReader::of_sink(&*harness.log, &sink).read(&mut take).await.unwrap();
    found
}

async fn all_out(harness: &Harness, test_log: &TestLog, events: usize) -> BTreeMap<(i32, i64), Value> {
    let began = Instant::now();
    loop {
        let found = put_out(harness, test_log, JUDGED).await;
        if found.len() >= events {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: the records do not come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn judged(seed: u64) {
    show_logs();
    let (harness, test_log) = project().await;
    let mut rng = StdRng::seed_from_u64(seed);
    let failed = Arc::new(AtomicUsize::new(0));
    let (mut number, mut lives) = (0, 0);
    let mut process = Process::start(&harness, &test_log, "w0", &failed).await;
    let began = Instant::now();
    // However slow the machine is, records are made with some of the values, and some appends fail.
    let is_enough = async || {
        let used: BTreeSet<u32> = versions(&harness, &test_log).await.into_values().collect();
        used.len() > 3 && failed.load(Ordering::Relaxed) > 0
    };
    while number < 300 || !is_enough().await {
        assert!(began.elapsed() < Duration::from_secs(180), "timed out: seed {seed}: few values are used, or no append has failed");
        let count = rng.random_range(1..20);
        let events = (number..number + count).map(|number| event(&mut rng, number)).collect();
        number += count;
        harness.append(&test_log.topic("in"), PARTITIONS, events).await.unwrap();
        if rng.random_ratio(1, 2) {
            set_to(&harness, "most", rng.random_range(0..9)).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..300))).await;
        if rng.random_ratio(1, 5) && lives < 4 {
            lives += 1;
            process.kill().await;
            process = Process::start(&harness, &test_log, &format!("w{lives}"), &failed).await;
        }
    }
    let expected = expected(&harness, &test_log, ServingClock::Event).await;
    let found = all_out(&harness, &test_log, expected.len()).await;
    process.finish().await;
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "each accepted event has a record");
    let (values, versions) = (values_of(&harness, "most").await, versions(&harness, &test_log).await);
    for (event, row) in &found {
        let (most, x) = (values[&versions[event]], expected[event].event.1);
        let decision = if x > most { "review" } else { "allow" };
        assert_eq!((&row["x"], &row["most"], &row["decision"]), (&json!(x), &json!(most), &json!(decision)), "seed {seed}: {event:?}");
    }
    for partition in 0..PARTITIONS as i32 {
        let of_partition: Vec<u32> = versions.iter().filter(|((of, _), _)| *of == partition).map(|(_, version)| *version).collect();
        assert!(of_partition.is_sorted(), "seed {seed}: values went back: {of_partition:?}");
    }
    let used: BTreeSet<u32> = versions.values().copied().collect();
    let failed = failed.load(Ordering::Relaxed);
    assert!(lives > 0 && failed > 0 && used.len() > 3, "seed {seed}: {lives} kills, {failed} failures, versions {used:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_names_the_value_that_it_was_made_with_whatever_dies() {
    for seed in 1..=2 {
        judged(seed).await;
    }
}

/// The worker before may have put records out by newer values, until its output was taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_is_not_taken_over_with_values_from_before() {
    show_logs();
    let (harness, test_log) = project().await;
    let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
    set_to(&harness, "most", 7).await;
    let settings = SinkSettings { group: test_log.group(), partitions: PARTITIONS, max_future: Duration::from_secs(600) };
    let no_node = tokio::sync::watch::channel(None).1;
    let sinks = Sinks::new(no_node, test_log.log().await, harness.catalog.clone(), harness.functions.clone(), settings);
    let stream = registry.streams["s"].definition.clone();
    let value = json!({ "id": "e0", "ts": BEGIN, "k": "k1", "u": "u", "x": 5 }).to_string();
    let record = Record { offset: Offset(0), timestamp: BEGIN, key: None, value: Some(value.into()), headers: Vec::new() };
    let (decoder, mut builder) = (Decoder::new(stream.clone()).unwrap(), EventBatchBuilder::new(&stream));
    builder.append(&decoder.decode(record.value.as_deref()).unwrap(), 0, &record).unwrap();
    let source = TopicPartition { topic: test_log.topic("in").into(), partition: 0 };
    let accepted = Accepted {
        partition: PartitionId::new("s", 0),
        source: source.clone(),
        identity: harness.log.identity(&test_log.topic("in")).await.unwrap(),
        start: Offset(0),
        end: Offset(1),
        dead_letters: Vec::new(),
        newest_before: None,
        received_before: None,
        ids_since: None,
        events: builder.finish().unwrap(),
    };
    let mut worker = sinks.for_worker(false);
    worker.partitions_assigned(&[source]);
    let error = worker.make_records(&registry, vec![accepted]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_set_is_in_effect_soon_in_records_scores_and_backtests() {
    show_logs();
    let (harness, test_log) = project().await;
    let answers = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: Arc::default() };
    let process = Process::start_on(&harness, &test_log, "w0", Arc::new(answers)).await;
    let of_x = |number: usize| {
        let value = json!({ "id": format!("e{number}"), "ts": BEGIN + number as Micros, "k": "k1", "u": "u", "x": 5 });
        (Some("k1".to_owned()), value.to_string())
    };
    harness.append(&test_log.topic("in"), PARTITIONS, vec![of_x(0)]).await.unwrap();
    let first = all_out(&harness, &test_log, 1).await;
    assert!(first.values().all(|row| row["decision"] == "review"));
    let set_at = Instant::now();
    assert_eq!(set_to(&harness, "most", 7).await, 2);
    let mut number = 1;
    // Within a second on a machine that is not busy.
    while versions(&harness, &test_log).await.values().max() != Some(&2) {
        assert!(set_at.elapsed() < Duration::from_secs(120), "timed out: the value is not in effect");
        harness.append(&test_log.topic("in"), PARTITIONS, vec![of_x(number)]).await.unwrap();
        number += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = all_out(&harness, &test_log, number).await;
    let last = found.values().last().unwrap();
    assert_eq!((&last["decision"], &last["most"]), (&json!("allow"), &json!(7)));
    assert_eq!(found.first_key_value(), first.first_key_value(), "what is out stays");

    let version = || process.reads.loaded().unwrap().registry.parameters.get("most").unwrap().version;
    until("the node to load the value", async || version() >= 2).await;
    let sink = process.reads.loaded().unwrap().registry.sinks[0].clone();
    let read_view = process.reads.read_view_of(&["by_key".into()]).await.unwrap();
    let event = NewRecord { key: None, value: Some(of_x(number).1.into()), headers: Vec::new(), partition_by: None };
    let scored = process.sinks.score(&read_view, &sink, &event).await.unwrap();
    let row: Value = serde_json::from_slice(scored.outcome.row().unwrap()).unwrap();
    assert_eq!((&row["decision"], scored.meta.parameters), (&json!("allow"), [("most".into(), 2)].into()));
    let stored = process.sinks.append(&sink, event, Vec::new(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(stored.parameters, [("most".into(), 2)].into());
    harness.committed("s", &test_log.topic("in")).await.unwrap();
    process.finish().await;

    let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
    let mut stricter = registry.parameters.clone();
    stricter.set("most", "1", 0).unwrap();
    let stricter = registry.with_parameters(stricter, &harness.functions).await;
    for (registry, decision) in [(&registry, "allow"), (&stricter, "review")] {
        let scored = backtest::scored_by(&harness, registry, "judged", (Micros::MIN, Micros::MAX), Known::Log).await;
        assert_eq!(scored.len(), number + 1);
        assert!(scored.values().all(|row| row["decision"] == decision), "{scored:#?}");
    }
}
