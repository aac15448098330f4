//! A view of two streams of which one is hours ahead: a run makes its snapshot for a later time than that of the other
//! stream's events. The sinks that join it read later rows, and say so; others do not.

use super::*;

const AHEAD: &str = "CREATE STREAM o (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), u TEXT)
    WITH (topic = 'ahead', event_time = 'ts', id = 'id', key = 'u', dedup_within = '1h')";
const ACROSS: &str = "CREATE VIEW across WITH (windows = '1h') AS
    SELECT a.k, count(DISTINCT b.id) AS others FROM s a JOIN o b ON a.u = b.u GROUP BY a.k";
const ALONE: &str = "CREATE SINK alone WITH (topic = '{out}') AS
    SELECT e.id, v.n_1h, _as_of FROM s e LEFT JOIN by_key v ON v.k = e.k";
const LINKED: &str = "CREATE SINK linked WITH (topic = '{out_before}') AS
    SELECT e.id, v.n_1h, l.others_1h, _as_of FROM s e LEFT JOIN by_key v ON v.k = e.k LEFT JOIN across l ON l.k = e.k";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_reads_later_rows_for_a_view_of_its_own_alone() {
    show_logs();
    let mut harness = Harness::new().await.unwrap();
    let url = format!("file://{}", harness.path().join("log").display());
    let test_log = TestLog { url, suffix: String::new() };
    harness.log = test_log.log().await;
    for topic in ["in", "ahead", "out", "out_before"] {
        harness.log.create_topic(topic, 1).await.unwrap();
    }
    let sql = [STREAM, ALONE, LINKED].map(|text| test_log.sql(text));
    let definitions = [
        (DefinitionKind::Stream, "s", &*sql[0]),
        (DefinitionKind::Stream, "o", AHEAD),
        (DefinitionKind::View, "by_key", BY_KEY),
        (DefinitionKind::View, "across", ACROSS),
        (DefinitionKind::Sink, "alone", &*sql[1]),
        (DefinitionKind::Sink, "linked", &*sql[2]),
    ];
    harness.define(&definitions).await.unwrap();
    let reliable = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: Arc::default() };
    let process = Process::start_on(&harness, &test_log, "w0", Arc::new(reliable)).await;
    let other = json!({ "id": "o0", "ts": BEGIN + 3 * HOUR, "u": "u0" });
    harness.append("ahead", 1, vec![(Some("u0".to_owned()), other.to_string())]).await.unwrap();
    let time = |number: usize| BEGIN + number as Micros * 1_000_000;
    let (mut number, mut later) = (0, 0);
    while later < 3 {
        assert!(number < 200, "no record was made for a later time");
        let value = json!({ "id": format!("e{number}"), "ts": time(number), "k": "k0", "u": "u0", "x": 1 });
        harness.append("in", 1, vec![(Some("k0".to_owned()), value.to_string())]).await.unwrap();
        number += 1;
        let linked = &until_put_out(&harness, &test_log, LINKED, number).await[number - 1];
        later += usize::from(as_of(linked) > time(number - 1));
        if number == 3 {
            harness.committed("s", "in").await.unwrap();
            harness.committed("o", "ahead").await.unwrap();
            harness.batch("across", RunTime::EventClock).await.unwrap();
        }
    }
    for (event, row) in until_put_out(&harness, &test_log, ALONE, number).await.iter().enumerate() {
        assert_eq!((row["n_1h"].as_u64(), as_of(row)), (Some(event as u64 + 1), time(event)), "{row}");
    }
    process.finish().await;
}

fn as_of(row: &Value) -> Micros {
    engine::events::parse_timestamp(row["_as_of"].as_str().unwrap()).unwrap()
}

/// Waits until this many events have a record. Returns the records in the order of the events.
async fn until_put_out(harness: &Harness, test_log: &TestLog, sink: &str, events: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let found = put_out(harness, test_log, sink).await;
        if found.len() >= events {
            return found.into_values().collect();
        }
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: the records do not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
