//! Training data: each row of a spine has what the views had at its time, and nothing that came after it.
//!
//! The expected side computes each row from the events of the log, in plain Rust, and shares nothing with the layers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use basestream_tests::{Harness, now};
use batch::{FirstArrival, Known, Spine, Training};
use catalog::DefinitionKind;
use committed::registry::Registry;
use event_log::TopicPartition;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use types::Result;
use types::sql_types::timestamp_type;
use types::tiles::Micros;
use types::vector::Offset;

mod backtest;
mod duckdb;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const PARTITIONS: u32 = 2;
/// More than one chunk of each stream, where batches are small.
const EVENTS: usize = 700;
const ROWS: usize = 400;
/// With this limit batches have 256 rows.
const LITTLE_MEMORY: usize = 6 << 20;

const S: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, u BIGINT, x BIGINT)
    WITH (topic = 's', event_time = 'ts', id = 'id', key = 'k')";
const O: &str = "CREATE STREAM o (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, u BIGINT, x BIGINT)
    WITH (topic = 'o', event_time = 'ts', id = 'id', key = 'k')";
const BY_KEY: &str = "CREATE VIEW by_key WITH (windows = '1h') AS SELECT k, count(*) AS n, sum(x) AS total,
    max(ts) FILTER (WHERE within(ts, 'all')) AS last, count(*) FILTER (WHERE within(ts, '1h', '10m')) AS earlier
    FROM s WHERE x <> 7 GROUP BY k";
const OF_BOTH: &str = "CREATE VIEW of_both WITH (windows = '10m, 1h') AS
    SELECT k, count(*) AS n FROM (SELECT k FROM s UNION ALL SELECT k FROM o) GROUP BY k";
const BY_PAIR: &str = "CREATE VIEW by_pair AS SELECT k, u, array_agg(x ORDER BY ts) AS all_x, max(x) AS most FROM s GROUP BY k, u";
const EVERYTHING: &str = "CREATE VIEW everything AS SELECT count(*) AS events, count(DISTINCT u) AS users FROM o";
const LINKS: &str = "CREATE VIEW links AS SELECT a.k, count(DISTINCT b.x) AS linked, count(*) FILTER (WHERE within(a.ts, '1h') AND
    within(b.ts, '10m')) AS recent FROM s a JOIN o b ON a.u = b.u AND a.x = b.x GROUP BY a.k";
/// Of its edges only the last time is kept.
const MET: &str = "CREATE VIEW met WITH (windows = '10m') AS SELECT a.k, count(DISTINCT b.x) AS met
    FROM s a JOIN o b ON a.u = b.u AND a.x = b.x GROUP BY a.k";
const VIEWS: [&str; 6] = ["by_key", "of_both", "by_pair", "everything", "links", "met"];

/// An event as the log has it.
#[derive(Debug, Clone)]
struct Event {
    stream: &'static str,
    place: (i32, i64),
    time: Micros,
    /// When the log received it: the greatest record timestamp of its partition up to it.
    clock: Micros,
    k: Option<String>,
    u: i64,
    x: i64,
}

#[derive(Debug, Clone)]
struct Row {
    k: String,
    u: i64,
    t: Micros,
}

struct Site {
    harness: Harness,
    events: Vec<Event>,
    rows: Vec<Row>,
}

