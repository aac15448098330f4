use futures::StreamExt;
use serde_json::{Value, json};

use crate::harness::{Harness, NOW};
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
    keys.iter().map(|hot| (serde_json::from_str(hot.key.get()).unwrap(), hot.window.to_owned(), (hot.share * 100.0) as u32)).collect()
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
    let sql = "SELECT view, key, counted, \"window\", share, seen_at FROM system.hot_keys WHERE \"window\" = '10s'";
    let query = harness.node.query(sql, Vec::new()).await.unwrap();
    let batches: Vec<_> = query.batches.map(Result::unwrap).collect().await;
    let rows: Vec<Value> =
        batches.iter().flat_map(|batch| crate::json::rows(batch).unwrap()).map(|row| serde_json::from_str(row.get()).unwrap()).collect();
    let seen_at = engine::events::format_timestamp(NOW);
    assert_eq!(
        rows,
        [json!({"view": "velocity", "key": "{\"device\":\"a\"}", "counted": "lookups", "window": "10s", "share": 1.0, "seen_at": seen_at})]
    );
}
