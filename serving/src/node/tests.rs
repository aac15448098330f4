use access::{Grant, GrantScope};
use catalog::Role;

use super::*;
use crate::harness::{Harness, event};

/// What an answer counted stays counted when it is withdrawn. Here nothing was answered.
#[tokio::test(flavor = "multi_thread")]
async fn hiding_streams_counts_as_no_query() {
    let harness = Harness::filled().await;
    let only = GrantScope { views: ["velocity".to_owned()].into(), streams: Default::default() };
    let ann = Principal::new("ann", vec![Grant { role: Role::Reader, only: Some(only) }]);
    let ann = harness.node.acting_for(Arc::new(ann));
    let committed = harness.node.read_view().unwrap().vector;

    harness.fresh(1, &[event("7", "2026-03-02T11:59:00Z", "a", "0.50", "ok")]).await;
    let mut position = committed.clone();
    position.set(PartitionId::new("other", 0), Offset(3));
    ann.hide_other_streams(&mut position).unwrap();
    assert_eq!(position, committed);
    harness.withdraw(1);
    let read_view = harness.node.read_view().unwrap();
    assert!(!read_view.is_kept, "nothing was read of what is withdrawn");
    assert_eq!(read_view.vector, committed);
}
