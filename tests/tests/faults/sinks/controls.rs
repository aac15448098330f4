//! A stream as a control: a view without keys over its events is joined to each event of another stream. The position
//! that a record names says which controls the event saw.

use types::vector::{PartitionId, Vector};

use super::*;

const CONTROLS: &str = "CREATE STREAM controls (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), max_hourly BIGINT NOT NULL)
    WITH (topic = 'controls', event_time = 'ts')";
const LIMITS: &str = "CREATE VIEW limits AS SELECT last_value(max_hourly ORDER BY ts) AS max_hourly FROM controls";
const LIMITED: &str = "CREATE SINK limited WITH (topic = '{out}') AS
    SELECT e.id, e.x, l.max_hourly, _position, CASE WHEN e.x > coalesce(l.max_hourly, 5) THEN 'review' ELSE 'allow' END AS decision
    FROM s e CROSS JOIN limits l";

/// The controls that an event saw, of which there is one partition.
fn controls_seen(row: &Value) -> usize {
    let position: Vector = row["_position"].as_str().unwrap().parse().unwrap();
    position.get(&PartitionId::new("controls", 0)).0 as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_saw_the_controls_before_the_position_of_its_record() {
    show_logs();
    let mut harness = Harness::new().await.unwrap();
    let url = format!("file://{}", harness.path().join("log").display());
    let test_log = TestLog { url, suffix: String::new() };
    harness.log = test_log.log().await;
    for (topic, partitions) in [("in", PARTITIONS), ("controls", 1), ("out", PARTITIONS)] {
        harness.log.create_topic(topic, partitions).await.unwrap();
    }
    let (stream, sink) = (test_log.sql(STREAM), test_log.sql(LIMITED));
    let definitions = [
        (DefinitionKind::Stream, "s", &*stream),
        (DefinitionKind::Stream, "controls", CONTROLS),
        (DefinitionKind::View, "limits", LIMITS),
        (DefinitionKind::Sink, "limited", &*sink),
    ];
    harness.define(&definitions).await.unwrap();
    let reliable = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: Arc::default() };
    let process = Process::start_on(&harness, &test_log, "w0", Arc::new(reliable)).await;
    let mut rng = StdRng::seed_from_u64(1);
    let (mut controls, mut number) = (Vec::new(), 0);
    for limit in 0..8_i64 {
        // A control may be dated before the one that is in effect.
        let ts = BEGIN + limit * MINUTE - rng.random_range(0..3 * MINUTE);
        controls.push((ts, limit));
        harness.append("controls", 1, vec![(None, json!({ "ts": ts, "max_hourly": limit }).to_string())]).await.unwrap();
        let mut seen = 0;
        while seen < controls.len() {
            assert!(number < 400, "no event saw the control {limit}");
            let (id, key) = (format!("e{number}"), format!("k{}", number % usize::from(KEYS)));
            let value = json!({ "id": id, "ts": BEGIN, "k": key, "u": "u0", "x": rng.random_range(0..9) });
            harness.append("in", PARTITIONS, vec![(Some(key), value.to_string())]).await.unwrap();
            number += 1;
            let found = until_put_out(&harness, &test_log, number).await;
            seen = found.iter().find(|row| row["id"] == *id).map(controls_seen).unwrap();
        }
    }
    process.finish().await;
    for row in until_put_out(&harness, &test_log, number).await {
        let newest = controls[..controls_seen(&row)].iter().enumerate().max_by_key(|(place, (ts, _))| (*ts, *place));
        let limit = newest.map(|(_, (_, limit))| *limit);
        let decision = if row["x"].as_i64().unwrap() > limit.unwrap_or(5) { "review" } else { "allow" };
        assert_eq!((&row["max_hourly"], &row["decision"]), (&json!(limit), &json!(decision)), "{row}");
    }
}

/// Waits until this many events have a record.
async fn until_put_out(harness: &Harness, test_log: &TestLog, events: usize) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let found = put_out(harness, test_log, LIMITED).await;
        if found.len() >= events {
            return found.into_values().collect();
        }
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: the records do not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
