use std::sync::Arc;

use ::types::{Error, ErrorKind};
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use datafusion::common::ScalarValue;
use engine::events::parse_timestamp;
use futures::FutureExt;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{AskedPaths, KeyRows, Keys, ViewKeys, ViewRows, checked};
use crate::answerer::WantedPaths;
use crate::harness::{Harness, NOW, PAYMENTS, VELOCITY, definition, event};
use crate::json::rows;
use crate::query_context::QueryContext;

const ALIKE: &str = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
    JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";

const PEOPLE: &str = "CREATE VIEW people AS SELECT device, count(*) AS n, count(DISTINCT id) AS ids, median(amount) AS middle \
    FROM payments GROUP BY device";

fn text(pairs: &[(&str, &str)]) -> Keys {
    Keys::Text(vec![pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()])
}

fn json_keys(keys: &[Value]) -> Keys {
    Keys::Json(keys.iter().map(|key| key.as_object().cloned().unwrap()).collect())
}

async fn row(harness: &Harness, view: &str, keys: Keys, as_of: Option<&str>) -> (Value, bool) {
    let response = harness.node.lookup(view, keys, as_of.map(|text| parse_timestamp(text).unwrap())).await.unwrap();
    (serde_json::from_str(rows(&response.rows).unwrap()[0].get()).unwrap(), response.found[0])
}

#[tokio::test]
async fn a_lookup_adds_what_came_after_the_cut_to_the_snapshot() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", text(&[("device", "a")]), None).await;
    assert!(exists);
    assert_eq!(
        found,
        json!({"device": "a", "n_1h": 2, "n_7d": 3, "amount_1h": "110.00", "amount_7d": "115.50", "last_seen": "2026-03-02T11:45:00Z"})
    );
    harness.fresh(1, &[event("7", "2026-03-02T11:59:00Z", "a", "0.50", "ok")]).await;
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), None).await;
    assert_eq!(found["amount_1h"], "110.50", "a layer that is not checkpointed counts at once");
}

#[tokio::test]
async fn an_answer_stays_where_it_was_until_what_was_withdrawn_is_read_again() {
    let harness = Harness::filled().await;
    let ask = async || harness.node.lookup("velocity", text(&[("device", "a")]), None).await.unwrap();
    let newest = [event("7", "2026-03-02T11:59:00Z", "a", "0.50", "ok")];
    harness.fresh(1, &newest).await;
    let before = ask().await;
    assert!(!before.meta.degraded);

    harness.withdraw(1);
    harness.checkpoint(0, &[event("8", "2026-03-02T11:58:00Z", "a", "3.00", "ok")]).await;
    for _ in 0..2 {
        let kept = ask().await;
        assert_eq!((&kept.rows, &kept.meta.cut), (&before.rows, &before.meta.cut));
        assert!(kept.meta.degraded && kept.meta.degraded_reason.unwrap().contains("withdrawn"));
        // A newer state of the catalog does not take an answer back either.
        harness.node.refresh().await.unwrap();
    }
    harness.fresh(1, &newest).await;
    let (again, _) = row(&harness, "velocity", text(&[("device", "a")]), None).await;
    assert_eq!((&again["n_1h"], ask().await.meta.degraded), (&json!(4), false));
}

#[tokio::test]
async fn an_unknown_key_has_counts_of_zero_and_else_nulls() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", text(&[("device", "nobody")]), None).await;
    assert!(!exists);
    assert_eq!(found, json!({"device": "nobody", "n_1h": 0, "n_7d": 0, "amount_1h": null, "amount_7d": null, "last_seen": null}));
}

#[tokio::test]
async fn null_is_a_key_like_any_other() {
    let harness = Harness::filled().await;
    let (found, exists) = row(&harness, "velocity", json_keys(&[json!({"device": null})]), None).await;
    assert!(exists);
    assert_eq!((&found["n_7d"], &found["amount_7d"]), (&json!(1), &json!("7.00")));
}

