//! Links that no window can reach any more: a run leaves them out, and a query for a time before the run's is answered
//! without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use basestream_tests::{Harness, now};
use batch::RunTime;
use catalog::DefinitionKind;
use committed::registry::Registry;
use engine::events::format_timestamp;
use jobs::ledger;
use jobs::served::NodeServed;
use jobs::verify::{Verifier, verify_view};
use serving::{Node, ServingClock};
use storage::{Manifest, read_manifest};
use types::tiles::Micros;

const HOUR: Micros = 3_600_000_000;
const DAY: Micros = 24 * HOUR;
/// 2026-03-01T00:00:00Z.
const FIRST: Micros = 1_772_323_200_000_000;

const STREAMS: [(&str, &str); 2] = [("account", "a"), ("login", "l")];
const LINKS: &str = "CREATE VIEW links WITH (windows = '7d') AS SELECT c.device, count(DISTINCT l.device) AS linked, \
    count(DISTINCT l.device) FILTER (WHERE within(c.ts, '7d') AND within(l.ts, '3d')) AS lately FROM account c JOIN login l ON c.u = l.u GROUP BY c.device";

/// Adds an account and a login of a new user, at these times.
async fn link(harness: &Harness, user: &str, accounts_at: Micros, logs_in_at: Micros) {
    for ((_, topic), (device, ts)) in STREAMS.iter().zip([("near", accounts_at), ("far", logs_in_at)]) {
        let record = format!(r#"{{"id":"{topic}{user}","ts":"{}","u":"{user}","device":"{device}-{user}"}}"#, format_timestamp(ts));
        harness.append(topic, 1, vec![(Some(user.to_owned()), record)]).await.unwrap();
    }
}

async fn harness() -> Harness {
    let harness = Harness::new().await.unwrap();
    let stream = |(name, topic): (&str, &str)| {
        format!(
            "CREATE STREAM {name} (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, u TEXT, device TEXT) \
             WITH (topic = '{topic}', format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'u')"
        )
    };
    let streams = STREAMS.map(stream);
    let mut definitions: Vec<(DefinitionKind, &str, &str)> =
        STREAMS.iter().zip(&streams).map(|((name, _), sql)| (DefinitionKind::Stream, *name, &**sql)).collect();
    definitions.push((DefinitionKind::View, "links", LINKS));
    harness.define(&definitions).await.unwrap();
    link(&harness, "old", FIRST, FIRST + HOUR).await;
    link(&harness, "late", FIRST + 4 * DAY, FIRST + 4 * DAY).await;
    link(&harness, "new", FIRST + 10 * DAY, FIRST + 10 * DAY).await;
    commit(&harness).await;
    harness
}

async fn commit(harness: &Harness) {
    let worker = harness.worker("one", Duration::from_millis(100), None);
    for (name, topic) in STREAMS {
        harness.committed(name, topic).await.unwrap();
    }
    worker.finish().await.unwrap();
}

async fn manifest(harness: &Harness) -> Manifest {
    let state = harness.catalog.state().await.unwrap();
    let snapshot = state.snapshot("links", 1).unwrap();
    read_manifest(&harness.storage, state.files.iter().find(|file| file.path == snapshot.manifest).unwrap()).await.unwrap()
}

/// Returns each device with its two numbers, and whether the archive had to be read.
async fn asked(node: &Node, as_of: Option<Micros>) -> (Vec<String>, bool) {
    let set = as_of.map(|t| format!("SET as_of = '{}'; ", format_timestamp(t))).unwrap_or_default();
    let answer = node.query(&format!("{set}SELECT device, linked_7d, lately FROM links ORDER BY device"), Vec::new()).await.unwrap();
    let from_archive = answer.meta.from_archive;
    let mut rows = Vec::new();
    for batch in answer.collect().await.unwrap() {
        for row in 0..batch.num_rows() {
            let number = |column: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
            rows.push(format!("{} {} {}", batch.column(0).as_string::<i32>().value(row), number(1), number(2)));
        }
    }
    (rows, from_archive)
}

fn verifier(harness: &Harness) -> Verifier {
    let (catalog, storage, functions) = (harness.catalog.clone(), harness.storage.clone(), harness.functions.clone());
    Verifier { catalog, storage, functions, memory_limit: 64 << 20, temp_dir: None }
}

/// The served rows are those of plain SQL, two of them.
async fn verify(harness: &Harness, node: &Node) {
    let report = verify_view(&verifier(harness), "links", &NodeServed(node.clone()), now()).await.unwrap();
    assert!(report.is_equal() && report.rows == 2, "{report:?}");
}

async fn expired_and_kept(harness: &Harness, t: Micros) -> (i64, i64) {
    let verifier = verifier(harness);
    let state = harness.catalog.state().await.unwrap();
    let registry = Registry::load(&state, &harness.functions).await.unwrap();
    let line = ledger::view(&verifier, &state, registry.served("links").unwrap(), t).await.unwrap();
    assert!(line.balanced, "{line:?}");
    (line.expired, line.events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_leaves_out_what_no_window_reaches_and_earlier_times_are_answered_without_it() {
    let harness = harness().await;
    let t = FIRST + 10 * DAY;
    assert_eq!(expired_and_kept(&harness, t).await, (0, 6));

    harness.batch("links", RunTime::EventClock).await.unwrap();
    // The old account and its login are gone.
    assert_eq!(manifest(&harness).await.rows, 4);
    assert_eq!(expired_and_kept(&harness, t).await, (2, 4));
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    let lately = vec!["near-late 1 0".to_owned(), "near-new 1 1".to_owned()];
    assert_eq!(asked(&node, None).await, (lately.clone(), false));

    // By a clock that is ahead the late link is gone as well. The events' own clock is behind that run's time.
    harness.recompute("links", RunTime::At(t + 5 * DAY)).await.unwrap();
    node.refresh().await.unwrap();
    assert_eq!(manifest(&harness).await.rows, 2);
    assert_eq!(expired_and_kept(&harness, t + 5 * DAY).await, (4, 2));
    assert_eq!(asked(&node, None).await, (lately.clone(), true));
    assert_eq!(asked(&node, Some(t + DAY / 2)).await, (lately, true));
    verify(&harness, &node).await;
    assert_eq!(asked(&node, Some(t + 5 * DAY)).await, (vec!["near-new 1 0".to_owned()], false));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_no_window_reaches_leave_when_tiers_are_merged() {
    let harness = harness().await;
    let t = FIRST + 10 * DAY;
    harness.batch("links", RunTime::At(t)).await.unwrap();
    for (user, run_at) in [("newer", t), ("newest", t + 5 * DAY)] {
        link(&harness, user, t, t).await;
        commit(&harness).await;
        harness.batch("links", RunTime::At(run_at)).await.unwrap();
    }
    let manifest = manifest(&harness).await;
    assert_eq!((manifest.deltas.len(), manifest.rows, manifest.expired), (1, 6, 2), "of the late link nothing is left");
    assert_eq!(expired_and_kept(&harness, t + 5 * DAY).await, (4, 6), "the ledger knows those of the base too");
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    let now = ["near-new 1 0", "near-newer 1 0", "near-newest 1 0"].map(str::to_owned).to_vec();
    assert_eq!(asked(&node, Some(t + 5 * DAY)).await, (now, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_leaves_at_its_hop_with_no_event() {
    let harness = harness().await;
    // Seven days and an hour after the late link's events, which are on a full hour.
    let leaves_at = FIRST + 4 * DAY + 7 * DAY + HOUR;
    let time = Arc::new(AtomicI64::new(leaves_at - 1));
    let clock = time.clone();
    let node = harness.node_by(ServingClock::Wall, None, Arc::new(move || clock.load(Ordering::Relaxed))).await.unwrap();
    for run in [false, true] {
        if run {
            harness.batch("links", RunTime::At(FIRST + 10 * DAY)).await.unwrap();
            node.refresh().await.unwrap();
        } else {
            assert_eq!(asked(&node, None).await, (vec!["near-late 1 0".to_owned(), "near-new 1 1".to_owned()], false));
            time.store(leaves_at, Ordering::Relaxed);
        }
        assert_eq!(asked(&node, None).await, (vec!["near-new 1 1".to_owned()], false));
    }
}
