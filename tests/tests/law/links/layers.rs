//! The law for joins over the real layers: random linked views and events pass through log, workers, runs and nodes,
//! with scans and lookups in every state, and in the past.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use arrow::array::BooleanArray;
use basestream_tests::Harness;
use batch::{LocalCopies, ReplayFrom, RunTime};
use bytes::Bytes;
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, RunRecord};
use committed::registry::Registry;
use engine::events::format_timestamp;
use engine::fresh::Fresh;
use event_log::NewRecord;
use jobs::verify::Verifier;
use jobs::verify::plain::Moment;
use proptest::prelude::*;
use serving::{Keys, Meta, Node, ServingClock};
use types::ErrorKind;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use uuid::Uuid;

use super::events::{BASE, DAY, Event, HOUR, Placed, STREAMS, event, hundredths};
use super::grammar::{Aggregate, Column, Condition, Join, Of, STAGING, Shape, Side, Source, Spelled, Through, View, view};
use super::plain::{answer, plain_query, scale};
use crate::compare::{rows_of, same};

mod checks;
mod rounds;

const NAMES: [&str; 2] = ["a", "b"];
const PARTITIONS: u32 = 2;
/// The lowest memory limit of a run.
const LITTLE_MEMORY_BYTES: usize = 16 << 20;
/// How many of the existing keys are looked up one by one.
const LOOKED_UP: usize = 6;

/// An action of the test.
#[derive(Debug, Clone)]
pub enum Step {
    Append(usize, Vec<Event>),
    /// A worker reads to the log's end and checkpoints.
    Checkpoint,
    /// A worker reads to the log's end and dies; its fresh layers are served meanwhile.
    Crash,
    Run,
    /// The same, by a clock that is this far ahead of the events.
    RunAhead(Micros),
    Replay(ReplayFrom),
    /// A run that recomputes from the archive.
    Recompute,
    /// The next runs are those of another process, which has the edges of its own last run.
    OtherProcess,
    /// What nobody needs is collected, and checkpoints that every version has published become fewer.
    Compact,
    RestartNode,
    /// The view is queried as of this long before the latest possible event.
    AsOf(Micros),
    Redefine(Box<View>),
    /// Returns to the version before, if it is kept.
    RollBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2usize, prop::collection::vec(event(), 1..20)).prop_map(|(stream, events)| Step::Append(stream, events)),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::Crash),
        3 => Just(Step::Run),
        1 => Just(Step::Recompute),
        1 => prop::sample::select(vec![ReplayFrom::Log, ReplayFrom::Archive]).prop_map(Step::Replay),
        1 => Just(Step::OtherProcess),
        2 => Just(Step::Compact),
        1 => prop_oneof![0..2 * HOUR, 0..40 * DAY].prop_map(Step::RunAhead),
        1 => Just(Step::RestartNode),
        1 => prop_oneof![Just(0), Just(HOUR), 0..2 * HOUR, 0..40 * DAY].prop_map(Step::AsOf),
        2 => view().prop_map(|view| Step::Redefine(Box::new(view))),
        2 => Just(Step::RollBack),
    ]
}

type Rows = BTreeMap<Vec<String>, Vec<(String, String)>>;

struct Installation {
    harness: Harness,
    other_process: LocalCopies,
    fresh: Fresh,
    node: Node,
    /// Each version's text and its number of keys.
    versions: Vec<(String, usize)>,
    accepted: Vec<Placed>,
    known: BTreeSet<(usize, i32, u16)>,
    ends: Vector,
    /// A worker died since the last checkpoint, and its fresh layers are still served.
    crashed: bool,
    trace: Vec<String>,
}

impl Installation {
    async fn new(view: &View) -> Self {
        let harness = Harness::new().await.unwrap();
        let sql = view.sql("v");
        let mut definitions: Vec<(DefinitionKind, &str, &str)> =
            NAMES.iter().zip(STREAMS).map(|(name, sql)| (DefinitionKind::Stream, *name, sql)).collect();
        definitions.extend(STAGING.iter().map(|(name, sql)| (DefinitionKind::View, *name, *sql)));
        definitions.push((DefinitionKind::View, "v", &sql));
        harness.define(&definitions).await.unwrap();
        for name in NAMES {
            harness.log.create_topic(name, PARTITIONS).await.unwrap();
        }
        let fresh = Fresh::default();
        let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
        let (accepted, known, ends, trace) = Default::default();
        let other_process = LocalCopies::default();
        Self { harness, other_process, fresh, node, versions: vec![(sql, view.group.len())], accepted, known, ends, crashed: false, trace }
    }