/// While the version before answers in its place: what is asked is right in a second.
#[tokio::test]
async fn keys_that_only_the_served_version_of_a_view_has_are_to_be_asked_again() {
    let harness = Harness::filled().await;
    let Add::Definition(before) = definition(DefinitionKind::View, "velocity", VELOCITY) else { panic!("a definition is added") };
    let sql = "CREATE VIEW velocity AS SELECT status, device, count(*) AS n FROM payments GROUP BY status, device".to_owned();
    let served = DefinitionRecord { version: 2, sql, ..before.clone() };
    let add = vec![Add::Definition(DefinitionRecord { status: DefinitionStatus::Kept, ..before }), Add::Definition(served)];
    harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    harness.node.refresh().await.unwrap();
    let read_view = harness.node.read_view().unwrap().with_version("velocity", 1).unwrap();
    let ask = |keys: Keys| {
        let asked = checked(&read_view, read_view.known_view("velocity").unwrap(), keys, &AskedPaths::default());
        asked.map(|asked| asked.keys.len()).map_err(|error| (error.kind(), error.message().to_owned()))
    };
    assert_eq!(ask(text(&[("device", "a")])), Ok(1), "the version before answers");
    for keys in [text(&[("status", "ok"), ("device", "a")]), json_keys(&[json!({ "status": "ok", "device": null })])] {
        let (kind, message) = ask(keys).unwrap_err();
        assert_eq!(kind, ErrorKind::Unavailable, "{message}");
        assert!(message.contains("\"status\" is not a key column of the view"), "{message}");
    }
    let (kind, message) = ask(text(&[("status", "ok"), ("devise", "a")])).unwrap_err();
    assert_eq!(kind, ErrorKind::Input, "{message}");
    assert!(message.contains("\"devise\" is not a key column of the view: expected status TEXT, device TEXT"), "{message}");
}

#[tokio::test]
async fn a_view_without_keys_has_one_row() {
    let harness = Harness::filled().await;
    harness.snapshot("totals").await;
    let (found, exists) = row(&harness, "totals", text(&[]), None).await;
    assert!(exists);
    assert_eq!(found, json!({"n": 6, "amount": "125.75"}));
}

#[tokio::test]
async fn a_past_time_is_answered_from_the_archive_and_the_answer_says_so() {
    let harness = Harness::filled().await;
    let at = Some(parse_timestamp("2026-03-01T10:10:00Z").unwrap());
    let response = harness.node.lookup("velocity", text(&[("device", "a")]), at).await.unwrap();
    assert!(response.meta.from_archive);
    assert_eq!(response.meta.cut, harness.node.loaded().unwrap().vector);
    assert_eq!(
        rows(&response.rows).unwrap()[0].get(),
        r#"{"device":"a","n_1h":1,"n_7d":1,"amount_1h":"5.50","amount_7d":"5.50","last_seen":"2026-03-01T10:00:00Z"}"#
    );

    let many = json_keys(&[json!({"device": "a"}), json!({"device": "b"}), json!({"device": null})]);
    let response = harness.node.lookup("velocity", many, at).await.unwrap();
    assert_eq!(response.found, [true, false, true]);
}

/// What counted may be deleted.
#[tokio::test]
async fn an_answer_that_reaches_past_a_retention_names_the_stream() {
    let stream = PAYMENTS.replace("key = 'device'", "key = 'device', retention = '8d'");
    let view = "CREATE VIEW recent WITH (windows = '7d') AS SELECT device, count(*) AS n FROM payments GROUP BY device";
    let harness = Harness::with_definitions(&stream, &[("recent", view)], |settings| settings).await;
    harness.checkpoint(0, &[event("1", "2026-03-02T11:30:00Z", "a", "10.00", "ok")]).await;
    harness.node.refresh().await.unwrap();
    for (as_of, names) in [("2026-03-02T06:00:00Z", &[][..]), ("2026-02-20T00:00:00Z", &["payments"][..])] {
        let at = Some(parse_timestamp(as_of).unwrap());
        let meta = harness.node.lookup("recent", text(&[("device", "a")]), at).await.unwrap().meta;
        assert!(meta.from_archive);
        assert_eq!(meta.past_retention.iter().map(|stream| &**stream).collect::<Vec<_>>(), names, "{as_of}");
    }
}

