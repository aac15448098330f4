//! The law over the real layers: random SELECTs and events pass through log, workers, runs and nodes, with
//! micro-batches, checkpoints, runs with little memory, compactions, crashes, restarts, new versions of the views and
//! returns to earlier ones in any order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::Schema;
use basestream_tests::{Harness, Worker};
use batch::{ReplayFrom, RunTime};
use bytes::Bytes;
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord};
use committed::registry::LiveView;
use datafusion::datasource::MemTable;
use definitions::{Definitions, parse};
use engine::events::{format_timestamp, plan_schema};
use engine::fresh::Fresh;
use engine::functions::Functions;
use engine::plan::planning_session;
use engine::states::FailedRows;
use event_log::NewRecord;
use jobs::verify::plain::{self, Moment, plain};
use proptest::prelude::*;
use serving::{LoadedView, Node, ReadView, ServingClock, StateSource, scan, scan_parts};
use types::Result;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use uuid::Uuid;

use crate::compare::{Inputs, mark_failed, mark_past, positions, rows_of, same};
use crate::grammar::{Event, fails, leaves_out, view};

mod full_disk;

pub const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, j INT, x BIGINT, d DECIMAL(18,2), f DOUBLE, \
    u TEXT, b BOOLEAN) WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'k')";
const PARTITIONS: u32 = 3;
pub const BASE: Micros = 1_772_366_400_000_000;
pub const DAY: Micros = 86_400_000_000;
/// The lowest memory limit of a run.
const LITTLE_MEMORY_BYTES: usize = 16 << 20;
pub const TEXTS: [&str; 5] = ["", "3", "é\u{1F600}", "a \"quoted\" \\ one", "\u{0}"];

#[derive(Debug, Clone)]
pub struct Row {
    pub id: u16,
    pub ts: Micros,
    pub k: Option<usize>,
    pub j: Option<i32>,
    pub x: Option<i64>,
    /// In hundredths.
    pub d: Option<i64>,
    pub f: Option<f64>,
    pub u: Option<usize>,
    pub b: Option<bool>,
}

impl Row {
    pub fn event(&self) -> Event {
        Event { k: text(self.k), j: self.j, x: self.x, d: self.d, u: text(self.u), b: self.b }
    }
}

pub fn text(at: Option<usize>) -> Option<&'static str> {
    at.map(|at| TEXTS[at])
}

/// An action of the test.
#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Row>),
    /// A worker reads to the log's end and checkpoints.
    Checkpoint,
    /// A worker reads to the log's end and dies; its fresh layers are served meanwhile.
    Crash,
    Run,
    /// From the archive.
    RunFull,
    Replay(ReplayFrom),
    /// What nobody needs is collected, and checkpoints that every version has published become fewer.
    Compact,
    RestartNode,
    Redefine(String),
    /// Returns to the version before, if it is kept.
    RollBack,
}

/// What each case ends with.
const LAST: [Step; 5] = [Step::Checkpoint, Step::Run, Step::Compact, Step::RunFull, Step::RestartNode];

pub fn row() -> impl Strategy<Value = Row> {
    let age = prop_oneof![0..120_000_000i64, 0..7_200_000_000i64, 0..100 * DAY, Just(0), Just(DAY), Just(3_600_000_000)];
    let x = prop_oneof![8 => -1_000i64..1_000, 1 => Just(4_000_000_000_000i64), 1 => Just(-4_000_000_000_000i64)];
    let d = prop_oneof![8 => -100_000i64..100_000, 1 => Just(999_999_999_999_999_999i64 / 100), 1 => Just(-1i64)];
    let f = prop_oneof![400 => -1e6f64..1e6, 40 => Just(0.0), 40 => Just(-0.0), 1 => Just(1e15)];
    let keys = (0u16..300, prop::option::weighted(0.85, 0..TEXTS.len()), prop::option::weighted(0.9, -2i32..3));
    let numbers = (prop::option::weighted(0.8, x), prop::option::weighted(0.8, d), prop::option::weighted(0.8, f));
    let others = (prop::option::weighted(0.9, 0..TEXTS.len()), prop::option::of(any::<bool>()));
    (age, keys, numbers, others).prop_map(|(age, (id, k, j), (x, d, f), (u, b))| Row { id, ts: BASE - age, k, j, x, d, f, u, b })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(row(), 1..25).prop_map(Step::Append),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
        5 => Just(Step::Run),
        1 => Just(Step::RunFull),
        1 => prop::sample::select(vec![ReplayFrom::Log, ReplayFrom::Archive]).prop_map(Step::Replay),
        2 => Just(Step::Compact),
        1 => Just(Step::RestartNode),
        2 => view().prop_map(Step::Redefine),
        2 => Just(Step::RollBack),
    ]
}

