use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::execution::memory_pool::{FairSpillPool, UnboundedMemoryPool};
use schemas::definitions::{Definitions, parse};
use schemas::events::{EVENT_TIME, OFFSET, PARTITION, SOURCE, plan_schema};
use schemas::functions::Functions;
use schemas::plan::links::EdgesFrom;
use schemas::plan::{LEVEL, Planned, Planner, planning_session};
use schemas::states::Partial;

use super::*;

const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, account TEXT, cents BIGINT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'account')";

pub(crate) const BUCKETS: usize = 4;

async fn planned(view: &str) -> Arc<ViewPlan> {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()] };
    let Planned::Kept(plan) = Planner::new(&project, Functions::standard()).plan(&view).await.unwrap() else { panic!("inlined") };
    plan
}

/// So many payments, an hour apart, of so many accounts.
fn payments(count: i64, accounts: i64) -> RecordBatch {
    let stream = parse::parse_stream(STREAM).unwrap();
    let schema = plan_schema(&stream);
    let times = || Arc::new(TimestampMicrosecondArray::from_iter_values((0..count).map(|at| at * 3_600_000_000)).with_timezone("UTC"));
    let column = |name: &str| -> ArrayRef {
        match name {
            "ts" | EVENT_TIME => times(),
            "account" => Arc::new(StringArray::from_iter_values((0..count).map(|at| format!("account-{}", at * 7 % accounts)))),
            "cents" => Arc::new(Int64Array::from_iter_values(0..count)),
            "id" => Arc::new(StringArray::from_iter_values((0..count).map(|at| at.to_string()))),
            SOURCE => Arc::new(StringArray::from_iter_values((0..count).map(|_| "payments"))),
            PARTITION => Arc::new(Int32Array::from_iter_values((0..count).map(|_| 0))),
            OFFSET => Arc::new(Int64Array::from_iter_values(0..count)),
            other => panic!("unknown column {other}"),
        }
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| column(field.name())).collect()).unwrap()
}

/// The buckets of these payments' states, dealt out by two scatters as a plan of two partitions would.
pub(crate) async fn dealt(view: &str, count: i64, pool: Arc<dyn MemoryPool>) -> (Ground, Vec<Bucketful>) {
    let plan = planned(view).await;
    let mut partial = Partial::new(plan.clone(), &planning_session(&Functions::standard()).unwrap()).await.unwrap();
    let codec = Arc::new(KeyCodec::of(&plan).unwrap());
    let floors = plan.ladder.iter().map(|level| (*level, None)).collect();
    let edges_from = EdgesFrom::default();
    let ground =
        Ground { plan, floors, edges_from, codec, buckets: BUCKETS as u32, threads: 2, temp_dir: None, pool, limit_bytes: 1 << 30 };
    let events = payments(count, 50);
    let half = count as usize / 2;
    let mut parts = Vec::new();
    for events in [events.slice(0, half), events.slice(half, count as usize - half)] {
        let mut scatter = Scatter::new(ground.clone());
        for states in partial.states("payments", &[events]).await.unwrap() {
            let level = states.schema().index_of(LEVEL).unwrap();
            let others: Vec<usize> = (0..states.num_columns()).filter(|column| *column != level).collect();
            scatter.push(&states.project(&others).unwrap()).unwrap();
        }
        parts.push(scatter.finish().unwrap());
    }
    let mut second = parts.pop().unwrap().into_iter();
    let joined = parts.pop().unwrap().into_iter().map(|first| Bucketful::join(vec![first, second.next().unwrap()]).unwrap());
    (ground, joined.collect())
}

/// Every row as text, by bucket, with the encoding of its key.
fn rows(ground: &Ground, buckets: &[Bucketful]) -> BTreeMap<usize, Vec<String>> {
    let of = |bucket: &Bucketful| {
        let mut batches = bucket.in_memory.clone();
        let mut take = |batch| {
            batches.push(batch);
            Ok(())
        };
        bucket.read_spilled(&mut take).unwrap();
        let sorted = schemas::states::StateRows::sort(&ground.plan, &ground.codec, &batches).unwrap();
        let shown = arrow::util::pretty::pretty_format_batches(&[sorted.batch().clone()]).unwrap().to_string();
        let places: Vec<u32> = (0..sorted.len()).map(|row| bucket_of(sorted.keys().value(row), ground.buckets)).collect();
        (shown.lines().map(str::to_owned).collect(), places)
    };
    let mut all = BTreeMap::new();
    for (number, bucket) in buckets.iter().enumerate() {
        let (shown, places) = of(bucket);
        assert!(places.iter().all(|place| *place == number as u32), "a row lies in a bucket that is not its own");
        all.insert(number, shown);
    }
    all
}

pub(crate) const VIEW: &str = "CREATE VIEW sums WITH (windows = '7d, 90d') AS SELECT account, count(*) AS payments, sum(cents) AS cents, \
    approx_distinct(id) AS ids FROM payments GROUP BY account";

#[tokio::test]
async fn what_is_dealt_out_comes_back_whatever_was_spilled() {
    let (ground, in_memory) = dealt(VIEW, 3_000, Arc::new(UnboundedMemoryPool::default())).await;
    assert!(in_memory.iter().all(|bucket| bucket.spilled.is_empty()));
    let expected = rows(&ground, &in_memory);
    assert!(expected.values().map(Vec::len).sum::<usize>() > 3_000);
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(20_000));
    let (ground, spilled) = dealt(VIEW, 3_000, pool.clone()).await;
    assert!(spilled.iter().filter(|bucket| !bucket.spilled.is_empty()).count() >= 2);
    assert_eq!(rows(&ground, &spilled), expected);
    drop(spilled);
    assert_eq!(pool.reserved(), 0);
}
