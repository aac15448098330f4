use std::collections::BTreeMap;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::nullif;
use arrow::datatypes::Int32Type;
use datafusion::execution::memory_pool::{FairSpillPool, UnboundedMemoryPool};
use definitions::{Definitions, parse};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{Planned, Planner, planning_session};
use engine::states::Partial;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use types::columns::LEVEL;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::tiles::EdgesFrom;

use super::*;

const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, account TEXT, cents BIGINT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'account')";

pub(crate) const BUCKETS: usize = 4;

pub(crate) async fn planned(view: &str) -> Arc<ViewPlan> {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let Planned::Stateful(plan) = Planner::new(&project, Functions::standard()).plan(&view).await.unwrap() else { panic!("inlined") };
    plan
}

/// `count` payments, an hour apart, of this many accounts.
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

/// Returns the buckets of these payments' states, from two partitioners, as for a plan with two partitions.
pub(crate) async fn partitioned(view: &str, count: i64, pool: Arc<dyn MemoryPool>) -> (ShuffleContext, Vec<BucketRows>) {
    let plan = planned(view).await;
    let mut partial = Partial::new(plan.clone(), &planning_session(&Functions::standard()).unwrap()).unwrap();
    let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
    let floors = plan.levels.iter().map(|level| (*level, None)).collect();
    let edges_from = EdgesFrom::default();
    let shuffle =
        ShuffleContext { plan, floors, edges_from, codec, buckets: BUCKETS as u32, threads: 2, temp_dir: None, pool, limit_bytes: 1 << 30 };
    let events = payments(count, 50);
    let half = count as usize / 2;
    let mut parts = Vec::new();
    for events in [events.slice(0, half), events.slice(half, count as usize - half)] {
        let mut partitioner = BucketPartitioner::new(shuffle.clone());
        for states in partial.states("payments", &[events]).await.unwrap() {
            let level = states.schema().index_of(LEVEL).unwrap();
            let others: Vec<usize> = (0..states.num_columns()).filter(|column| *column != level).collect();
            partitioner.push(&states.project(&others).unwrap()).unwrap();
        }
        parts.push(partitioner.finish().unwrap());
    }
    let mut second = parts.pop().unwrap().into_iter();
    let joined = parts.pop().unwrap().into_iter().map(|first| BucketRows::join(vec![first, second.next().unwrap()]).unwrap());
    (shuffle, joined.collect())
}

/// Returns every row as text, by bucket, with its encoded key.
fn rows(shuffle: &ShuffleContext, buckets: &[BucketRows]) -> BTreeMap<usize, Vec<String>> {
    let of = |bucket: &BucketRows| {
        let mut batches = bucket.in_memory.clone();
        let mut take = |batch| {
            batches.push(batch);
            Ok(())
        };
        bucket.read_spilled(&mut take).unwrap();
        let sorted = engine::states::StateRows::sort(&shuffle.plan, &shuffle.codec, &batches).unwrap();
        let shown = arrow::util::pretty::pretty_format_batches(&[sorted.batch().clone()]).unwrap().to_string();
        let places: Vec<u32> = (0..sorted.len()).map(|row| bucket_of(sorted.keys().value(row), shuffle.buckets)).collect();
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
async fn what_is_partitioned_comes_back_whatever_was_spilled() {
    let (shuffle, in_memory) = partitioned(VIEW, 3_000, Arc::new(UnboundedMemoryPool::default())).await;
    assert!(in_memory.iter().all(|bucket| bucket.spilled.is_empty()));
    let expected = rows(&shuffle, &in_memory);
    assert!(expected.values().map(Vec::len).sum::<usize>() > 3_000);
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(20_000));
    let (shuffle, spilled) = partitioned(VIEW, 3_000, pool.clone()).await;
    assert!(spilled.iter().filter(|bucket| !bucket.spilled.is_empty()).count() >= 2);
    assert_eq!(rows(&shuffle, &spilled), expected);
    drop(spilled);
    assert_eq!(pool.reserved(), 0);
}

const KINDS: usize = 9;
const LIST: usize = 8;
const TEXTS: [&str; 3] = ["", "a", "ab"];

/// One of three values (two for booleans), and whether it is NULL. The values beneath NULLs differ as well.
type Cell = (u8, bool);

/// What a column holds.
#[derive(Debug, Clone)]
enum Fill {
    One(Cell),
    /// A single value within each batch, which may differ between batches.
    OneABatch(Vec<Cell>),
    Nulls(Vec<u8>),
    Any(Vec<Cell>),
}

impl Fill {
    fn cell(&self, batch: usize, row: usize) -> Cell {
        let at = batch * 12 + row;
        match self {
            Fill::One(cell) => *cell,
            Fill::OneABatch(cells) => cells[batch % cells.len()],
            Fill::Nulls(values) => (values[at % values.len()], true),
            Fill::Any(cells) => cells[at % cells.len()],
        }
    }
}

fn cell() -> impl Strategy<Value = Cell> {
    (0u8..3, prop::bool::weighted(0.2))
}

fn fill() -> impl Strategy<Value = Fill> {
    prop_oneof![
        cell().prop_map(Fill::One),
        vec(cell(), 5).prop_map(Fill::OneABatch),
        vec(0u8..3, 60).prop_map(Fill::Nulls),
        vec(cell(), 60).prop_map(Fill::Any),
    ]
}

fn array(kind: usize, cells: &[Cell]) -> ArrayRef {
    let values = cells.iter().map(|(value, _)| *value);
    let array: ArrayRef = match kind {
        0 => Arc::new(BooleanArray::from(values.map(|value| value == 1).collect::<Vec<bool>>())),
        1 => Arc::new(StringArray::from_iter_values(values.map(|value| TEXTS[usize::from(value)]))),
        2 => Arc::new(Int64Array::from_iter_values(values.map(|value| [0, -1, i64::MAX][usize::from(value)]))),
        3 => Arc::new(Float64Array::from_iter_values(values.map(|value| [-0.0, 0.0, f64::NAN][usize::from(value)]))),
        4 => Arc::new(Decimal128Array::from_iter_values(values.map(i128::from)).with_precision_and_scale(18, 2).unwrap()),
        5 => Arc::new(TimestampMicrosecondArray::from_iter_values(values.map(i64::from)).with_timezone("UTC")),
        6 => Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.map(|value| Some([value; 16])), 16).unwrap()),
        7 => Arc::new(values.map(|value| TEXTS[usize::from(value)]).collect::<DictionaryArray<Int32Type>>()),
        LIST => {
            let lists = values.map(|value| Some(vec![Some(i32::from(value)); usize::from(value)]));
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
        }
        other => panic!("unknown kind {other}"),
    };
    let nulls: Vec<bool> = cells.iter().map(|(_, null)| *null).collect();
    if nulls.contains(&true) { nullif(&array, &BooleanArray::from(nulls)).unwrap() } else { array }
}