struct Installation {
    harness: Harness,
    fresh: Fresh,
    node: Node,
    version: u32,
    sql: String,
    accepted: Vec<(i32, i64, Row)>,
    known: BTreeSet<(i32, u16)>,
    ends: Vector,
    /// A worker died since the last checkpoint, and its fresh layers are still served.
    crashed: bool,
    trace: Vec<String>,
}

impl Installation {
    async fn new(harness: Harness, sql: &str) -> Self {
        harness.define(&[(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, "v", sql)]).await.unwrap();
        harness.log.create_topic("s", PARTITIONS).await.unwrap();
        let fresh = Fresh::default();
        let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
        let (accepted, known, ends, trace) = Default::default();
        Self { harness, fresh, node, version: 1, sql: sql.to_owned(), accepted, known, ends, crashed: false, trace }
    }

    async fn take(&mut self, step: &Step) {
        self.trace.push(match step {
            Step::Append(rows) => format!("append {}", rows.len()),
            other => format!("{other:?}"),
        });
        match step {
            Step::Append(rows) => self.append(rows).await.unwrap(),
            Step::Checkpoint => self.work(true).await,
            Step::Crash => self.work(false).await,
            Step::Run => {
                self.harness.batch_within("v", RunTime::EventClock, LITTLE_MEMORY_BYTES).await.unwrap();
                self.node.refresh().await.unwrap();
            }
            Step::RunFull => {
                self.recompute().await.unwrap();
                self.node.refresh().await.unwrap();
            }
            Step::Replay(from) => {
                let run = self.harness.replay("v", RunTime::EventClock, *from).await.unwrap();
                self.assert_nothing_differs(&run);
                self.node.refresh().await.unwrap();
            }
            Step::Compact => self.compact().await,
            Step::RestartNode => self.node = self.harness.node(ServingClock::Event, Some(self.fresh.clone())).await.unwrap(),
            Step::Redefine(sql) => self.redefine(sql).await,
            Step::RollBack => self.roll_back().await,
        }
        self.check().await;
    }

    /// Appends all of them, or none.
    async fn append(&mut self, rows: &[Row]) -> Result<()> {
        let record = |row: &Row| {
            let key = row.k.map(|k| Bytes::from(TEXTS[k]));
            NewRecord { key, value: Some(Bytes::from(json(row))), headers: Vec::new(), partition_by: Some(Bytes::from(row.id.to_string())) }
        };
        let places = self.harness.log.append("s", rows.iter().map(record).collect()).await?;
        for ((partition, offset), row) in places.into_iter().zip(rows) {
            self.ends.set(PartitionId::new("s", partition), offset.next());
            if self.known.insert((partition, row.id)) {
                self.accepted.push((partition, offset.0, row.clone()));
            }
        }
        Ok(())
    }

    /// Runs from the archive, and compares the result with the snapshot before.
    async fn recompute(&self) -> Result<()> {
        let run = self.harness.recompute("v", RunTime::EventClock).await?;
        self.assert_nothing_differs(&run);
        Ok(())
    }

    /// Where it was compared, incremental runs had kept the states that this run computed.
    fn assert_nothing_differs(&self, run: &RunRecord) {
        let is_equal = run.comparison.as_ref().is_none_or(|comparison| comparison.found() == Some(0));
        assert!(is_equal, "{:?} of {}\n{}", run.comparison, self.sql, self.trace.join("\n"));
    }