impl Site {
    /// Events of the last three hours, which came within a second, and rows of the same time.
    async fn new(seed: u64) -> Site {
        let harness = Harness::new().await.unwrap();
        let (stream, view) = (DefinitionKind::Stream, DefinitionKind::View);
        let definitions = VIEWS.into_iter().zip([BY_KEY, OF_BOTH, BY_PAIR, EVERYTHING, LINKS, MET]);
        let definitions: Vec<_> = definitions.map(|(name, sql)| (view, name, sql)).collect();
        harness.define(&[vec![(stream, "s", S), (stream, "o", O)], definitions].concat()).await.unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let start = now();
        for part in 0..10 {
            for stream in ["s", "o"] {
                let record = |number: usize| {
                    let late = if rng.random_ratio(1, 2) { rng.random_range(-SECOND..SECOND) } else { rng.random_range(0..3 * HOUR) };
                    let key = (!rng.random_ratio(1, 20)).then(|| format!("k{}", rng.random_range(0..4)));
                    let (u, x) = (rng.random_range(0..3), rng.random_range(0..9));
                    let value = json!({ "id": format!("{part}-{number}"), "ts": start - late, "k": key, "u": u, "x": x });
                    (key, value.to_string())
                };
                harness.append(stream, PARTITIONS, (0..EVENTS / 10).map(record).collect()).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        let worker = harness.worker("one", Duration::from_millis(100), None);
        harness.committed("s", "s").await.unwrap();
        harness.committed("o", "o").await.unwrap();
        worker.finish().await.unwrap();
        let mut events = Vec::new();
        for stream in ["s", "o"] {
            for partition in 0..PARTITIONS as i32 {
                events.extend(events_of(&harness, stream, partition).await);
            }
        }
        assert_eq!(events.len(), 2 * EVENTS);
        let row = |_| {
            let event = &events[rng.random_range(0..events.len())];
            let t = match rng.random_range(0..4) {
                0 => event.time,
                1 => event.clock,
                2 => start + rng.random_range(-SECOND..SECOND),
                _ => start - rng.random_range(0..4 * HOUR),
            };
            Row { k: format!("k{}", rng.random_range(0..5)), u: rng.random_range(0..4), t }
        };
        let rows = (0..ROWS).map(row).collect();
        Site { harness, events, rows }
    }

    /// The rows with the columns of the views, as JSON.
    async fn trained(&self, exclusive: bool, known: Known, memory: usize) -> Result<Vec<Value>> {
        let state = self.harness.catalog.state().await?;
        let registry = Registry::load(&state, &self.harness.functions).await?;
        let training = Training::new(&registry, &VIEWS.map(str::to_owned), exclusive, known)?;
        let found = Mutex::new(Vec::new());
        let mut take = |rows: &RecordBatch| {
            let rows = serving::json::rows(rows)?;
            found.lock().unwrap().extend(rows.iter().map(|row| serde_json::from_str::<Value>(row.get()).unwrap()));
            Ok(())
        };
        let batch = self.harness.batch_layer(memory);
        let trained = batch.training(&state, &training, spine(&self.rows), &mut take, &|_| ()).await?;
        let found = found.into_inner().unwrap();
        assert_eq!(trained.rows, found.len() as u64);
        assert_eq!(trained.arrivals, self.arrivals(exclusive, known));
        Ok(found)
    }

    /// When the first event of each stream came, and how many rows come before that.
    fn arrivals(&self, exclusive: bool, known: Known) -> Vec<FirstArrival> {
        let arrival = |stream: &str| {
            let first = self.events.iter().filter(|event| event.stream == stream).map(|event| event.clock).min();
            let is_before = |row: &&Row| first.is_none_or(|first| if exclusive { row.t <= first } else { row.t < first });
            FirstArrival { stream: stream.into(), first, rows_before: self.rows.iter().filter(is_before).count() as u64 }
        };
        let streams = ["s", "o"].into_iter().filter(|_| known == Known::Log);
        streams.map(arrival).collect()
    }

    /// What a row sees of a stream, in the order of time.
    fn seen(&self, row: &Row, stream: &str, (exclusive, known): (bool, Known)) -> Vec<&Event> {
        let counts = |time: Micros| if exclusive { time < row.t } else { time <= row.t };
        let is_seen = |event: &&Event| event.stream == stream && counts(event.time) && (known == Known::Event || counts(event.clock));
        let mut seen: Vec<&Event> = self.events.iter().filter(is_seen).collect();
        seen.sort_by_key(|event| (event.time, event.place));
        seen
    }

    fn expected(&self, number: usize, asked: (bool, Known)) -> Value {
        let row = &self.rows[number];
        let floor = |time: Micros, hop: Micros| time.div_euclid(hop) * hop;
        let (of_s, of_o) = (self.seen(row, "s", asked), self.seen(row, "o", asked));
        let is_of_key = |event: &&&Event| event.k.as_deref() == Some(row.k.as_str());
        let counted: Vec<&Event> = of_s.iter().copied().filter(|event| event.x != 7 && is_of_key(&event)).collect();
        let in_hour: Vec<&&Event> = counted.iter().filter(|event| event.time >= floor(row.t - HOUR, MINUTE)).collect();
        let between = floor(row.t - HOUR, 10 * SECOND)..floor(row.t - 10 * MINUTE, 10 * SECOND);
        let of_both = |from: Micros| of_s.iter().chain(&of_o).filter(is_of_key).filter(|event| event.time >= from).count();
        let of_pair: Vec<i64> = of_s.iter().filter(is_of_key).filter(|event| event.u == row.u).map(|event| event.x).collect();
        let users: BTreeSet<i64> = of_o.iter().map(|event| event.u).collect();
        let near = of_s.iter().filter(is_of_key);
        let pairs: Vec<_> =
            near.flat_map(|a| of_o.iter().filter(|b| (a.u, a.x) == (b.u, b.x)).map(move |b| (a.time, b.time, b.x))).collect();
        let linked: BTreeSet<i64> = pairs.iter().map(|(.., x)| *x).collect();
        let ten_minutes = floor(row.t - 10 * MINUTE, 10 * SECOND);
        let met: BTreeSet<i64> = pairs.iter().filter(|(a, b, _)| *a.min(b) >= ten_minutes).map(|(.., x)| *x).collect();
        let is_recent = |a: Micros, b: Micros| a >= floor(row.t - HOUR, MINUTE) && b >= ten_minutes;
        json!({
            "id": number,
            "k": row.k,
            "by_key_n_1h": in_hour.len(),
            "total_1h": (!in_hour.is_empty()).then(|| in_hour.iter().map(|event| event.x).sum::<i64>()),
            "last": counted.iter().map(|event| event.time).max().map(engine::events::format_timestamp),
            "earlier": counted.iter().filter(|event| between.contains(&event.time)).count(),
            "n_10m": of_both(ten_minutes),
            "of_both_n_1h": of_both(floor(row.t - HOUR, MINUTE)),
            "all_x": (!of_pair.is_empty()).then(|| of_pair.clone()),
            "most": of_pair.iter().max(),
            "events": of_o.len(),
            "users": users.len(),
            "linked": linked.len(),
            "recent": pairs.iter().filter(|(a, b, _)| is_recent(*a, *b)).count(),
            "met_10m": met.len(),
        })
    }
}

/// The accepted events of a partition: all of its records.
async fn events_of(harness: &Harness, stream: &'static str, partition: i32) -> Vec<Event> {
    let source = TopicPartition { topic: stream.into(), partition };
    let fetched = harness.log.read(&source, Offset(0), 100_000).await.unwrap();
    let mut clock = Micros::MIN;
    let event = |record: &types::record::Record| {
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
        clock = clock.max(record.timestamp);
        Event {
            stream,
            place: (partition, record.offset.0),
            time: value["ts"].as_i64().unwrap(),
            clock,
            k: value["k"].as_str().map(str::to_owned),
            u: value["u"].as_i64().unwrap(),
            x: value["x"].as_i64().unwrap(),
        }
    };
    fetched.records.iter().map(event).collect()
}

/// The columns `id` and `k`, then the keys of the views, then the time.
fn spine(rows: &[Row]) -> Spine {
    let own: SchemaRef = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("k", DataType::Utf8, false)]));
    let keys = [
        ("a", DataType::Utf8),
        ("b", DataType::Utf8),
        ("c", DataType::Utf8),
        ("d", DataType::Int64),
        ("e", DataType::Utf8),
        ("f", DataType::Utf8),
    ];
    let fields =
        own.fields().iter().map(|field| field.as_ref().clone()).chain(keys.map(|(name, data_type)| Field::new(name, data_type, false)));
    let schema: SchemaRef = Arc::new(Schema::new(fields.chain([Field::new("t", timestamp_type(), false)]).collect::<Vec<_>>()));
    let batch = |(part, rows): (usize, &[Row])| {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows.len() as i64).map(|row| (part * 70) as i64 + row)));
        let k: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.k)));
        let u: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.u)));
        let t: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.t)).with_timezone("UTC"));
        Ok(RecordBatch::try_new(schema.clone(), vec![id, k.clone(), k.clone(), k.clone(), k.clone(), u, k.clone(), k, t]).unwrap())
    };
    let batches: Vec<Result<RecordBatch>> = rows.chunks(70).enumerate().map(batch).collect();
    Spine::new(own, Box::new(batches.into_iter()))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_a_spine_sees_what_was_known_at_its_time() {
    super::show_logs();
    let seed = rand::random();
    let site = Site::new(seed).await;
    let mut differing = BTreeMap::new();
    for exclusive in [false, true] {
        for known in [Known::Event, Known::Log] {
            let expected: Vec<Value> = (0..ROWS).map(|row| site.expected(row, (exclusive, known))).collect();
            for memory in [256 << 20, LITTLE_MEMORY] {
                let found = site.trained(exclusive, known, memory).await.unwrap();
                assert_eq!(found.len(), ROWS);
                for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(found, expected, "seed {seed}, row {number} {:?}, exclusive {exclusive}, {known:?}", site.rows[number]);
                }
            }
            differing.insert((exclusive, known == Known::Log), expected);
        }
    }
    // These rows give a different answer for each of the four ways to ask.
    let answers: Vec<&Vec<Value>> = differing.values().collect();
    assert!((0..4).all(|one| (0..one).all(|other| answers[one] != answers[other])), "seed {seed}");
}

