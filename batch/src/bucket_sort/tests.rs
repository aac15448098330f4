use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use engine::states::merge_sorted;

use super::*;
use crate::bucket_partitioner::tests::{BUCKETS, VIEW, partitioned};

const NO_KEYS: &str = "CREATE VIEW sums WITH (windows = '7d, 90d') AS SELECT count(*) AS payments, sum(cents) AS cents FROM payments";

const NUMBERS: &str = "CREATE VIEW sums WITH (windows = '7d, 90d') AS SELECT account, count(*) AS payments, sum(cents) AS cents FROM payments GROUP BY account";

/// Returns the merged rows of all buckets in the order they are emitted, and the number of chunks.
fn shown(plan: &ViewPlan, chunks: &[StateRows]) -> (Vec<String>, usize) {
    let mut lines = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    for chunk in chunks {
        assert!(last.as_deref() != Some(chunk.keys().value(0)), "a key goes on in the next chunk");
        last = Some(chunk.keys().value(chunk.len() - 1).to_vec());
        let merged = merge_sorted(plan, chunk).unwrap();
        let text = pretty_format_batches(&[merged.batch().clone()]).unwrap().to_string();
        lines.extend(text.lines().filter(|line| !line.starts_with('+')).skip(1).map(|line| line.replace(' ', "")));
    }
    (lines, chunks.len())
}

fn enough() -> SortMemory {
    SortMemory::per_thread(2 << 30, 2)
}

async fn both_ways(order: RowOrder, view: &str, count: i64) -> ((Vec<String>, usize), (Vec<String>, usize)) {
    let (shuffle, buckets) = partitioned(view, count, Arc::new(UnboundedMemoryPool::default())).await;
    let mut inside = Vec::new();
    let mut take = |rows| {
        inside.push(rows);
        Ok(())
    };
    for bucket in buckets {
        sort_in_memory(order, &shuffle.plan, &shuffle.codec, bucket, enough(), &mut take).unwrap();
    }
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(16 << 20));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc().unwrap();
    let config = SessionConfig::new().with_sort_spill_reservation_bytes(1 << 20);
    let session = SessionContext::new_with_config_rt(config, runtime);
    let (shuffle, buckets) = partitioned(view, count, Arc::new(FairSpillPool::new(1 << 20))).await;
    let mut outside = Vec::new();
    for bucket in buckets {
        let mut sorted = ExternalSort::start(order, &shuffle.plan, shuffle.codec.clone(), bucket, (enough(), session.task_ctx())).unwrap();
        while let Some(rows) = sorted.next().await.unwrap() {
            outside.push(rows);
        }
    }
    assert_eq!(pool.reserved(), 0);
    (shown(&shuffle.plan, &inside), shown(&shuffle.plan, &outside))
}

#[tokio::test]
async fn a_sort_in_memory_and_one_outside_hand_on_the_same_whole_keys() {
    for order in [RowOrder::ByTile, RowOrder::ByLevel] {
        let (inside, outside) = both_ways(order, VIEW, 3_000).await;
        assert_eq!(inside, outside);
        assert!(inside.0.len() > 2_000);
    }
}

/// Each chunk is put in order once more where it is handed on: only of several does their order show.
#[tokio::test]
async fn chunks_come_in_the_order_of_their_keys() {
    let (inside, outside) = both_ways(RowOrder::ByTile, NUMBERS, CHUNK_ROWS as i64 * 5).await;
    assert!(inside.1 > BUCKETS && outside.1 > BUCKETS, "{} and {} chunks", inside.1, outside.1);
    assert!(inside.0 == outside.0, "the rows, or their order, differ");
}

#[tokio::test]
async fn a_key_that_fills_more_than_a_chunk_is_handed_on_whole() {
    let count = CHUNK_ROWS as i64 * 2 + 10;
    let (inside, outside) = both_ways(RowOrder::ByTile, NO_KEYS, count).await;
    assert_eq!((inside.1, outside.1), (1, 1));
    assert_eq!(inside.0, outside.0);
    assert_eq!(inside.0.len() as i64, count);
}