#[tokio::test]
async fn a_past_time_does_not_count_what_is_not_committed() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("8", "2026-03-01T10:05:00Z", "a", "1000.00", "ok")]).await;
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), Some("2026-03-01T10:10:00Z")).await;
    assert_eq!(found["amount_1h"], "5.50");
    let (found, _) = row(&harness, "velocity", text(&[("device", "a")]), Some("2026-03-02T12:00:00Z")).await;
    assert_eq!(found["amount_7d"], "1115.50", "states answer a time past all events, fresh ones too");
}

#[tokio::test]
async fn meta_names_the_position_the_time_and_what_is_approximate() {
    let harness = Harness::filled().await;
    let meta = harness.node.lookup("velocity", text(&[("device", "a")]), None).await.unwrap().meta;
    assert_eq!(meta.cut, "payments/0:5,payments/1:1".parse().unwrap());
    assert_eq!((meta.as_of, meta.complete_to, meta.snapshot_at), (NOW, Some(NOW), Some(NOW)));
    assert_eq!(meta.versions, [("velocity".into(), 1)].into());
    assert!(!meta.degraded && !meta.from_archive && meta.approximate.is_empty());
    let key = text(&[("device", "a"), ("status", "ok")]);
    assert_eq!(harness.node.lookup("pairs", key, None).await.unwrap().meta.approximate, ["ids"]);
}

#[tokio::test]
async fn keys_that_are_not_the_views_are_refused_by_name() {
    let harness = Harness::filled().await;
    let refused = async |view: &str, keys: Keys| harness.node.lookup(view, keys, None).await.unwrap_err();
    let cases = [
        ("velocity", text(&[]), "the key column \"device\" is missing: expected device TEXT"),
        ("velocity", text(&[("devise", "a")]), "\"devise\" is not a key column of the view: expected device TEXT"),
        ("velocity", text(&[("device", "a"), ("device", "b")]), "the key column \"device\" is given twice: expected device TEXT"),
        ("velocity", json_keys(&[json!({"device": 7})]), "the key column \"device\": found 7, expected TEXT"),
        ("velocity", json_keys(&[json!({"device": ["a"]})]), "the key column \"device\": found [\"a\"], expected TEXT"),
        ("totals", text(&[("device", "a")]), "\"device\" is not a key column of the view: expected no key: the view has one row"),
        (
            "velocity",
            Keys::Typed(vec![vec![ScalarValue::Int64(Some(1))]]),
            "the key column \"device\": found 1 of type BIGINT, expected TEXT",
        ),
        ("velocity", Keys::Typed(vec![vec![]]), "the key has 0 values: expected device TEXT"),
    ];
    for (view, keys, message) in cases {
        let error = refused(view, keys).await;
        assert_eq!((error.kind(), error.message()), (ErrorKind::Input, message));
    }
    let error = refused("velocitie", text(&[])).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("expected one of pairs, totals, velocity"), "{error}");
    harness.define(DefinitionKind::Sink, "scored", "CREATE SINK scored WITH (topic = 'scored') AS SELECT id FROM payments").await;
    let error = refused("scored", text(&[])).await;
    assert_eq!(error.message(), "\"scored\" is a sink, and this is about views: expected one of pairs, totals, velocity");
    assert_eq!(error.fact("help"), Some("`basestream sink read scored` prints its records"));
    let too_many = Keys::Json(vec![Default::default(); super::MAX_KEYS + 1]);
    assert_eq!(refused("totals", too_many).await.kind(), ErrorKind::Limit);
}

