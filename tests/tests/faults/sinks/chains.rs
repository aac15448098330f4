//! Chains: a sink's topic is the topic of a second stream, and a second sink reads that. Each record of the first is
//! one event of the second stream and has one record of the second sink, whatever dies between the two.
//!
//! The expected side walks through the first stream for the first sink, and through the topic in between for the
//! second.

use basestream_tests::records_of;

use super::*;

const DECIDED: &str = "CREATE SINK decided WITH (topic = '{out}', key = 'k') AS
    SELECT e.id, e.ts, e.k, v.n_1h AS events, CASE WHEN v.n_1h > 3 THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_key v ON v.k = e.k WHERE e.x <> 5";
/// Names no id: a record that was put out twice would count twice.
const DECISIONS: &str =
    "CREATE STREAM d (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, events BIGINT NOT NULL, decision TEXT NOT NULL)
    WITH (topic = '{out}', event_time = 'ts', key = 'k')";
const REVIEWS: &str = "CREATE VIEW reviews WITH (windows = '1h') AS
    SELECT k, count(*) AS decisions, count(*) FILTER (WHERE decision = 'review') AS reviews, max(events) AS most FROM d GROUP BY k";
const ESCALATED: &str = "CREATE SINK escalated WITH (topic = '{out_other}', key = 'k') AS
    SELECT e.id, e.k, e.decision, v.decisions_1h, v.reviews_1h, v.most_1h, CASE WHEN v.reviews_1h > 2 THEN 'escalate' ELSE 'watch' END AS verdict
    FROM d e LEFT JOIN reviews v ON v.k = e.k";

const ROUNDS: usize = 12;
const EVENTS_PER_ROUND: usize = 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// What the first sink says of each event of the first stream.
async fn decided(harness: &Harness, test_log: &TestLog) -> BTreeMap<(i32, i64), Value> {
    let row = |Expected { after, event: (time, ..), .. }: &Expected| {
        let after = after.as_ref()?;
        let time = engine::events::format_timestamp(*time);
        Some(json!({ "id": after["id"], "ts": time, "k": after["k"], "events": after["n_1h"], "decision": after["decision"] }))
    };
    let events = expected(harness, test_log, ServingClock::Event).await;
    events.iter().filter_map(|(event, expected)| Some((*event, row(expected)?))).collect()
}

/// What the second sink says of each record of the first.
async fn escalated(harness: &Harness, test_log: &TestLog) -> BTreeMap<(i32, i64), Value> {
    let mut escalated = BTreeMap::new();
    let mut newest_of: BTreeMap<i32, Micros> = BTreeMap::new();
    let mut of_key: HashMap<Value, Vec<(Micros, bool, i64)>> = HashMap::new();
    for (source, record) in records_of(&*harness.log, &test_log.topic("out")).await.unwrap() {
        let row: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        let time = engine::events::parse_timestamp(row["ts"].as_str().unwrap()).unwrap();
        let newest = newest_of.entry(source.partition).or_insert(time);
        *newest = time.max(*newest);
        let from = (*newest - HOUR).div_euclid(MINUTE) * MINUTE;
        // All events of a key are in one partition. An event without a key has no row.
        let of_key = of_key.entry(row["k"].clone()).or_default();
        of_key.push((time, row["decision"] == "review", row["events"].as_i64().unwrap()));
        let seen: Vec<_> = of_key.iter().filter(|(time, ..)| *time >= from && !row["k"].is_null()).collect();
        let reviews = seen.iter().filter(|(_, is_review, _)| *is_review).count();
        let expected = json!({
            "id": row["id"],
            "k": row["k"],
            "decision": row["decision"],
            "decisions_1h": seen.len(),
            "reviews_1h": reviews,
            "most_1h": seen.iter().map(|(_, _, events)| *events).max(),
            "verdict": if reviews > 2 { "escalate" } else { "watch" },
        });
        escalated.insert((source.partition, record.offset.0), expected);
    }
    escalated
}