    async fn take(&mut self, step: &Step) {
        self.trace.push(match step {
            Step::Append(stream, events) => {
                let events: Vec<String> = events.iter().map(json).collect();
                format!("append to {} {}", NAMES[*stream], events.join(" "))
            }
            Step::Redefine(view) => format!("redefine {}", view.sql("v")),
            other => format!("{other:?}"),
        });
        match step {
            Step::Append(stream, events) => self.append(*stream, events).await,
            Step::Checkpoint => self.work(true).await,
            Step::Crash => self.work(false).await,
            Step::Run => self.run(RunTime::EventClock).await,
            Step::RunAhead(by) => self.run(RunTime::At(BASE + by)).await,
            Step::Recompute => self.recompute().await,
            Step::Replay(from) => self.replay(*from).await,
            Step::OtherProcess => std::mem::swap(&mut self.harness.copies, &mut self.other_process),
            Step::Compact => self.compact().await,
            Step::RestartNode => self.node = self.harness.node(ServingClock::Event, Some(self.fresh.clone())).await.unwrap(),
            Step::AsOf(before) => return self.check_scan(Some(BASE - before)).await,
            Step::Redefine(view) => self.redefine(view).await,
            Step::RollBack => self.roll_back().await,
        }
        self.check().await;
    }

    async fn run(&mut self, t: RunTime) {
        self.harness.batch_within("v", t, LITTLE_MEMORY_BYTES).await.unwrap_or_else(|error| self.fail(&error));
        self.node.refresh().await.unwrap();
    }

    async fn replay(&mut self, from: ReplayFrom) {
        let run = self.harness.replay("v", RunTime::EventClock, from).await.unwrap_or_else(|error| self.fail(&error));
        self.expect_nothing_differs(&run);
        self.node.refresh().await.unwrap();
    }

    async fn recompute(&mut self) {
        let run = self.harness.recompute("v", RunTime::EventClock).await.unwrap_or_else(|error| self.fail(&error));
        self.expect_nothing_differs(&run);
        self.node.refresh().await.unwrap();
    }

    async fn compact(&mut self) {
        self.harness.collect().await.unwrap_or_else(|error| self.fail(&error));
        let compacted = self.harness.compact().await.unwrap_or_else(|error| self.fail(&error));
        self.trace.push(format!("compacted {} checkpoints", compacted.checkpoints));
        // Files of superseded snapshots may be gone, so the node has to load the current state.
        self.node.refresh().await.unwrap();
    }

    /// Where it was compared, incremental runs had kept the edges that this run computed.
    fn expect_nothing_differs(&self, run: &RunRecord) {
        if let Some(comparison) = run.comparison.as_ref().filter(|comparison| comparison.found() != Some(0)) {
            self.fail(&format!("{comparison:?}"));
        }
    }

    async fn append(&mut self, stream: usize, events: &[Event]) {
        let record = |event: &Event| NewRecord {
            key: event.k.map(Bytes::from),
            value: Some(Bytes::from(json(event))),
            headers: Vec::new(),
            partition_by: Some(Bytes::from(event.id.to_string())),
        };
        let places = self.harness.log.append(NAMES[stream], events.iter().map(record).collect()).await.unwrap();
        for ((partition, offset), event) in places.into_iter().zip(events) {
            self.ends.set(PartitionId::new(NAMES[stream], partition), offset.next());
            if self.known.insert((stream, partition, event.id)) {
                self.accepted.push(Placed { stream, partition, offset: offset.0, event: event.clone() });
            }
        }
    }

