//! Counts in a window: what begins and ceases is what a walk over every second of the clock finds, however much is read
//! at once. What is read already and lies later does not count yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use basestream_tests::Harness;
use catalog::DefinitionKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use serving::ServingClock;
use types::tiles::Micros;

use super::{Process, SECOND, put_out, show_logs, state, time, until};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT)
    WITH (topic = 'one', event_time = 'ts', key = 'k')";
/// The edge of its window moves every second.
const VIEW: &str = "CREATE VIEW v WITH (windows = '1m') AS SELECT k, count(*) AS n FROM s GROUP BY k";
const OFTEN: &str = "CREATE ALERT often WITH (topic = 'often', resolve = true) AS SELECT k, n_1m FROM v WHERE n_1m >= 3";
const MINUTE: Micros = 60 * SECOND;
/// 2026-03-01T12:00:00Z
const FIRST: Micros = 1_772_366_400_000_000;

/// Records have ceased once none came for this long.
const QUIET: Duration = Duration::from_secs(3);

/// A key, and when it had an event.
type Event = (String, Micros);

async fn append(harness: &Harness, partitions: u32, events: &[Event]) {
    let record = |(key, ts): &Event| (Some(key.clone()), json!({ "ts": ts, "k": key }).to_string());
    harness.append("one", partitions, events.iter().map(record).collect()).await.unwrap();
}

/// Whether a key with this many events in the window satisfies a condition.
type Holds = fn(usize) -> bool;

/// When each key begins and ceases, alternately: each second is looked at, with what lies before its end. Each key has
/// an event in the first second.
fn walked(events: &[Event], holds: Holds) -> BTreeMap<String, Vec<Micros>> {
    let end = events.iter().map(|(_, ts)| *ts).max().unwrap();
    let keys: BTreeSet<&String> = events.iter().map(|(key, _)| key).collect();
    let of_key = |key: &String| {
        let mut changes: Vec<Micros> = Vec::new();
        for second in (FIRST..=end).step_by(SECOND as usize) {
            let counts = |ts: Micros| ts >= second - MINUTE && ts < second + SECOND;
            let count = events.iter().filter(|(of, ts)| of == key && counts(*ts)).count();
            if holds(count) != (changes.len() % 2 == 1) {
                changes.push(second);
            }
        }
        changes
    };
    keys.into_iter().map(|key| (key.clone(), of_key(key))).collect()
}

