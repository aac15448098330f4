//! The law over the states alone: the product's functions build them, merge them, roll them up and answer from them,
//! with every cut of the same events.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt8Array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use definitions::{Definitions, parse};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{Planned, Planner, ViewPlan, planning_session};
use engine::states::{
    Answered, KeyCodec, Partial, Pieces, RowOrder, StateRows, answer, at_kept_levels, merge_rolled_up, rollup, sort_and_merge,
};
use jobs::verify::plain::{self, Moment, plain};
use proptest::prelude::*;
use types::columns::{LEVEL, TILE};
use types::failures::Failures;
use types::tiles::EdgesFrom;
use types::tiles::{Level, Micros, finest_kept};

use crate::compare::{Inputs, mark_failed, mark_past, positions, rows_of, same};
use crate::grammar::{Event, fails, leaves_out, view, view_of_sequences};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, j INT, x BIGINT, d DECIMAL(18,2), f DOUBLE, u TEXT, b BOOLEAN) \
    WITH (format = 'json', event_time = 'ts')";
const BASE: Micros = 1_772_366_400_000_000;
const DAY: Micros = 86_400_000_000;
/// The events of a case are spread over this many partitions.
const PARTITIONS: usize = 3;
const TEXTS: [&str; 5] = ["", "3", "\u{e9}\u{1F600}", "a \"quoted\" \\ one", "\u{0}"];

#[derive(Debug, Clone)]
pub struct Row {
    pub ts: Micros,
    pub k: Option<u8>,
    pub j: Option<i32>,
    pub x: Option<i64>,
    pub d: Option<i64>,
    pub f: Option<f64>,
    pub u: Option<u8>,
    pub b: Option<bool>,
    /// The checkpoint that the event belongs to.
    pub checkpoint: usize,
}

impl Row {
    fn event(&self) -> Event {
        Event { k: text(self.k), j: self.j, x: self.x, d: self.d, u: text(self.u), b: self.b }
    }
}

fn text(at: Option<u8>) -> Option<&'static str> {
    at.map(|at| TEXTS[at as usize])
}

fn row() -> impl Strategy<Value = Row> {
    let age = prop_oneof![0..120_000_000i64, 0..7_200_000_000i64, 0..3 * DAY, 0..100 * DAY, Just(DAY), Just(3_600_000_000), Just(7 * DAY)];
    let infinite = prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::NAN)];
    // Large values are rare: a sum that includes one has no precision left for the others.
    let f = prop_oneof![400 => -1e6f64..1e6, 40 => Just(0.0), 1 => Just(1e15), 2 => infinite];
    // Two of the large values are past the type: their sum is, unless another brings it back.
    let x = prop_oneof![200 => -1000i64..1000, 2 => Just(1i64 << 62), 2 => Just(-(1i64 << 62))];
    let values = (prop::option::weighted(0.9, 0u8..4), prop::option::weighted(0.9, -2i32..3), prop::option::weighted(0.8, x));
    let more = (
        prop::option::weighted(0.8, -100_000i64..100_000),
        prop::option::weighted(0.8, f),
        prop::option::weighted(0.9, 0u8..5),
        prop::option::of(any::<bool>()),
    );
    (age, values, more, 0..CHECKPOINTS).prop_map(|(age, (k, j, x), (d, f, u, b), checkpoint)| Row {
        ts: BASE - age,
        k,
        j,
        x,
        d,
        f,
        u,
        b,
        checkpoint,
    })
}

fn batch(rows: &[Row], schema: arrow::datatypes::SchemaRef) -> RecordBatch {
    let time = || TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.ts)).with_timezone("UTC");
    let decimals: Decimal128Array = rows.iter().map(|row| row.d.map(i128::from)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(time()),
        Arc::new(rows.iter().map(|row| text(row.k)).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.j).collect::<Int32Array>()),
        Arc::new(rows.iter().map(|row| row.x).collect::<Int64Array>()),
        Arc::new(decimals.with_precision_and_scale(18, 2).unwrap()),
        Arc::new(rows.iter().map(|row| row.f).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|row| text(row.u)).collect::<StringArray>()),
        Arc::new(rows.iter().map(|row| row.b).collect::<BooleanArray>()),
        Arc::new(time()),
        Arc::new(StringArray::from(vec!["s"; rows.len()])),
        Arc::new(Int32Array::from_iter_values((0..rows.len()).map(|i| position(i).0))),
        Arc::new(Int64Array::from_iter_values((0..rows.len()).map(|i| position(i).1))),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}

/// The partition and offset of a case's event.
fn position(index: usize) -> (i32, i64) {
    ((index % PARTITIONS) as i32, index as i64)
}

