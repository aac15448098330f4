use arrow::array::{AsArray, BinaryArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema};
use uuid::Uuid;

use super::*;
use crate::WantedViews;
use crate::harness::{Harness, event};

fn empty_run() -> LayerRun {
    let batch = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let rows = StateRows::from_sorted(batch, BinaryArray::from_iter_values(Vec::<&[u8]>::new()));
    LayerRun { checkpoints: CheckpointIds::from([Uuid::now_v7()]), run: Arc::new(SortedRun::in_memory(rows)), failures: Arc::default() }
}

#[test]
fn all_groups_of_runs_that_are_alike_are_taken_at_once() {
    let state = CatalogState::default();
    for (count, groups, left) in [(0, 0, 0), (3, 0, 3), (4, 1, 0), (9, 2, 1), (16, 4, 0)] {
        let mut layers: Vec<LayerRun> = (0..count).map(|_| empty_run()).collect();
        let all: CheckpointIds = layers.iter().flat_map(|layer| layer.checkpoints.clone()).collect();
        let taken = take_aged(&mut layers, &state);
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), vec![4; groups], "of {count}");
        assert_eq!(layers.len(), left, "of {count}");
        let found: CheckpointIds = taken.iter().flatten().chain(&layers).flat_map(|layer| layer.checkpoints.clone()).collect();
        assert_eq!(found, all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_merges_the_runs_of_many_checkpoints_and_counts_each_event_once() {
    let harness = Harness::new().await;
    for id in 0..9 {
        harness.checkpoint(0, &[event(&id.to_string(), "2026-03-02T11:30:00Z", "a", "1.00", "ok")]).await;
    }
    let node = harness.node_of(WantedViews::All).await;
    let loaded = node.loaded().unwrap();
    for view in loaded.views.values() {
        let mut checkpoints: Vec<usize> = view.layers.iter().map(|layer| layer.checkpoints.len()).collect();
        checkpoints.sort_unstable();
        assert_eq!(checkpoints, [1, 4, 4], "{}", view.live.name);
    }
    let rows = node.query("SELECT n FROM totals", Vec::new()).await.unwrap().collect().await.unwrap();
    let counts: Vec<i64> = rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    assert_eq!(counts, [9]);
}