/// Otherwise one walk would stop every request of its thread.
#[tokio::test]
async fn walks_leave_the_asynchronous_threads_and_short_lookups_stay() {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    let key = || text(&[("device", "a")]);
    let occupied = harness.node.runtime().lookups().occupied();
    let name = |device: &str| vec![("device".to_owned(), device.to_owned())];
    let mut walk = Box::pin(harness.node.lookup("alike", Keys::Text(vec![name("a"), name("nowhere")]), None));
    assert!(walk.as_mut().now_or_never().is_none(), "it was walked on the thread that asked");
    assert!(harness.node.lookup("velocity", key(), None).now_or_never().is_some(), "a plain lookup waits for walks");
    assert!(harness.node.lookup("alike", key(), None).now_or_never().is_some(), "a short walk waits for others");
    drop(occupied);
    assert_eq!(walk.await.unwrap().found, [true, false]);
}

/// A key whose merging takes more than a millisecond.
async fn with_hot_key() -> Harness {
    let harness = Harness::filled().await;
    let events: Vec<String> = (0..12_000).map(|at| event(&format!("hot {at}"), "2026-03-02T11:00:00Z", "hot", "1.00", "ok")).collect();
    harness.checkpoint(0, &events).await;
    harness.define_view("people", PEOPLE).await;
    harness
}

async fn people(harness: &Harness, device: &str) -> Value {
    row(harness, "people", text(&[("device", device)]), None).await.0
}

/// Otherwise each query of it would stop every request of its thread.
#[tokio::test]
async fn a_hot_key_leaves_the_threads_that_ask_until_it_is_merged() {
    let harness = with_hot_key().await;
    let occupied = harness.node.runtime().lookups().occupied();
    let mut hot = Box::pin(people(&harness, "hot"));
    assert!(hot.as_mut().now_or_never().is_none(), "it was merged on the thread that asked");
    assert!(people(&harness, "a").now_or_never().is_some(), "another key waits for it");
    drop(occupied);
    let merged = hot.await;
    assert_eq!(merged, json!({"device": "hot", "n": 12_000, "ids": 12_000, "middle": "1.00"}));
    let _occupied = harness.node.runtime().lookups().occupied();
    assert_eq!(people(&harness, "hot").now_or_never(), Some(merged), "it is merged again");
}