/// Batches of these lengths, each a slice that begins after some other rows.
fn batches(columns: &[(usize, Fill)], lens: &[(usize, usize)]) -> Vec<RecordBatch> {
    let column = |kind: usize, fill: &Fill, batch: usize, (before, count): (usize, usize)| {
        let others = (0..before).map(|row| ((row % 3) as u8, false));
        let cells: Vec<Cell> = others.chain((0..count).map(|row| fill.cell(batch, row))).collect();
        array(kind, &cells).slice(before, count)
    };
    let of = |(batch, len): (usize, &(usize, usize))| {
        let named = columns.iter().enumerate().map(|(at, (kind, fill))| (format!("c{at}"), column(*kind, fill, batch, *len)));
        RecordBatch::try_from_iter(named).unwrap()
    };
    lens.iter().enumerate().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn rows_of_several_batches_are_what_the_kernel_interleaves(
        columns in vec((0..KINDS, fill()), 1..6),
        lens in vec((0usize..9, prop_oneof![Just(0usize), 0usize..12]), 1..6),
        asked in vec(any::<Index>(), 0..40),
        spare in 0usize..5,
    ) {
        let batches = batches(&columns, &lens);
        let all: Vec<(usize, usize)> =
            lens.iter().enumerate().flat_map(|(batch, (_, count))| (0..*count).map(move |row| (batch, row))).collect();
        let places: Vec<(usize, usize)> = asked.iter().filter(|_| !all.is_empty()).map(|at| all[at.index(all.len())]).collect();
        let gathered = Gathered::columns(&batches.iter().collect::<Vec<_>>(), places.len() + spare).unwrap();
        prop_assert_eq!(gathered.len(), columns.len());
        for (number, (kind, fill)) in columns.iter().enumerate() {
            let each: Vec<&dyn Array> = batches.iter().map(|batch| &**batch.column(number)).collect();
            for places in [&places[..], &places[..places.len() / 2]] {
                let found = gathered[number].rows(places).unwrap();
                let expected = interleave(&each, places).unwrap();
                prop_assert_eq!(found.data_type(), expected.data_type());
                prop_assert_eq!(&found, &expected);
            }
            let is_one = matches!(fill, Fill::One(_) | Fill::Nulls(_)) && *kind != LIST && !all.is_empty();
            prop_assert!(!is_one || matches!(gathered[number], Gathered::Same(_)), "one value throughout is gathered");
        }
    }
}
