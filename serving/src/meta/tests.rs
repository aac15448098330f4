use super::*;
use crate::follower::Follower;
use crate::harness::{Harness, NOW, event};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_consistency_lists_each_member() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/consistency.md")).unwrap();
    let table = page.split("carries `meta`:").nth(1).unwrap().trim_start().split("\n\n").next().unwrap();
    let listed: BTreeSet<&str> = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let harness = Harness::new().await;
    let response = harness.node.query("SELECT 1 AS n", Vec::new()).await.unwrap();
    let meta = serde_json::to_value(&response.meta).unwrap();
    let members: BTreeSet<&str> = meta.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(listed, members);
}

/// Between the steps, what is read changes: where it ends, until when it is complete, the snapshot, and whether work
/// was withdrawn.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_one_read_view_share_a_meta_which_is_as_each_would_make_it() {
    let harness = Harness::filled().await;
    let follower = harness.follower_with_fresh();
    follower.refresh().await.unwrap();
    let kept = KeptMetas::default();
    let meta = || shared_meta(&follower, &kept, "pairs");
    let payment = |id: &str| event(id, "2026-03-02T11:59:00Z", "a", "0.50", "ok");
    let committed = meta();
    assert_eq!((committed.cut, committed.complete_to), ("payments/0:5,payments/1:1".parse().unwrap(), Some(NOW)));
    shared_meta(&follower, &kept, "velocity");
    for (id, cut) in [("7", "payments/0:5,payments/1:2"), ("8", "payments/0:5,payments/1:3")] {
        harness.fresh(1, &[payment(id)]).await;
        assert_eq!(meta().cut, cut.parse().unwrap());
    }
    harness.complete(0, NOW + 5);
    assert_eq!(meta().complete_to, Some(NOW + 1));

    harness.snapshot("pairs").await;
    assert_eq!(meta().snapshot_at, None, "the state is not loaded yet");
    follower.refresh().await.unwrap();
    assert_eq!(meta().snapshot_at, Some(NOW));

    harness.withdraw(1);
    assert!(meta().degraded_reason.unwrap().contains("withdrawn"));
    harness.fresh(1, &[payment("7"), payment("8")]).await;
    assert_eq!(meta().degraded_reason, None);

    harness.snapshot_of_release("pairs", " of another release").await;
    follower.refresh().await.unwrap();
    assert!(meta().degraded_reason.unwrap().contains("of another format"));
}

/// Asserts that lookups of a view at two times share a meta, and that each has what one made anew says.
fn shared_meta(follower: &Follower, kept: &KeptMetas, view: &str) -> Meta {
    let at = |later: Micros| {
        let (mut read_view, id) = follower.identified_read_view().unwrap();
        read_view.now += later;
        let context = QueryContext::new(read_view, None, &[view]).unwrap().identified(id);
        let loaded = context.read_view.view(view).unwrap();
        let columns: Vec<usize> = (0..loaded.live.plan.columns.len()).collect();
        let anew = Meta::new(&context, &[AskedView { view: loaded, columns: Some(&columns) }], &[]);
        let meta = LookupMeta::new(&context, loaded, &columns, kept).unwrap();
        let LookupMeta::Shared(shared, _) = &meta else { panic!("it is not shared") };
        let shared = shared.clone();
        let mut json = Vec::new();
        meta.write(&mut json).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), serde_json::to_string(&anew).unwrap());
        assert_eq!(meta.into_meta(), anew);
        (shared, anew)
    };
    let ((first, meta), (second, _)) = (at(0), at(1_500_000));
    assert!(Arc::ptr_eq(&first, &second), "it is made twice");
    meta
}
