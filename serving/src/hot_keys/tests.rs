use engine::fresh::{Fresh, LayerSubscription, Mirror};
use futures::StreamExt;
use serde_json::{Value, json};

use super::SeenIn;
use crate::harness::{Harness, NOW, event};
use crate::lookup::Keys;
use crate::node::Node;

async fn ask(node: &Node, device: &str, times: usize) {
    for _ in 0..times {
        node.lookup("velocity", Keys::Text(vec![vec![("device".into(), device.into())]]), None).await.unwrap();
    }
}

/// Key and window of each hot key, and its share in percent.
async fn listed(node: &Node) -> Vec<(Value, String, u32)> {
    let keys = node.hot_keys().unwrap();
    keys.iter()
        .filter(|hot| hot.seen_in == SeenIn::Lookups)
        .map(|hot| (serde_json::from_str(hot.key.get()).unwrap(), hot.window.to_owned(), (hot.share * 100.0) as u32))
        .collect()
}

#[tokio::test]
async fn a_key_that_lookups_ask_for_often_is_hot_in_both_windows() {
    let harness = Harness::filled().await;
    ask(&harness.node, "a", 9).await;
    assert_eq!(listed(&harness.node).await, [], "nine lookups are too few, for a second too");
    ask(&harness.node, "a", 141).await;
    ask(&harness.node, "b", 49).await;
    ask(&harness.node, "c", 1).await;
    let a = json!({"device": "a"});
    let expected = [(a.clone(), "1s".to_owned(), 75), (json!({"device": "b"}), "1s".to_owned(), 24), (a, "10s".to_owned(), 75)];
    assert_eq!(listed(&harness.node).await, expected);
}

#[tokio::test]
async fn sql_counts_and_lists_hot_keys_too() {
    let harness = Harness::filled().await;
    for _ in 0..100 {
        let query = harness.node.query("SELECT n_1h FROM velocity WHERE device = 'a'", Vec::new()).await.unwrap();
        assert_eq!(query.batches.map(|batch| batch.unwrap().num_rows()).fold(0, async |all, rows| all + rows).await, 1);
    }
    let sql = "SELECT view, key, seen_in, \"window\", share, seen_at FROM system.hot_keys WHERE \"window\" = '10s'";
    let query = harness.node.query(sql, Vec::new()).await.unwrap();
    let batches: Vec<_> = query.batches.map(Result::unwrap).collect().await;
    let rows: Vec<Value> =
        batches.iter().flat_map(|batch| crate::json::rows(batch).unwrap()).map(|row| serde_json::from_str(row.get()).unwrap()).collect();
    let seen_at = engine::events::format_timestamp(NOW);
    assert_eq!(
        rows,
        [json!({"view": "velocity", "key": "{\"device\":\"a\"}", "seen_in": "lookups", "window": "10s", "share": 1.0, "seen_at": seen_at})]
    );
}

/// View, key and window of each key that is hot in events, its share in percent and its events a second.
fn in_events(node: &Node) -> Vec<(String, Value, &'static str, u32, u32)> {
    let keys = node.hot_keys().unwrap();
    let of_events = keys.iter().filter(|hot| hot.seen_in == SeenIn::Events);
    let shown = |hot: &super::HotKey| {
        let key = serde_json::from_str(hot.key.get()).unwrap();
        (hot.view.to_string(), key, hot.window, (hot.share * 100.0) as u32, hot.per_second as u32)
    };
    of_events.map(shown).collect()
}

/// This many events of each of these devices.
fn events(of: &[(&str, usize)]) -> Vec<String> {
    let all = of.iter().flat_map(|(device, count)| (0..*count).map(move |at| (device, at)));
    all.map(|(device, at)| event(&format!("{device} {at}"), "2026-03-02T11:59:00Z", device, "1.00", "ok")).collect()
}

#[tokio::test]
async fn a_key_that_most_events_are_of_is_hot_as_soon_as_they_are_read() {
    let harness = Harness::filled().await;
    harness
        .define_view("by_status", "CREATE VIEW by_status AS SELECT status, count(*) AS n FROM payments WHERE device = 'c' GROUP BY status")
        .await;
    harness.fresh(0, &events(&[("a", 90), ("b", 3), ("c", 7)])).await;
    harness.fresh(1, &events(&[("a", 10), ("b", 90)])).await;
    let (a, b, both) = (json!({"device": "a"}), json!({"device": "b"}), json!({"device": "a", "status": "ok"}));
    let velocity = || "velocity".to_owned();
    let found = in_events(&harness.node);
    let of_velocity: Vec<_> = found.iter().filter(|hot| hot.0 == "velocity").cloned().collect();
    let expected = [
        (velocity(), a.clone(), "1s", 50, 100),
        (velocity(), b.clone(), "1s", 46, 93),
        // Nine events a second are too few in ten seconds, ten are not.
        (velocity(), a, "10s", 50, 10),
    ];
    assert_eq!(of_velocity, expected);
    assert!(found.contains(&("pairs".to_owned(), both, "1s", 50, 100)), "each view has keys of its own: {found:?}");
    assert!(!found.iter().any(|hot| hot.0 == "totals"), "a view without keys has no hot one");
    assert!(!found.iter().any(|hot| hot.0 == "by_status"), "what a view leaves out is not counted: {found:?}");
}

#[tokio::test]
async fn a_node_apart_counts_what_the_workers_that_it_follows_publish() {
    let harness = Harness::filled().await;
    let fresh = Fresh::default();
    let apart = harness.node_apart(&fresh).await;
    let mut mirror = Mirror::new(&fresh);
    let LayerSubscription { snapshot, mut changes } = harness.register("worker", "nowhere").await.subscribe();
    mirror.reset(snapshot);
    harness.fresh(0, &events(&[("a", 60), ("b", 40)])).await;
    while let Ok(sent) = changes.try_recv() {
        mirror.apply(sent.owner, sent.change);
    }
    assert_eq!(in_events(&apart), in_events(&harness.node));
    assert_eq!(in_events(&apart).first().map(|hot| (hot.0.as_str(), hot.3)), Some(("pairs", 60)));
}

#[tokio::test]
async fn of_a_linked_view_the_keys_are_those_by_which_it_is_asked() {
    let harness = Harness::filled().await;
    let alike = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
        JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";
    harness.define_view("alike", alike).await;
    harness.fresh(0, &events(&[("a", 60), ("b", 40)])).await;
    for _ in 0..20 {
        harness.node.lookup("alike", Keys::Text(vec![vec![("device".into(), "b".into())]]), None).await.unwrap();
    }
    let found: Vec<_> = in_events(&harness.node).into_iter().filter(|hot| hot.0 == "alike").collect();
    assert_eq!(found[0], ("alike".to_owned(), json!({"device": "a"}), "1s", 60, 60));
    assert_eq!(listed(&harness.node).await, [(json!({"device": "b"}), "1s".to_owned(), 100)]);
}