/// A row sees what a lookup as of its time sees.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_what_a_lookup_as_of_its_time_answers() {
    let seed = rand::random();
    let site = Site::new(seed).await;
    let node = site.harness.node(serving::ServingClock::Event, None).await.unwrap();
    let found = site.trained(false, Known::Event, 256 << 20).await.unwrap();
    assert_eq!(found.len(), ROWS);
    let mut compared = 0;
    for (row, found) in site.rows.iter().zip(&found).step_by(40) {
        let as_of = engine::events::format_timestamp(row.t);
        let sql = format!("SET as_of = '{as_of}'; SELECT n_1h, total_1h, earlier FROM by_key WHERE k = '{}'", row.k);
        let answered = crate::rows(&node, &sql).await;
        let text = |value: &Value| if value.is_null() { String::new() } else { value.to_string() };
        let of_row = ["by_key_n_1h", "total_1h", "earlier"].map(|name| text(&found[name])).join(" ");
        match answered.as_slice() {
            [] => assert_eq!(of_row, "0  0", "seed {seed}, {row:?}"),
            [one] => {
                assert_eq!(of_row.trim(), one.trim(), "seed {seed}, {row:?}");
                compared += 1;
            }
            more => panic!("{more:?}"),
        }
    }
    assert!(compared > 0, "seed {seed}: no lookup finds its key");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_training_cannot_answer_is_refused() {
    let site = Site::new(7).await;
    let state = site.harness.catalog.state().await.unwrap();
    let registry = Registry::load(&state, &site.harness.functions).await.unwrap();
    for (views, message) in
        [(vec!["by_keys"], "did you mean \"by_key\"?"), (vec!["s"], "is a stream"), (vec!["by_key", "by_key"], "named twice")]
    {
        let views: Vec<String> = views.into_iter().map(str::to_owned).collect();
        let refused = Training::new(&registry, &views, false, Known::Event).unwrap_err().to_string();
        assert!(refused.contains(message), "{views:?}: {refused}");
    }
    let little = site.trained(false, Known::Event, 64 << 10).await.unwrap_err();
    assert!(matches!(little.kind(), types::ErrorKind::Unavailable | types::ErrorKind::Limit), "{little}");
}