    async fn compact(&mut self) {
        self.harness.collect().await.unwrap();
        let compacted = self.harness.compact().await.unwrap();
        self.trace.push(format!("compacted {} checkpoints", compacted.checkpoints));
        // Files of superseded snapshots may be gone, so the node has to load the current state.
        self.node.refresh().await.unwrap();
    }

    /// Starts a worker, and waits until the log's end is served.
    async fn start_worker(&self, checkpoint_interval: Duration) -> Worker {
        let worker = self.harness.worker("one", checkpoint_interval, Some(self.fresh.clone()));
        let began = Instant::now();
        while !self.node.read_view().unwrap().vector.covers(&self.ends) {
            assert!(!worker.task.is_finished(), "the worker ended: {:?}", self.trace);
            assert!(began.elapsed() < Duration::from_secs(120), "timed out: the worker does not get on: {:?}", self.trace);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        worker
    }

    /// Kills a worker. Its fresh layers are still served.
    async fn kill(&mut self, worker: Worker) {
        worker.task.abort();
        let _ = worker.task.await;
        self.crashed = true;
    }

    /// Starts a worker that reads to the log's end and then commits or dies.
    async fn work(&mut self, commits: bool) {
        let worker = self.start_worker(Duration::from_secs(3_600)).await;
        self.check().await;
        if commits {
            // The node may still serve the layers of a dead worker; then this worker has yet to read them.
            tokio::time::sleep(Duration::from_millis(if self.crashed { 300 } else { 0 })).await;
            worker.finish().await.unwrap();
            self.node.refresh().await.unwrap();
            if !self.node.loaded().unwrap().vector.covers(&self.ends) {
                assert!(self.crashed, "the worker did not commit what it served: {:?}", self.trace);
                return Box::pin(self.work(true)).await;
            }
            self.crashed = false;
        } else {
            self.kill(worker).await;
        }
    }

    async fn redefine(&mut self, sql: &str) {
        self.version += 1;
        sql.clone_into(&mut self.sql);
        let (version, status) = (self.version, DefinitionStatus::Building);
        let record = DefinitionRecord {
            kind: DefinitionKind::View,
            name: "v".into(),
            version,
            sql: sql.into(),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        };
        self.harness.catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Definition(record)], ..Commit::default() }).await.unwrap();
        self.node.refresh().await.unwrap();
    }

    async fn roll_back(&mut self) {
        let version = self.harness.roll_back("v").await.unwrap();
        self.trace.push(version.map_or("no version is kept".to_owned(), |version| format!("back to version {version}")));
        self.node.refresh().await.unwrap();
    }

    /// Checks that the node's current answer is the plain SELECT over the accepted events before its vector, without
    /// those on which the view fails, and that it lists these.
    async fn check(&self) {
        let read_view = self.node.read_view().unwrap();
        let view = match read_view.view("v") {
            Ok(view) => view,
            // The dead worker's layers do not have the new version: an error rather than a wrong answer.
            Err(error) => return assert_eq!(error.kind(), types::ErrorKind::Unavailable, "{error}"),
        };
        self.check_left_out(&read_view, view);
        let t = read_view.t_of(&view.live);
        let source = StateSource::Layers { read_view: &read_view, view };
        let wanted: Vec<usize> = (0..view.live.plan.columns.len()).collect();
        let (parts, failed): (Vec<_>, Vec<_>) =
            (0..scan_parts(&source)).map(|part| scan(&view.live, &source, part, t, &wanted).unwrap()).unzip();
        let keys = view.live.plan.keys.len();
        let mut served = rows_of(&parts, None, keys);
        for FailedRows { keys, values } in failed.into_iter().filter(|failed| !failed.values.is_empty()) {
            let options = RecordBatchOptions::new().with_row_count(Some(keys.first().map_or(1, |key| key.len())));
            let keys = RecordBatch::try_new_with_options(Arc::new(Schema::new(view.live.plan.keys.clone())), keys, &options).unwrap();
            mark_failed(&mut served, &view.live.plan, &keys, &values);
        }
        let is_counted = |(partition, offset, row): &&(i32, i64, Row)| {
            *offset < read_view.vector.get(&PartitionId::new("s", *partition)).0 && !fails(&view.live.definition.sql, &row.event())
        };
        let before: Vec<&(i32, i64, Row)> = self.accepted.iter().filter(is_counted).collect();
        let inputs = Inputs::from_rows(before.iter().map(|(_, _, row)| (row.x, row.f)));
        let [expected, past] = expected(&view.live, &before, t).await;
        let mut expected = rows_of(&expected, None, keys);
        mark_past(&mut expected, &past, keys);
        let about = || format!("{} at {}\n{}", view.live.definition.sql, read_view.vector, self.trace.join("\n"));
        assert_eq!(served.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "keys of {}", about());
        for (key, columns) in &expected {
            assert!((1..=columns.len()).contains(&served[key].len()), "columns of {}", about());
            for ((name, expected), (_, served)) in columns.iter().zip(&served[key]) {
                assert!(
                    same(served, expected, inputs.scale_of(&view.live.plan, name)),
                    "{name} of {key:?}: served {served}, plain {expected}, {}",
                    about()
                );
            }
        }
    }

    /// Checks that the view counts and lists each event on which it fails, once. Those of the snapshot that are too old
    /// for its windows may be missing.
    fn check_left_out(&self, read_view: &ReadView, view: &LoadedView) {
        let sql = &view.live.definition.sql;
        let listed = positions(read_view.failures_of(view));
        let oldest = view.live.plan.oldest_kept(read_view.t_of(&view.live));
        let is_before = |(partition, offset, _): &(i32, i64, Row), end: &Vector| *offset < end.get(&PartitionId::new("s", *partition)).0;
        let may_be_missing = |event: &(i32, i64, Row)| is_before(event, &view.cut) && oldest.is_some_and(|oldest| event.2.ts < oldest);
        let is_expected = |event: &&(i32, i64, Row)| {
            let event: &(i32, i64, Row) = event;
            let is_left_out = is_before(event, &read_view.vector) && leaves_out(sql, &event.2.event());
            is_left_out && (!may_be_missing(event) || listed.contains(&(event.0, event.1)))
        };
        let mut expected: Vec<(i32, i64)> =
            self.accepted.iter().filter(is_expected).map(|(partition, offset, _)| (*partition, *offset)).collect();
        expected.sort_unstable();
        assert_eq!(listed, expected, "the events left out of {sql} at {}\n{}", read_view.vector, self.trace.join("\n"));
    }
}

