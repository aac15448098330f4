use std::collections::BTreeSet;

use crate::harness::Harness;

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