/// The result of the plain SELECT at `t`, and which of its values are past a limit.
async fn expected(session: &SessionContext, definitions: &Definitions, events: &RecordBatch, t: Micros) -> [Vec<RecordBatch>; 2] {
    let is_aggregate = |name: &str| session.state().aggregate_functions().contains_key(name);
    let plain = plain(&definitions.views[0], definitions, &is_aggregate, Moment { t, as_of: false }).unwrap();
    let table = MemTable::try_new(events.schema(), vec![vec![events.clone()]]).unwrap();
    session.register_table("s", Arc::new(table)).unwrap();
    let run = async |sql: &str| {
        let frame = session.sql(sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
        frame.collect().await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
    };
    let past = match &plain.past_sql {
        Some(sql) => run(sql).await,
        None => Vec::new(),
    };
    [run(&plain.sql).await, past]
}

/// Rows that know their tile, with the level that a run gives it.
fn with_kept_levels(rows: &RecordBatch, floors: &[(Level, Option<Micros>)]) -> RecordBatch {
    let (level, tile) = (rows.schema().index_of(LEVEL).unwrap(), rows.schema().index_of(TILE).unwrap());
    let tiles = rows.column(tile).as_primitive::<TimestampMicrosecondType>();
    let mut columns = rows.columns().to_vec();
    columns[level] = Arc::new(UInt8Array::from_iter_values(tiles.values().iter().map(|tile| finest_kept(floors, *tile).code())));
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

/// How the snapshot of a case is made.
#[derive(Debug, Clone, Copy)]
enum Made {
    /// By one full run.
    AtOnce,
    /// By a full run over the first half of the checkpoints, and an incremental one.
    InTiers,
    /// The same, and the tiers were merged.
    Merged,
}

/// The layers' answer: a snapshot of the checkpoints before the cut, made at `t_run`, and a layer for each later one.
/// The second result is what they leave out.
async fn served(
    plan: &Arc<ViewPlan>,
    events: &[(usize, RecordBatch)],
    (cut, made): (usize, Made),
    t_run: Micros,
    t: Micros,
) -> (Answered, [Failures; 2]) {
    let session = planning_session(&Functions::standard()).unwrap();
    let codec = KeyCodec::new(&plan.keys).unwrap();
    let mut partial = Partial::new(plan.clone(), &session).unwrap();
    // A run puts events directly into the tiles it keeps; the same events in the finest tiles give the same snapshot.
    let floors = plan.floors(t_run);
    let straight = cut.is_multiple_of(2);
    // The base of a snapshot that has deltas was made earlier.
    let floors_of_base = if matches!(made, Made::AtOnce) { floors.clone() } else { plan.floors(t_run - BETWEEN_RUNS) };
    let mut run = Partial::new(Arc::new(plan.kept_past(&floors_of_base, &EdgesFrom::default()).unwrap()), &session).unwrap();
    let (mut before, mut added, mut after): (Vec<RecordBatch>, Vec<RecordBatch>, Vec<StateRows>) = Default::default();
    let base_end = if matches!(made, Made::AtOnce) { cut } else { cut / 2 };
    for (checkpoint, events) in events {
        let events = std::slice::from_ref(events);
        match *checkpoint < cut {
            true if *checkpoint >= base_end => {
                let rows = partial.states("s", events).await.unwrap();
                added.extend(rows.iter().map(|rows| at_kept_levels(plan, rows, &floors).unwrap()));
            }
            true if straight => {
                before.extend(run.states("s", events).await.unwrap().iter().map(|rows| with_kept_levels(rows, &floors_of_base)))
            }
            true => before.extend(partial.states("s", events).await.unwrap()),
            false => after.push(sort_and_merge(plan, &codec, &partial.states("s", events).await.unwrap()).unwrap()),
        }
    }
    let base = rollup(plan, &sort_and_merge(plan, &codec, &before).unwrap(), &floors_of_base).unwrap();
    let delta = rollup(plan, &sort_and_merge(plan, &codec, &added).unwrap(), &floors).unwrap();
    let tiers = match made {
        Made::AtOnce => vec![base],
        Made::InTiers => vec![base, delta],
        Made::Merged => {
            let both = [base.batch().clone(), delta.batch().clone()];
            let sorted = StateRows::sort_in(RowOrder::ByLevel, plan, &codec, &both).unwrap();
            vec![merge_rolled_up(plan, &sorted, &floors).unwrap()]
        }
    };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for rows in after.iter().chain(&tiers) {
        keys.extend(rows.keys().iter().flatten().map(<[u8]>::to_vec));
    }
    keys.sort();
    keys.dedup();
    if plan.keys.is_empty() {
        keys = vec![Vec::new()];
    }
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut pieces = Pieces::default();
    for (index, key) in keys.iter().enumerate() {
        for tier in &tiers {
            pieces.add(tier.batch(), tier.find(key), index as u32, true);
        }
        for rows in &after {
            pieces.add(rows.batch(), rows.find(key), index as u32, false);
        }
    }
    let wanted: Vec<usize> = (0..plan.columns.len()).collect();
    (answer(plan, &codec, &keys, &pieces, t, &wanted).unwrap(), [run.take_failures(), partial.take_failures()])
}

/// How much earlier the base of a snapshot with deltas was made.
const BETWEEN_RUNS: Micros = 5 * 3_600_000_000;

/// The number of checkpoints that a case's events are spread over.
const CHECKPOINTS: usize = 6;

pub async fn holds(sql: &str, rows: &[Row], t_after: Micros, t_run_before: Micros) -> Result<(), TestCaseError> {
    let functions = Functions::standard();
    let definitions = Definitions {
        streams: vec![parse::parse_stream(STREAM).unwrap()],
        views: vec![parse::parse_view(sql).unwrap()],
        ..Definitions::default()
    };
    let planned = Planner::new(&definitions, functions.clone()).plan(&definitions.views[0]).await;
    let Planned::Stateful(plan) = planned.unwrap_or_else(|found| panic!("{sql}\n{found}")) else { panic!("{sql} keeps nothing") };
    let events = batch(rows, plan_schema(&definitions.streams[0]));
    let by_checkpoint: Vec<(usize, RecordBatch)> = rows.iter().enumerate().map(|(i, row)| (row.checkpoint, events.slice(i, 1))).collect();
    let t = BASE + t_after;
    let session = planning_session(&functions).unwrap();
    plain::register(&session);
    let is_counted = BooleanArray::from_iter(rows.iter().map(|row| Some(!fails(sql, &row.event()))));
    let counted = filter_record_batch(&events, &is_counted).unwrap();
    let [expected, past] = expected(&session, &definitions, &counted, t).await;
    let mut expected = rows_of(&expected, None, plan.keys.len());
    mark_past(&mut expected, &past, plan.keys.len());
    let inputs = Inputs::from_rows(rows.iter().map(|row| (row.x, row.f)));
    let mut left_out: Vec<(i32, i64)> =
        rows.iter().enumerate().filter(|(_, row)| leaves_out(sql, &row.event())).map(|(i, _)| position(i)).collect();
    left_out.sort_unstable();
    // Every way to split the same events between batch and speed.
    for cut in 0..=CHECKPOINTS {
        let made = [Made::InTiers, Made::Merged, Made::AtOnce][cut % 3];
        let (Answered { rows, found, failed }, failures) = served(&plan, &by_checkpoint, (cut, made), t - t_run_before, t).await;
        prop_assert_eq!(&positions(&failures), &left_out, "the events left out of {} cut at {}, {:?}", sql, cut, made);
        let mut served = rows_of(std::slice::from_ref(&rows), Some(&found), plan.keys.len());
        mark_failed(&mut served, &plan, &rows, &failed);
        prop_assert_eq!(
            served.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "keys of {} cut at {}, {:?}",
            sql,
            cut,
            made
        );
        for (key, columns) in &expected {
            // The plain SELECT may have more: whether a value is exact.
            prop_assert!((1..=columns.len()).contains(&served[key].len()), "columns of {}", sql);
            for ((name, expected), (_, served)) in columns.iter().zip(&served[key]) {
                let is_same = same(served, expected, inputs.scale_of(&plan, name));
                prop_assert!(
                    is_same,
                    "{} of {:?}: served {}, plain {}, cut at {}, {:?} in {}",
                    name,
                    key,
                    served,
                    expected,
                    cut,
                    made,
                    sql
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("BASESTREAM_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48), ..ProptestConfig::default() })]
    #[test]
    fn what_is_served_equals_the_plain_select(
        sql in view(),
        rows in prop::collection::vec(row(), 0..60),
        t_after in prop_oneof![Just(0i64), 0..3_600_000_000i64, 0..40 * DAY],
        t_run_before in prop_oneof![Just(0i64), 0..3_600_000_000i64, 0..40 * DAY],
    ) {
        // DataFusion 55.2 computes `len - 1` of an empty batch in last_value (first_last.rs:1306): a debug build of the
        // plain side panics.
        prop_assume!(sql.contains("GROUP BY") || !sql.contains("_value("));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(holds(&sql, &rows, t_after, t_run_before))?;
    }

    /// Many events within minutes, and many at the same time.
    #[test]
    fn what_is_served_of_sequences_equals_the_plain_select(
        sql in view_of_sequences(),
        rows in prop::collection::vec((row(), 0..900i64, 0..2 * DAY), 0..60),
        t_after in prop_oneof![Just(0i64), 0..3_600_000_000i64],
        t_run_before in prop_oneof![Just(0i64), 0..3_600_000_000i64],
    ) {
        let dense = rows.into_iter().map(|(row, seconds, age)| match age < DAY {
            true => Row { ts: BASE - seconds / 10 * 10_000_000, ..row },
            false => row,
        });
        let rows: Vec<Row> = dense.collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(holds(&sql, &rows, t_after, t_run_before))?;
    }
}