pub async fn expected(view: &LiveView, events: &[&(i32, i64, Row)], t: Micros) -> [Vec<RecordBatch>; 2] {
    let definitions = Definitions {
        streams: vec![parse::parse_stream(STREAM).unwrap()],
        views: vec![(*view.definition).clone()],
        ..Definitions::default()
    };
    let session = planning_session(&Functions::standard()).unwrap();
    plain::register(&session);
    let batch = batch_of(events, plan_schema(&definitions.streams[0]));
    session.register_table("s", Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())).unwrap();
    let is_aggregate = |name: &str| session.state().aggregate_functions().contains_key(name);
    let plain = plain(&view.definition, &definitions, &is_aggregate, Moment { t, as_of: false }).unwrap();
    let past = match &plain.past_sql {
        Some(sql) => session.sql(sql).await.unwrap().collect().await.unwrap(),
        None => Vec::new(),
    };
    [session.sql(&plain.sql).await.unwrap().collect().await.unwrap(), past]
}

pub fn json(row: &Row) -> String {
    let json_text = |at: Option<usize>| serde_json::to_string(&text(at)).unwrap();
    let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".into());
    let hundredths = row.d.map(|d| format!("\"{}{}.{:02}\"", if d < 0 { "-" } else { "" }, d.abs() / 100, d.abs() % 100));
    format!(
        r#"{{"id":"{}","ts":"{}","k":{},"j":{},"x":{},"d":{},"f":{},"u":{},"b":{}}}"#,
        row.id,
        format_timestamp(row.ts),
        json_text(row.k),
        or_null(row.j.map(|j| j.to_string())),
        or_null(row.x.map(|x| x.to_string())),
        or_null(hundredths),
        or_null(row.f.map(|f| format!("{f:?}"))),
        json_text(row.u),
        or_null(row.b.map(|b| b.to_string())),
    )
}