/// Everything is put out: as many records as are expected, and then no other for a while.
async fn until_quiet(harness: &Harness, topic: &str, expected: usize) {
    let (mut last, mut since) = (0, Instant::now());
    until("records to cease", async || {
        let count = put_out(harness, topic).await.values().map(Vec::len).sum::<usize>();
        if count != last {
            (last, since) = (count, Instant::now());
        }
        count >= expected && since.elapsed() > QUIET
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_in_a_window_begins_and_ceases_when_a_walk_over_the_clock_says() {
    begins_and_ceases_as_walked(("v", VIEW), ("often", OFTEN), |count| count >= 3).await;
}

/// Also a silence that ends before anyone looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_without_events_begins_and_ceases_when_a_walk_over_the_clock_says() {
    begins_and_ceases_as_walked(("w", IDLE_VIEW), ("idle", IDLE), |count| count == 0).await;
}

/// An alert over the view, whose topic has its name.
async fn begins_and_ceases_as_walked((view, view_sql): (&str, &str), (alert, alert_sql): (&str, &str), holds: Holds) {
    show_logs();
    for seed in 1..=4 {
        // A key is in one of them. They are read one after another.
        let partitions = [1, 3, 5, 1][seed as usize % 4];
        let harness = Harness::new().await.unwrap();
        harness.log.create_topic("one", partitions).await.unwrap();
        let definitions =
            [(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, view, view_sql), (DefinitionKind::Alert, alert, alert_sql)];
        harness.define(&definitions).await.unwrap();
        let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
        // The alert is evaluated from then on.
        let mut events: Vec<Event> = vec![("first".to_owned(), FIRST); 3];
        events.extend((0..4).map(|key| (format!("k{key}"), FIRST)));
        append(&harness, partitions, &events).await;
        until_evaluated(&harness, 1).await;
        if holds(3) {
            until("the first alert", async || !put_out(&harness, alert).await.is_empty()).await;
        }

        let mut rng = StdRng::seed_from_u64(seed);
        let mut ts = FIRST;
        while events.len() < 400 {
            let mut together = Vec::new();
            // A second is appended as a whole: who looks at a part of it may find what does not hold at its end.
            ts += SECOND;
            for _ in 0..rng.random_range(1..80) {
                // Bursts, and pauses of some minutes.
                ts += if rng.random_ratio(1, 12) { rng.random_range(0..5 * MINUTE) } else { rng.random_range(0..20 * SECOND) };
                together.push((format!("k{}", rng.random_range(0..4)), ts));
            }
            append(&harness, partitions, &together).await;
            events.append(&mut together);
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..120))).await;
        }
        let expected = walked(&events, holds);
        let count = expected.values().map(Vec::len).sum::<usize>();
        assert!(count > 20, "{count} changes");
        until_quiet(&harness, alert, count).await;
        process.finish().await;
        let found = put_out(&harness, alert).await;
        assert_eq!(found.values().map(Vec::len).sum::<usize>(), count, "seed {seed}");
        for (key, records) in found {
            let second = |time: Micros| time - time.rem_euclid(SECOND);
            let found: Vec<(&str, Micros)> = records.iter().map(|record| (state(Some(record)), second(time(record, "_at")))).collect();
            let expected = expected[&key].iter().zip(["began", "resolved"].iter().cycle());
            assert_eq!(found, expected.map(|(at, state)| (*state, *at)).collect::<Vec<_>>(), "seed {seed}, {key}: {records:#?}");
        }
    }
}

/// These definitions, over a topic of one partition.
async fn harness_of_one_partition(definitions: &[(DefinitionKind, &str, &str)]) -> Harness {
    show_logs();
    let harness = Harness::new().await.unwrap();
    harness.log.create_topic("one", 1).await.unwrap();
    harness.define(definitions).await.unwrap();
    harness
}

/// Its hop is an hour.
const SEEN: &str = "CREATE VIEW w WITH (windows = '7d') AS
    SELECT k, count(*) AS n, max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen FROM s GROUP BY k";
const SILENT: &str = "CREATE ALERT silent WITH (topic = 'silent', resolve = true) AS
    SELECT k, n_7d, last_seen FROM w WHERE as_of() - last_seen > INTERVAL '1 minute'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_between_two_edges_of_a_window_begins_at_its_time() {
    let harness = harness_of_one_partition(&[
        (DefinitionKind::Stream, "s", STREAM),
        (DefinitionKind::View, "w", SEEN),
        (DefinitionKind::Alert, "silent", SILENT),
    ])
    .await;
    append(&harness, 1, &[("first".to_owned(), FIRST)]).await;
    let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
    until("the alert is not evaluated", async || {
        harness.catalog.alert_runners().await.unwrap().iter().any(|runner| runner.evaluated_at.is_some())
    })
    .await;
    // Read at once, as what came while no process looked.
    append(&harness, 1, &[("second".to_owned(), FIRST + 10 * SECOND), ("third".to_owned(), FIRST + 30 * MINUTE)]).await;
    until("the silence does not begin", async || put_out(&harness, "silent").await.contains_key("second")).await;
    // It ends and begins once more.
    append(&harness, 1, &[("second".to_owned(), FIRST + 32 * MINUTE), ("last".to_owned(), FIRST + 50 * MINUTE)]).await;
    until("the silence does not end and begin again", async || put_out(&harness, "silent").await["second"].len() == 3).await;
    process.finish().await;
    let found = put_out(&harness, "silent").await;
    let states: Vec<&str> = found["second"].iter().map(|record| state(Some(record))).collect();
    assert_eq!(states, ["began", "resolved", "began"], "{found:#?}");
    for (key, record, seen) in
        [("first", 0, FIRST), ("second", 0, FIRST + 10 * SECOND), ("second", 2, FIRST + 32 * MINUTE), ("third", 0, FIRST + 30 * MINUTE)]
    {
        assert_eq!(time(&found[key][record], "_since"), seen + MINUTE + 1, "{key}: {found:#?}");
    }
}

