use std::path::Path;

use engine::functions::Functions;
use types::ErrorKind;

use super::*;
use crate::harness::{Harness, event};
use crate::query_runtime::RuntimeSettings;
use crate::{HotKeySettings, ServingLimits};

/// With a state each.
const DEVICES: usize = 5_000;

fn runtime(harness: &Harness, memory_limit_bytes: usize, cache: &Path) -> QueryRuntime {
    let (limits, hot_keys) = (&ServingLimits::default(), &HotKeySettings::default());
    let settings = RuntimeSettings { memory_limit_bytes, limits, hot_keys, cache };
    QueryRuntime::new(&Functions::standard(), &harness.catalog, &harness.storage, settings).unwrap()
}

#[tokio::test]
async fn states_of_the_archive_are_held_under_the_memory_limit_of_queries() {
    let harness = Harness::new().await;
    let events: Vec<String> =
        (0..DEVICES).map(|at| event(&at.to_string(), "2026-03-02T11:30:00Z", &format!("d{at}"), "1.00", "ok")).collect();
    harness.checkpoint(0, &events).await;
    harness.node.refresh().await.unwrap();
    let read_view = harness.node.read_view().unwrap();
    let context = QueryContext::new(read_view, None, &["pairs"]).unwrap();
    let live = &context.read_view.view("pairs").unwrap().live;
    let folder = tempfile::tempdir().unwrap();
    let within = async |memory_limit_bytes: usize| {
        let runtime = runtime(&harness, memory_limit_bytes, folder.path());
        archive_layer(&runtime, live, &context, None).await
    };
    let layer = within(64 << 20).await.unwrap();
    assert_eq!(layer.run.rows(), DEVICES);
    let held = layer.run.memory_bytes();
    assert_eq!(within(held / 2).await.expect_err("half of what they take").kind(), ErrorKind::Limit);
}

#[tokio::test]
async fn several_answers_of_the_archive_share_the_memory_limit() {
    let harness = Harness::filled().await;
    let read_view = harness.node.read_view().unwrap();
    let context = QueryContext::new(read_view, None, &["velocity"]).unwrap();
    let live = &context.read_view.view("velocity").unwrap().live;
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime(&harness, 64 << 20, folder.path());
    let reserved = || runtime.session().unwrap().runtime_env().memory_pool.reserved();
    let layer = archive_layer(&runtime, live, &context, None).await.unwrap();
    assert_eq!(reserved(), layer.run.memory_bytes());
    drop(layer);
    assert_eq!(reserved(), 0);
}
