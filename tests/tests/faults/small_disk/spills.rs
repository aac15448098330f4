//! A query that spills on a disk that runs full: it is refused, and the node answers what needs no disk.

use std::path::Path;

use basestream_tests::small_disk::SmallDisk;
use basestream_tests::{Harness, until};
use catalog::DefinitionKind::{Stream, View};
use serving::ServingLimits;
use types::ErrorKind;

use super::copies::open;
use super::{STREAM, VIEW};
use crate::{rows, table};

/// Its groups take more than a query may have, and less than the disk has.
const QUERY: &str =
    "SELECT count(*) AS keys FROM (SELECT lpad(CAST(value AS TEXT), 100, 'x') AS k FROM range(1, 100001) numbers GROUP BY 1) groups";
const QUERY_BYTES: usize = 8 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn a_query_that_spills_on_a_small_disk_fails_while_it_is_full_and_the_node_answers_others() {
    let mut disk = SmallDisk::seen().expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let cache = disk.path().join("cache");
    let spilled_to = cache.join("spill");
    // All else is on another disk.
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "payments", STREAM.trim_end_matches(';')), (View, "counts", VIEW.trim_end_matches(';'))]).await.unwrap();
    harness.append("payments", 1, vec![(None, r#"{"k":"k","ts":"2026-01-01T00:00:00Z"}"#.to_owned())]).await.unwrap();
    harness.commit_at_once("one", &[("payments", "payments")]).await.unwrap();
    let limits = ServingLimits { query_memory_bytes: Some(QUERY_BYTES), ..ServingLimits::default() };
    let node = open(&harness, &cache, limits).await;
    let before = table(&node, "counts");
    assert_eq!(before, ["k 1"]);

    disk.fill(0).unwrap();
    let error = node.query(QUERY, Vec::new()).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    assert_eq!(error.fact("folder"), Some(&*spilled_to.display().to_string()), "{error}");
    assert_eq!(error.fact("setting"), Some("serving.cache_dir"), "{error}");
    assert_eq!(error.fact("disk"), Some("full"), "{error}");
    assert_eq!(table(&node, "counts"), before, "another answer while the disk is full");
    assert_eq!(rows(&node, "SELECT k, n FROM counts").await, before);
    assert!(node.outages().is_empty(), "a query that was refused is no outage of the node");

    disk.give_space().unwrap();
    assert_eq!(rows(&node, QUERY).await, ["100000"]);
    until("what queries spilled to be gone", async || files(&spilled_to) == 0).await;
}

/// How many files there are in the folders of this folder.
fn files(folder: &Path) -> usize {
    let folders = std::fs::read_dir(folder).unwrap().flatten();
    folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).map(Iterator::count).sum()
}
