//! A backtest says of each event what DuckDB computes from the records of the log, an independent engine: which of them
//! are events, in which order they became known, and what each of them sees.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use basestream_tests::{now, records_of};
use catalog::DefinitionKind;
use event_log::TopicPartition;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use types::record::Record;

use super::*;

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, u BIGINT, x BIGINT,
    amount DECIMAL(18,2)) WITH (topic = 's', event_time = 'ts', id = 'id', key = 'k')";
const BY_K: &str = "CREATE VIEW by_k WITH (windows = '1h') AS
    SELECT k, count(*) AS n, sum(x) AS total, sum(amount) AS amount, max(x) AS most, count(DISTINCT u) AS users,
        max(ts) FILTER (WHERE within(ts, 'all')) AS last, count(*) FILTER (WHERE within(ts, '1h', '10m')) AS earlier
    FROM s WHERE x <> 7 GROUP BY k";
/// Its events are in all partitions.
const BY_U: &str = "CREATE VIEW by_u WITH (windows = '10m, 1h') AS
    SELECT u, count(*) AS n, count(DISTINCT k) AS keys, max(amount) AS largest FROM s GROUP BY u";
const OF_ALL: &str = "CREATE VIEW of_all AS SELECT count(*) AS events FROM s";
/// The names of two sinks, which have the same SELECT.
const SINKS: [&str; 2] = ["inclusive", "exclusive"];
const SELECT: &str = "SELECT e.id, e.k, a.n_1h, a.total_1h, a.amount_1h, a.most_1h, a.users_1h, a.last, a.earlier,
        b.n_10m AS of_user_10m, b.n_1h AS of_user_1h, b.keys_1h, b.largest_10m, c.events,
        CASE WHEN e.amount > 90 AND a.n_1h > 10 THEN 'deny' WHEN a.users_1h > 4 AND b.n_10m > 4 THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_k a ON a.k = e.k LEFT JOIN by_u b ON b.u = e.u LEFT JOIN of_all c ON true WHERE e.x <> 5";

const PARTITIONS: u32 = 2;
const PARTS: usize = 10;
const EVENTS_PER_PART: usize = 50;
/// The event times of events that are not late.
const SPAN: Micros = 3 * HOUR;

/// Scored events by their places, with their times.
type Scored = BTreeMap<(i32, i64), (Micros, Value)>;

/// One record. Some are broken, some are late, and some have the id of an earlier one, which is in the same partition
/// or not.
fn record(rng: &mut StdRng, number: usize, start: Micros) -> (Option<String>, String) {
    let key = (!rng.random_ratio(1, 20)).then(|| format!("k{}", rng.random_range(0..4)));
    if rng.random_ratio(1, 40) {
        return (key, json!({ "id": format!("broken{number}") }).to_string());
    }
    let id = if rng.random_ratio(1, 10) { number.saturating_sub(rng.random_range(1..20)) } else { number };
    let late = if rng.random_ratio(1, 5) { rng.random_range(0..2 * HOUR) } else { 0 };
    let ts = start + SPAN * number as Micros / (PARTS * EVENTS_PER_PART) as Micros - late;
    let amount = format!("{}.{:02}", rng.random_range(0..100), rng.random_range(0..100));
    let (u, x) = (rng.random_range(0..5), rng.random_range(0..9));
    (key.clone(), json!({ "id": format!("e{id}"), "ts": ts, "k": key, "u": u, "x": x, "amount": amount }).to_string())
}

/// An archive of events from `start` on, and sinks over them.
async fn archived(seed: u64, start: Micros) -> Harness {
    let mut rng = StdRng::seed_from_u64(seed);
    let harness = Harness::new().await.unwrap();
    let [by_k, by_u, of_all] = [("by_k", BY_K), ("by_u", BY_U), ("of_all", OF_ALL)].map(|(name, sql)| (DefinitionKind::View, name, sql));
    harness.define(&[(DefinitionKind::Stream, "s", STREAM), by_k, by_u, of_all]).await.unwrap();
    for part in 0..PARTS {
        let numbers = part * EVENTS_PER_PART..(part + 1) * EVENTS_PER_PART;
        harness.append("s", PARTITIONS, numbers.map(|number| record(&mut rng, number, start)).collect()).await.unwrap();
        // The log receives each part at a time of its own.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let worker = harness.worker("one", Duration::from_millis(100), None);
    harness.committed("s", "s").await.unwrap();
    worker.finish().await.unwrap();
    // They put nothing out: no worker runs any more.
    let sinks = SINKS.map(|name| format!("CREATE SINK {name} WITH (topic = '{name}', features = '{name}') AS {SELECT}"));
    let sinks = [0, 1].map(|sink| (DefinitionKind::Sink, SINKS[sink], sinks[sink].as_str()));
    harness.define(&sinks).await.unwrap();
    harness
}

/// A record of the log as the script reads it.
fn line((source, record): &(TopicPartition, Record)) -> String {
    let mut line: Value = serde_json::from_slice(record.value.as_deref().unwrap()).unwrap();
    line["partition"] = json!(source.partition);
    line["offset"] = json!(record.offset.0);
    line["received"] = json!(record.timestamp);
    format!("{line}\n")
}

/// What DuckDB says, for each way to ask.
async fn computed(harness: &Harness) -> BTreeMap<String, Scored> {
    let python = basestream_tests::oracle::needed();
    let folder = tempfile::tempdir().unwrap();
    let records = records_of(&*harness.log, "s").await.unwrap();
    assert_eq!(records.len(), PARTS * EVENTS_PER_PART);
    std::fs::write(folder.path().join("events.ndjson"), records.iter().map(line).collect::<String>()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/backtest.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    let placed = |mut row: Value| {
        let members = row.as_object_mut().unwrap();
        let mut taken = |name: &str| members.remove(name).unwrap().as_i64().unwrap();
        let (place, time) = ((taken("partition") as i32, taken("offset")), taken("time"));
        (place, (time, row))
    };
    all.into_iter().map(|(name, rows)| (name, rows.into_iter().map(placed).collect())).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn a_backtest_is_what_other_programs_compute() {
    let seed = rand::random();
    let start = now() - SPAN;
    let harness = archived(seed, start).await;
    let computed = computed(&harness).await;
    let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
    for sink in SINKS {
        for (way, known, clock) in [
            ("event", Known::Event, BacktestClock::Event),
            ("log by events", Known::Log, BacktestClock::Event),
            ("log by wall", Known::Log, BacktestClock::Wall),
        ] {
            let expected = &computed[&format!("{sink} {way}")];
            for (from, to) in [(start - SPAN, start + 2 * SPAN), (start + HOUR, start + 2 * HOUR)] {
                let found = scored_as(&harness, &registry, sink, (from, to), (known, clock)).await;
                let of_range: BTreeMap<_, _> = expected.iter().filter(|(_, (time, _))| (from..to).contains(time)).collect();
                assert!(of_range.len() > 50, "seed {seed}: {} events", of_range.len());
                for (place, (_, row)) in &of_range {
                    assert_eq!(found.get(*place), Some(row), "seed {seed}, {sink} {way}, event {place:?}");
                }
                assert_eq!(found.len(), of_range.len(), "seed {seed}, {sink} {way}");
            }
        }
    }
    // These events give a different answer for each way to ask.
    let answers: Vec<_> = computed.values().collect();
    assert!((0..6).all(|one| (0..one).all(|other| answers[one] != answers[other])), "seed {seed}");
}