/// Waits until a sink has put out this many records.
async fn until_put_out(harness: &Harness, test_log: &TestLog, sql: &str, count: usize) {
    let began = Instant::now();
    while put_out(harness, test_log, sql).await.len() < count {
        assert!(began.elapsed() < PATIENCE, "timed out: the records do not come: {count} of {sql}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn run(seed: u64, kafka: Option<String>) {
    show_logs();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut harness = Harness::new().await.unwrap();
    let embedded = format!("file://{}", harness.path().join("log").display());
    let test_log = TestLog { url: kafka.unwrap_or(embedded), suffix: format!("-{}", Uuid::new_v4().simple()) };
    harness.log = test_log.log().await;
    for topic in ["in", "out", "out_other"] {
        harness.log.create_topic(&test_log.topic(topic), PARTITIONS).await.unwrap();
    }
    let texts = [STREAM, DECISIONS, DECIDED, ESCALATED].map(|sql| test_log.sql(sql));
    let [stream, decisions, first, second] = texts.each_ref().map(String::as_str);
    let definitions = [
        (DefinitionKind::Stream, "s", stream),
        (DefinitionKind::Stream, "d", decisions),
        (DefinitionKind::View, "by_key", BY_KEY),
        (DefinitionKind::View, "reviews", REVIEWS),
        (DefinitionKind::Sink, "decided", first),
        (DefinitionKind::Sink, "escalated", second),
    ];
    harness.define(&definitions).await.unwrap();
    let failed = Arc::new(AtomicUsize::new(0));
    let mut process = Process::start(&harness, &test_log, "w0", &failed).await;
    for round in 0..ROUNDS {
        let before = put_out(&harness, &test_log, DECIDED).await.len();
        let events = (round * EVENTS_PER_ROUND..(round + 1) * EVENTS_PER_ROUND).map(|number| event(&mut rng, number)).collect();
        harness.append(&test_log.topic("in"), PARTITIONS, events).await.unwrap();
        match round % 4 {
            // As soon as records of the first sink are out, of which the second has seen few or none.
            1 => until_put_out(&harness, &test_log, DECIDED, before + 1).await,
            // At any moment.
            3 => tokio::time::sleep(Duration::from_millis(rng.random_range(0..250))).await,
            _ => continue,
        }
        process.kill().await;
        process = Process::start(&harness, &test_log, &format!("w{round}"), &failed).await;
    }
    let decided = decided(&harness, &test_log).await;
    until_put_out(&harness, &test_log, ESCALATED, decided.len()).await;
    process.finish().await;
    // A stream whose sink fails may be left out for a while: a process with a log that answers commits the rest.
    let answers = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed };
    let process = Process::start_on(&harness, &test_log, "last", Arc::new(answers)).await;
    harness.committed("s", &test_log.topic("in")).await.unwrap();
    harness.committed("d", &test_log.topic("out")).await.unwrap();
    process.finish().await;

    assert_eq!(put_out(&harness, &test_log, DECIDED).await, decided, "seed {seed}: the first sink");
    let escalated = escalated(&harness, &test_log).await;
    assert_eq!(escalated.len(), decided.len(), "seed {seed}: each record of the first sink is in its topic once");
    let found = put_out(&harness, &test_log, ESCALATED).await;
    for (record, row) in &escalated {
        assert_eq!(found.get(record), Some(row), "seed {seed}: the second sink of {record:?}");
    }
    assert_eq!(found.len(), escalated.len(), "seed {seed}");
    let verdicts: BTreeSet<&str> = found.values().filter_map(|row| row["verdict"].as_str()).collect();
    assert_eq!(verdicts, BTreeSet::from(["escalate", "watch"]), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_of_a_chain_follows_from_one_record_before_it_whatever_dies() {
    for seed in seeds(2) {
        run(seed, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs services: just test-services"]
async fn the_same_on_kafka() {
    let [url] = needed(["BASESTREAM_TEST_KAFKA"]);
    for seed in seeds(1) {
        run(seed, Some(url.clone())).await;
    }
}
