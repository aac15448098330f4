use std::sync::Arc;

use access::{Grant, GrantScope, Principal};
use catalog::Role;
use serde_json::json;

use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_hidden_in_the_position_is_hidden_in_all_of_the_meta() {
    let harness = Harness::filled().await;
    harness.other_stream("others", 1).await;
    harness.node.refresh().await.unwrap();
    let only = GrantScope { views: ["velocity".to_owned()].into(), streams: Default::default() };
    let ann = Principal::new("ann", vec![Grant { role: Role::Reader, only: Some(only) }]);
    let sql = "SELECT n_7d FROM velocity WHERE device = 'a'";
    let all = harness.node.query(sql, Vec::new()).await.unwrap();
    assert_eq!(all.meta_so_far().cut, "others/0:1,payments/0:5,payments/1:1".parse().unwrap());

    let shown = harness.node.acting_for(Arc::new(ann)).query(sql, Vec::new()).await.unwrap();
    assert_eq!(shown.meta.cut, "payments/0:5,payments/1:1".parse().unwrap());
    assert_eq!(shown.meta_so_far().cut, shown.meta.cut);
    assert_eq!(serde_json::to_value(&shown.meta).unwrap()["cut"], json!(shown.meta.cut.token()));
}