    /// Starts a worker that reads to the log's end and then commits or dies.
    async fn work(&mut self, commits: bool) {
        let worker = self.harness.worker("one", Duration::from_secs(3_600), Some(self.fresh.clone()));
        let began = Instant::now();
        while !self.node.read_view().unwrap().vector.covers(&self.ends) {
            if began.elapsed() > Duration::from_secs(120) || worker.task.is_finished() {
                self.fail(&"the worker does not get on");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.check().await;
        if !commits {
            worker.task.abort();
            let _ = worker.task.await;
            self.crashed = true;
            return;
        }
        // The node may still serve the layers of a dead worker; then this worker has yet to read them.
        tokio::time::sleep(Duration::from_millis(if self.crashed { 300 } else { 0 })).await;
        worker.finish().await.unwrap_or_else(|error| self.fail(&error));
        self.node.refresh().await.unwrap();
        if !self.node.loaded().unwrap().vector.covers(&self.ends) {
            assert!(self.crashed, "the worker did not commit what it served");
            return Box::pin(self.work(true)).await;
        }
        self.crashed = false;
    }

    async fn redefine(&mut self, view: &View) {
        self.versions.push((view.sql("v"), view.group.len()));
        let (version, sql) = (self.versions.len() as u32, view.sql("v"));
        let status = DefinitionStatus::Building;
        let record = DefinitionRecord {
            kind: DefinitionKind::View,
            name: "v".into(),
            version,
            sql,
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
        let version = self.harness.roll_back("v").await.unwrap_or_else(|error| self.fail(&error));
        self.trace.push(version.map_or("no version is kept".to_owned(), |version| format!("back to version {version}")));
        self.node.refresh().await.unwrap();
    }

    fn about(&self) -> String {
        let versions: Vec<&str> = self.versions.iter().map(|(sql, _)| sql.as_str()).collect();
        format!("{}\n{}", versions.join("\n"), self.trace.join("\n"))
    }

    fn fail(&self, error: &dyn std::fmt::Display) -> ! {
        panic!("{error}\n{}", self.about())
    }
}

fn json(event: &Event) -> String {
    let text = |value: Option<&str>| value.map_or("null".to_owned(), |value| serde_json::to_string(value).unwrap());
    let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".into());
    format!(
        r#"{{"id":"{}","ts":"{}","k":{},"j":{},"u":{},"w":{},"x":{},"d":{},"f":{},"o":{}}}"#,
        event.id,
        format_timestamp(event.ts),
        text(event.k),
        or_null(event.j.map(|j| j.to_string())),
        text(event.u),
        or_null(event.w.map(|w| w.to_string())),
        or_null(event.x.map(|x| x.to_string())),
        or_null(event.d.map(|d| format!("\"{}\"", hundredths(d.into())))),
        or_null(event.f.map(|f| format!("{f:?}"))),
        or_null(event.o.map(|o| o.to_string())),
    )
}

pub async fn holds(view: &View, steps: &[Step]) {
    let mut installation = Installation::new(view).await;
    for step in steps {
        installation.take(step).await;
    }
    for step in [Step::Checkpoint, Step::Run, Step::Compact, Step::Recompute, Step::RestartNode, Step::AsOf(HOUR)] {
        installation.take(&step).await;
    }
    installation.check_ledger().await;
}

/// Tasks that are still running get a second to end.
fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(case);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn cases() -> u32 {
    std::env::var("BASESTREAM_LAW_LAYER_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_the_real_layers_serve_of_a_linked_view_equals_the_plain_join(view in view(), steps in prop::collection::vec(step(), 1..9)) {
        run(holds(&view, &steps));
    }
}

#[test]
fn an_inequality_that_is_said_twice_is_one() {
    let (source, apart) = (Source { stream: 0, through: Through::Nothing }, Condition::Apart(Of::J, Of::J));
    let aggregate = Aggregate::CountDistinct(Side::L, Of::K);
    let view = View {
        windows: Vec::new(),
        c: source,
        l: source,
        swapped: false,
        join: Join { keys: &[(Of::U, Of::U)], spelled: Spelled::On },
        group: &[Of::U],
        wheres: vec![apart, apart],
        columns: vec![Column { aggregate, shape: Shape::Bare, filter: vec![apart], c_within: Some(("30d", None)), l_within: None }],
    };
    let event =
        |id: u16| Event { id, ts: BASE, k: Some("b"), j: Some(i32::from(id)), u: Some("c"), w: None, x: None, d: None, f: None, o: None };
    run(holds(&view, &[Step::Append(0, vec![event(1), event(2)])]));
}