async fn until_evaluated(harness: &Harness, alerts: usize) {
    until("the alerts to be evaluated", async || {
        harness.catalog.alert_runners().await.unwrap().iter().filter(|runner| runner.evaluated_at.is_some()).count() == alerts
    })
    .await;
}

const GONE: &str = "CREATE ALERT gone WITH (topic = 'gone', resolve = true) AS
    SELECT k, last_seen FROM w WHERE as_of() - last_seen BETWEEN INTERVAL '1 minute' AND INTERVAL '2 minutes'";

/// One key ceases before another one, which was due together with it, began. Whoever went on from the time of what
/// ceased would find that the other one had not begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_what_is_committed_does_not_go_back() {
    let harness = harness_of_one_partition(&[
        (DefinitionKind::Stream, "s", STREAM),
        (DefinitionKind::View, "w", SEEN),
        (DefinitionKind::Alert, "gone", GONE),
    ])
    .await;
    append(&harness, 1, &[("first".to_owned(), FIRST)]).await;
    let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
    until_evaluated(&harness, 1).await;
    let together = [("early", 10), ("late", 90), ("last", 200)].map(|(key, seconds)| (key.to_owned(), FIRST + seconds * SECOND));
    append(&harness, 1, &together).await;
    until("both to begin, and one to cease", async || {
        let found = put_out(&harness, "gone").await;
        found.get("early").is_some_and(|of| of.len() == 2) && found.contains_key("late")
    })
    .await;
    process.finish().await;
    let found = put_out(&harness, "gone").await;
    assert!(time(&found["early"][1], "_at") < time(&found["late"][0], "_since"), "{found:#?}");
    let progress = harness.catalog.alert_progress().await.unwrap().pop().unwrap();
    assert!(progress.at >= time(&found["late"][0], "_since"), "{progress:?}");
}

const IDLE_VIEW: &str = "CREATE VIEW w WITH (windows = '1m') AS
    SELECT k, count(*) AS n, max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen FROM s GROUP BY k";
const IDLE: &str = "CREATE ALERT idle WITH (topic = 'idle', resolve = true) AS SELECT k, n_1m FROM w WHERE n_1m = 0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_not_idle_before_its_first_event() {
    let harness = harness_of_one_partition(&[
        (DefinitionKind::Stream, "s", STREAM),
        (DefinitionKind::View, "w", IDLE_VIEW),
        (DefinitionKind::Alert, "idle", IDLE),
    ])
    .await;
    append(&harness, 1, &[("first".to_owned(), FIRST)]).await;
    let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
    until_evaluated(&harness, 1).await;
    append(&harness, 1, &[("new".to_owned(), FIRST + 30 * SECOND), ("first".to_owned(), FIRST + 5 * MINUTE)]).await;
    until("the new key", async || put_out(&harness, "idle").await.contains_key("new")).await;
    process.finish().await;
    let found = put_out(&harness, "idle").await;
    let states: Vec<&str> = found["new"].iter().map(|record| state(Some(record))).collect();
    assert_eq!(states, ["began"], "{found:#?}");
    // Its second leaves the window.
    assert_eq!(time(&found["new"][0], "_since"), FIRST + 30 * SECOND + MINUTE + SECOND, "{found:#?}");
}

/// The hop of its longest window is five minutes, that of the other ten seconds.
const DAY_VIEW: &str = "CREATE VIEW w WITH (windows = '30m, 1d') AS SELECT k, count(*) AS n FROM s GROUP BY k";
const IDLE_OF_DAY: &str = "CREATE ALERT idle WITH (topic = 'idle', resolve = true) AS SELECT k, n_30m FROM w WHERE n_30m = 0";