fn batch_of(events: &[&(i32, i64, Row)], schema: arrow::datatypes::SchemaRef) -> RecordBatch {
    let rows = || events.iter().map(|(_, _, row)| row);
    let time = || Arc::new(TimestampMicrosecondArray::from_iter_values(rows().map(|row| row.ts)).with_timezone("UTC"));
    let decimals: Decimal128Array = rows().map(|row| row.d.map(i128::from)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows().map(|row| row.id.to_string()))),
        time(),
        Arc::new(rows().map(|row| text(row.k)).collect::<StringArray>()),
        Arc::new(rows().map(|row| row.j).collect::<Int32Array>()),
        Arc::new(rows().map(|row| row.x).collect::<Int64Array>()),
        Arc::new(decimals.with_precision_and_scale(18, 2).unwrap()),
        Arc::new(rows().map(|row| row.f).collect::<Float64Array>()),
        Arc::new(rows().map(|row| text(row.u)).collect::<StringArray>()),
        Arc::new(rows().map(|row| row.b).collect::<BooleanArray>()),
        time(),
        Arc::new(StringArray::from_iter_values(events.iter().map(|_| "s"))),
        Arc::new(Int32Array::from_iter_values(events.iter().map(|(partition, _, _)| *partition))),
        Arc::new(Int64Array::from_iter_values(events.iter().map(|(_, offset, _)| *offset))),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}

fn is_supported(sql: &str) -> bool {
    // A debug build of DataFusion 55.2 panics on the plain side: see `states`.
    sql.contains("GROUP BY") || !sql.contains("_value(")
}

fn are_supported(sql: &str, steps: &[Step]) -> bool {
    is_supported(sql) && steps.iter().all(|step| if let Step::Redefine(sql) = step { is_supported(sql) } else { true })
}

async fn holds(sql: &str, steps: &[Step]) {
    let mut installation = Installation::new(Harness::new().await.unwrap(), sql).await;
    for step in steps.iter().chain(&LAST) {
        installation.take(step).await;
    }
}

/// Tasks that are still running get a second to end.
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(case);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

pub fn cases() -> u32 {
    std::env::var("BASESTREAM_LAW_LAYER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_the_real_layers_serve_equals_the_plain_select(sql in view(), steps in prop::collection::vec(step(), 1..15)) {
        prop_assume!(are_supported(&sql, &steps));
        run(holds(&sql, &steps));
    }
}

/// Among the steps that are drawn, a compaction may find nothing due, and no version may be kept.
#[test]
fn a_version_that_is_served_again_over_a_compacted_archive_is_the_plain_select() {
    let sql = |column: &str| format!("CREATE VIEW v WITH (windows = '30d') AS SELECT k AS key0, {column} AS c0 FROM s GROUP BY k");
    let append = |id: u16| {
        let row = Row { id, ts: BASE, k: Some(1), j: None, x: Some(i64::from(id)), d: None, f: None, u: None, b: None };
        Step::Append(vec![row.clone(), Row { id: id + 100, ts: BASE - DAY, ..row }])
    };
    run(async {
        let mut installation = Installation::new(Harness::new().await.unwrap(), &sql("count(*)")).await;
        for id in 1..=3 {
            installation.take(&append(id)).await;
            installation.take(&Step::Checkpoint).await;
        }
        installation.take(&Step::Run).await;
        installation.take(&Step::Compact).await;
        // Those of one day become one.
        assert!(installation.harness.catalog.state().await.unwrap().checkpoints.len() < 3, "{:?}", installation.trace);

        installation.take(&Step::Redefine(sql("sum(x)"))).await;
        installation.take(&Step::Run).await;
        assert_eq!(installation.harness.served("v").await.unwrap(), Some(2));
        installation.take(&append(4)).await;
        installation.take(&Step::Checkpoint).await;
        installation.take(&Step::RollBack).await;
        assert_eq!(installation.harness.served("v").await.unwrap(), Some(1));
        for step in &LAST {
            installation.take(step).await;
        }
    });
}