#[tokio::test]
async fn what_arrives_is_counted_on_top_of_what_is_kept_and_what_it_does_not_touch_stays() {
    let harness = with_hot_key().await;
    people(&harness, "hot").await;
    harness.fresh(0, &[event("new", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
    let occupied = harness.node.runtime().lookups().occupied();
    assert_eq!(people(&harness, "hot").now_or_never().map(|row| row["ids"].clone()), Some(json!(12_000)), "a layer without the key");
    drop(occupied);
    let some = [event("hot 7", "2026-03-02T11:59:00Z", "hot", "3.00", "ok"), event("newer", "2026-03-02T11:59:00Z", "hot", "3.00", "ok")];
    harness.fresh(0, &some).await;
    assert_eq!(people(&harness, "hot").await, json!({"device": "hot", "n": 12_002, "ids": 12_001, "middle": "1.00"}));
    harness.checkpoint(1, &[event("committed", "2026-03-02T11:59:00Z", "hot", "1.00", "ok")]).await;
    harness.node.refresh().await.unwrap();
    assert_eq!(people(&harness, "hot").await["ids"], 12_002);
}

#[tokio::test]
async fn a_hot_key_is_merged_once_for_all_who_wait() {
    let harness = with_hot_key().await;
    let before = harness.node.runtime().lookups().jobs();
    let occupied = harness.node.runtime().lookups().occupied();
    let mut asked: Vec<_> = (0..8).map(|_| Box::pin(people(&harness, "hot"))).collect();
    for asked in &mut asked {
        assert!(asked.as_mut().now_or_never().is_none());
    }
    drop(occupied);
    let answers = futures::future::join_all(asked).await;
    assert!(answers.iter().all(|answer| answer["ids"] == 12_000));
    assert_eq!(harness.node.runtime().lookups().jobs() - before, 1);
}

#[tokio::test]
async fn hot_keys_among_others_are_in_their_places() {
    let harness = with_hot_key().await;
    harness
        .checkpoint(1, &(0..9_000).map(|at| event(&format!("warm {at}"), "2026-03-02T11:00:00Z", "warm", "2.00", "ok")).collect::<Vec<_>>())
        .await;
    harness.node.refresh().await.unwrap();
    let names = ["a", "hot", "nobody", "warm", "c<&", "hot"];
    let keys = json_keys(&names.map(|name| json!({ "device": name })));
    for _ in 0..2 {
        let response = harness.node.lookup("people", keys.clone(), None).await.unwrap();
        let found: Vec<Value> = rows(&response.rows).unwrap().iter().map(|row| serde_json::from_str(row.get()).unwrap()).collect();
        assert_eq!(found.iter().map(|row| row["device"].as_str().unwrap()).collect::<Vec<_>>(), names);
        assert_eq!(found.iter().map(|row| row["ids"].as_i64().unwrap()).collect::<Vec<_>>(), [3, 12_000, 0, 9_000, 1, 12_000]);
        assert_eq!(response.found, [true, true, false, true, true, true]);
    }
}

#[tokio::test]
async fn a_cancelled_lookup_looks_no_key_up() {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    for view in ["velocity", "alike"] {
        let context = QueryContext::new(harness.node.read_view().unwrap(), None, &[view]).unwrap();
        let (keys, paths) = (vec![vec![ScalarValue::from("a")]], WantedPaths::default());
        let lookup = KeyRows { context, view: view.into(), keys, columns: vec![0, 1], paths };
        let columns = lookup.key_columns(lookup.view().unwrap()).unwrap();
        assert_eq!(lookup.rows(&columns, None, None, &|| Ok(())).ok().map(|answers| answers.found), Some(vec![true]));
        let ended = lookup.rows(&columns, None, None, &|| Err(Error::unavailable("nobody waits"))).err();
        assert_eq!(ended.map(|error| error.kind()), Some(ErrorKind::Unavailable), "{view}");
    }
}

/// Each event counts in both views. If each of them were answered from a read view of its own, those that come in
/// between would count in the second one alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_views_count_the_same_events_while_more_come() {
    const EVENTS: i64 = 100;
    let harness = Arc::new(Harness::filled().await);
    let writing = tokio::spawn({
        let harness = harness.clone();
        async move {
            for id in 0..EVENTS {
                harness.fresh(1, &[event(&format!("more {id}"), "2026-03-02T11:59:00Z", "a", "1.00", "ok")]).await;
            }
        }
    });
    let counted = |of_view: &ViewRows, column: &str| {
        let row: Value = serde_json::from_str(rows(&of_view.rows).unwrap()[0].get()).unwrap();
        row[column].as_i64().unwrap()
    };
    loop {
        let is_last = writing.is_finished();
        let velocity = ViewKeys { view: "velocity".into(), keys: text(&[("device", "a")]) };
        let totals = ViewKeys { view: "totals".into(), keys: json_keys(&[json!({})]) };
        let views = harness.node.lookup_views(vec![velocity, totals], None, None).await.unwrap().views;
        let [of_device, of_all] = [counted(&views[0], "n_1h"), counted(&views[1], "n")];
        assert_eq!(of_all - of_device, 4, "{of_all} events, {of_device} of the device");
        if is_last {
            assert_eq!(of_device, 2 + EVENTS);
            break;
        }
    }
    writing.await.unwrap();
}