/// The first event of a key comes some minutes after the hop of the day began. It is read together with what follows,
/// as after a stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_not_idle_before_its_first_event_in_the_hop_of_a_longer_window() {
    let harness = harness_of_one_partition(&[
        (DefinitionKind::Stream, "s", STREAM),
        (DefinitionKind::View, "w", DAY_VIEW),
        (DefinitionKind::Alert, "idle", IDLE_OF_DAY),
    ])
    .await;
    append(&harness, 1, &[("first".to_owned(), FIRST)]).await;
    let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
    until_evaluated(&harness, 1).await;
    append(&harness, 1, &[("new".to_owned(), FIRST + 200 * SECOND), ("first".to_owned(), FIRST + 45 * MINUTE)]).await;
    until("the new key", async || put_out(&harness, "idle").await.contains_key("new")).await;
    process.finish().await;
    let found = put_out(&harness, "idle").await;
    let states: Vec<&str> = found["new"].iter().map(|record| state(Some(record))).collect();
    assert_eq!(states, ["began"], "{found:#?}");
    // Its ten seconds leave the window.
    assert_eq!(time(&found["new"][0], "_since"), FIRST + 210 * SECOND + 30 * MINUTE, "{found:#?}");
}

const PAYING: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), k TEXT, x BIGINT)
    WITH (topic = 'one', event_time = 'ts', key = 'k')";
const LAST_SEEN: &str = "CREATE VIEW v AS
    SELECT k, sum(x) AS paid, max(ts) FILTER (WHERE x = 0) AS last_beat, max(ts) AS last_seen FROM s GROUP BY k";
const LAST_BEAT: &str = "CREATE VIEW u AS SELECT k, sum(x) AS paid, max(ts) FILTER (WHERE x = 0) AS last_beat FROM s GROUP BY k";
const PAYS: &str = "CREATE ALERT pays WITH (topic = 'pays') AS
    SELECT k, paid FROM v WHERE as_of() - last_beat > INTERVAL '1 minute' AND paid > 5";
const PAYS_TOO: &str = "CREATE ALERT pays_too WITH (topic = 'pays_too') AS
    SELECT k, paid FROM u WHERE as_of() - last_beat > INTERVAL '1 minute' AND paid > 5";

/// The silence was long enough first, and then the other part came to hold; both are read at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_beside_another_condition_does_not_begin_before_that_holds() {
    let harness = harness_of_one_partition(&[
        (DefinitionKind::Stream, "s", PAYING),
        (DefinitionKind::View, "v", LAST_SEEN),
        (DefinitionKind::View, "u", LAST_BEAT),
        (DefinitionKind::Alert, "pays", PAYS),
        (DefinitionKind::Alert, "pays_too", PAYS_TOO),
    ])
    .await;
    let append = async |events: &[(&str, Micros, i64)]| {
        let record = |(key, ts, x): &(&str, Micros, i64)| (Some((*key).to_owned()), json!({ "ts": ts, "k": key, "x": x }).to_string());
        harness.append("one", 1, events.iter().map(record).collect()).await.unwrap();
    };
    append(&[("first", FIRST, 0)]).await;
    let process = Process::start_by(ServingClock::Event, &harness, "w", true, &Arc::new(AtomicUsize::new(0))).await;
    until_evaluated(&harness, 2).await;
    let pays = FIRST + 5 * MINUTE;
    append(&[("device", FIRST + 10 * SECOND, 0), ("device", pays, 6), ("last", FIRST + 10 * MINUTE, 0)]).await;
    until("both alerts", async || {
        put_out(&harness, "pays").await.contains_key("device") && put_out(&harness, "pays_too").await.contains_key("device")
    })
    .await;
    process.finish().await;
    let (known, unknown) = (put_out(&harness, "pays").await, put_out(&harness, "pays_too").await);
    assert_eq!(time(&known["device"][0], "_since"), pays, "{known:#?}");
    // Without the time of the last event, it begins when it is looked at.
    assert!(time(&unknown["device"][0], "_since") >= pays, "{unknown:#?}");
}
