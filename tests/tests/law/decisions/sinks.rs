//! The law for sinks: the topic of a sink has one record for each accepted event that passes its WHERE, in the order of
//! the event's partition. Its features are the plain SELECT over what the event sees: of its partition the events
//! before it (and itself, by `inclusive`), of the others those before the record's `_position`, at the record's
//! `_as_of`.
//!
//! The rows of a view that is keyed by what partitions the stream follow from the event's partition alone.

use std::collections::BTreeMap;
use std::time::Duration;

use basestream_tests::{Harness, records_of, until};
use batch::RunTime;
use catalog::DefinitionKind;
use committed::registry::{LiveView, Registry};
use engine::events::parse_timestamp;
use engine::plan::ColumnKind;
use event_sinks::source_of;
use proptest::prelude::*;
use serde_json::{Value, json};
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};

use super::process::Process;
use super::{AcceptedEvent, Appended, Journal, appended};
use crate::compare::{Inputs, same_json};
use crate::grammar::{fails, filter, passes, view_grouped_by};
use crate::layers::{Row, STREAM, cases, expected, run, text};

/// Their topics have the same names.
const SINKS: [(&str, &str); 2] = [("after", "inclusive"), ("before", "exclusive")];

/// The aggregates of a linked view.
const OF_PAIRS: [&str; 6] = [
    "count(*)",
    "count(DISTINCT far.x)",
    "count(DISTINCT far.k) FILTER (WHERE far.k <> near.k)",
    "array_agg(DISTINCT far.x ORDER BY far.x)",
    "min(far.x)",
    "sum(far.x)",
];

/// What is applied.
#[derive(Debug, Clone)]
struct Project {
    partitions: u32,
    checkpoint_interval: Duration,
    /// A view that is keyed by what partitions the stream.
    by_partition: String,
    /// One that is not.
    across: Option<String>,
    /// One that joins the events to one another.
    linked: Option<String>,
    filter: &'static str,
}

#[derive(Debug, Clone)]
enum SinkStep {
    Append(Vec<Appended>),
    /// Until all records are out.
    Wait,
    /// The worker commits, and another one goes on.
    Restart,
    /// The process dies after this many milliseconds.
    Kill(u64),
    /// Batch runs, from what is committed, while nothing else runs.
    Run,
}

/// What each case ends with: what is out is not committed yet.
const LAST: [SinkStep; 5] = [SinkStep::Wait, SinkStep::Kill(0), SinkStep::Wait, SinkStep::Run, SinkStep::Wait];

fn any_project() -> impl Strategy<Value = Project> {
    let interval = prop::sample::select(vec![100, 400, 3_600_000]).prop_map(Duration::from_millis);
    let across = prop::option::of(view_grouped_by(&["b", "j", "upper(k)"]));
    let linked = prop::option::of(linked_view());
    (1u32..4, interval, view_grouped_by(&["k", "k, j"]), across, linked, filter()).prop_map(
        |(partitions, checkpoint_interval, by_partition, across, linked, filter)| {
            let across = across.map(|sql| sql.replacen("CREATE VIEW v ", "CREATE VIEW w ", 1));
            Project { partitions, checkpoint_interval, by_partition, across, linked, filter }
        },
    )
}

fn linked_view() -> impl Strategy<Value = String> {
    let aggregates = prop::sample::subsequence(OF_PAIRS.to_vec(), 1..4);
    let windows = prop::sample::select(vec!["", "WITH (windows = '1h') ", "WITH (windows = '1d, 30d') "]);
    (aggregates, windows, prop::sample::select(vec!["j", "u"])).prop_map(|(aggregates, windows, by)| {
        let columns: String = aggregates.iter().enumerate().map(|(i, aggregate)| format!(", {aggregate} AS c{i}")).collect();
        format!("CREATE VIEW l {windows}AS SELECT near.k AS key0{columns} FROM s near JOIN s far ON near.{by} = far.{by} GROUP BY near.k")
    })
}

fn step() -> impl Strategy<Value = SinkStep> {
    prop_oneof![
        6 => prop::collection::vec(appended(), 1..10).prop_map(SinkStep::Append),
        3 => Just(SinkStep::Wait),
        1 => Just(SinkStep::Restart),
        2 => (0u64..150).prop_map(SinkStep::Kill),
        1 => Just(SinkStep::Run),
    ]
}

/// A view that the sinks join.
struct FeatureView {
    live: LiveView,
    keys: Vec<String>,
    /// The names of its values, and whether each is a count that nothing is computed from.
    values: Vec<(String, bool)>,
}

impl FeatureView {
    fn new(live: LiveView) -> FeatureView {
        let (_, keys) = live.definition.sql.rsplit_once(" GROUP BY ").unwrap();
        let keys = keys.split(", ").map(|key| key.trim_start_matches("near.").to_owned()).collect();
        let value = |column: &engine::plan::OutputColumn| match &column.kind {
            ColumnKind::Value(value) => Some((column.field.name().clone(), ["count(*)", "count(x)"].contains(&value.sql.as_str()))),
            _ => None,
        };
        let values = live.plan.columns.iter().filter_map(value).collect();
        FeatureView { live, keys, values }
    }

    /// Its part of the FROM.
    fn join(&self) -> String {
        let name = &self.live.name;
        let conditions: Vec<String> = self.keys.iter().enumerate().map(|(key, expr)| format!("{name}.key{key} = {expr}")).collect();
        format!("LEFT JOIN {name} ON {}", conditions.join(" AND "))
    }

    /// `None` if a part of the key is NULL, to which no row is equal.
    fn key_of(&self, row: &Row) -> Option<Vec<Value>> {
        let part = |expr: &String| match expr.as_str() {
            "k" => text(row.k).map(Value::from),
            "upper(k)" => text(row.k).map(|k| Value::from(k.to_uppercase())),
            "j" => row.j.map(Value::from),
            "b" => row.b.map(Value::from),
            other => panic!("no key is {other}"),
        };
        self.keys.iter().map(part).collect()
    }

    /// The row that the plain SELECT over these events has for the key of this one.
    async fn plain_row(&self, event: &Row, seen: &[&AcceptedEvent], t: Micros) -> Option<Value> {
        let key = self.key_of(event)?;
        let is_linked = self.live.plan.links().is_some();
        let counts = |row: &Row| is_linked || self.key_of(row).as_ref() == Some(&key) && !fails(&self.live.definition.sql, &row.event());
        let counted: Vec<&AcceptedEvent> = seen.iter().copied().filter(|(_, _, row)| counts(row)).collect();
        if counted.is_empty() {
            return None;
        }
        let [batches, _] = expected(&self.live, &counted, t).await;
        let rows = batches.iter().flat_map(|batch| serving::json::rows(batch).unwrap());
        let rows = rows.map(|row| serde_json::from_str::<Value>(row.get()).unwrap());
        let of_key: Vec<Value> = rows.filter(|row| !is_linked || row["key0"] == key[0]).collect();
        assert!(of_key.len() <= 1, "{of_key:?} are of one key");
        of_key.into_iter().next()
    }
}

struct SinkCase {
    harness: Harness,
    project: Project,
    views: Vec<FeatureView>,
    journal: Journal,
    process: Option<Process>,
    /// Whether a batch run has published a snapshot, for whatever time.
    has_run: bool,
    trace: Vec<String>,
}

impl SinkCase {
    async fn new(project: &Project) -> SinkCase {
        let harness = Harness::new().await.unwrap();
        harness.log.create_topic("s", project.partitions).await.unwrap();
        let mut definitions = vec![(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, "v", project.by_partition.as_str())];
        definitions.extend(project.across.as_deref().map(|sql| (DefinitionKind::View, "w", sql)));
        definitions.extend(project.linked.as_deref().map(|sql| (DefinitionKind::View, "l", sql)));
        harness.define(&definitions).await.unwrap();
        let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
        let views: Vec<FeatureView> = registry.views.iter().map(|live| FeatureView::new(live.clone())).collect();
        for (name, features) in SINKS {
            harness.log.create_topic(name, 1).await.unwrap();
            let sql = sink(name, features, &views, project.filter);
            harness.define(&[(DefinitionKind::Sink, name, sql.as_str())]).await.unwrap();
        }
        let process = Some(Process::start(&harness, project.checkpoint_interval).await);
        let (journal, trace) = Default::default();
        SinkCase { harness, project: project.clone(), views, journal, process, has_run: false, trace }
    }

    async fn take(&mut self, step: &SinkStep) {
        self.trace.push(match step {
            SinkStep::Append(records) => format!("append {}", records.len()),
            other => format!("{other:?}"),
        });
        match step {
            SinkStep::Append(records) => self.journal.append(&self.harness, records).await,
            SinkStep::Wait => self.until_put_out().await,
            SinkStep::Restart => {
                self.process.take().unwrap().finish().await;
                self.start().await;
            }
            SinkStep::Kill(after) => {
                tokio::time::sleep(Duration::from_millis(*after)).await;
                self.process.take().unwrap().kill().await;
                self.start().await;
            }
            SinkStep::Run => {
                self.process.take().unwrap().finish().await;
                for view in &self.views {
                    self.harness.batch(&view.live.name, RunTime::EventClock).await.unwrap();
                }
                self.has_run = true;
                self.start().await;
            }
        }
    }

    async fn start(&mut self) {
        self.process = Some(Process::start(&self.harness, self.project.checkpoint_interval).await);
    }

    async fn until_put_out(&self) {
        let due = self.due().count();
        until("the records of sinks", async || {
            assert!(!self.process.as_ref().unwrap().has_ended(), "the worker ended: {:?}", self.trace);
            for (name, _) in SINKS {
                if records_of(&*self.harness.log, name).await.unwrap().len() < due {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// The events that have records.
    fn due(&self) -> impl Iterator<Item = &AcceptedEvent> {
        let filter = self.project.filter;
        self.journal.accepted.iter().filter(move |(_, _, row)| passes(filter, &row.event()))
    }

    async fn finish(mut self) {
        self.process.take().unwrap().finish().await;
        for (name, features) in SINKS {
            let mut found = self.put_out(name).await;
            for event in self.due() {
                let record = found.remove(&(event.0, event.1));
                let record = record.unwrap_or_else(|| panic!("{name} has no record of {event:?}\n{}", self.about()));
                self.check(event, features == "inclusive", &record).await;
            }
            assert!(found.is_empty(), "{name} has records of what is no event or does not pass: {found:?}\n{}", self.about());
        }
    }

    /// The records of a sink by event: one of each, those of a partition in its order.
    async fn put_out(&self, name: &str) -> BTreeMap<(i32, i64), Value> {
        let mut found = BTreeMap::new();
        let mut last: BTreeMap<i32, i64> = BTreeMap::new();
        for (_, record) in records_of(&*self.harness.log, name).await.unwrap() {
            let (source, offset) = source_of(&record.headers).unwrap();
            let before = last.insert(source.partition, offset.0);
            let place = format!("{}/{offset}", source.partition);
            assert!(before.is_none_or(|before| before < offset.0), "{name} has {place} after {before:?}\n{}", self.about());
            found.insert((source.partition, offset.0), serde_json::from_slice(record.value.as_deref().unwrap()).unwrap());
        }
        found
    }

    async fn check(&self, event: &AcceptedEvent, is_inclusive: bool, record: &Value) {
        let (partition, offset, row) = event;
        assert_eq!(record["id"], json!(row.id.to_string()), "{event:?}: {record}\n{}", self.about());
        let position: Vector = record["_position"].as_str().unwrap().parse().unwrap();
        let is_before_position = |of: &AcceptedEvent| of.1 < position.get(&PartitionId::new("s", of.0)).0;
        let t = parse_timestamp(record["_as_of"].as_str().unwrap()).unwrap();
        self.check_time(event, t, self.newest(is_before_position));
        let is_seen = |of: &&AcceptedEvent| {
            let of: &AcceptedEvent = of;
            match of.0 == *partition {
                true => of.1 < *offset || (is_inclusive && of.1 == *offset),
                false => is_before_position(of),
            }
        };
        let seen: Vec<&AcceptedEvent> = self.journal.accepted.iter().filter(is_seen).collect();
        let inputs = Inputs::from_rows(seen.iter().map(|(_, _, row)| (row.x, row.f)));
        for view in &self.views {
            let expected = view.plain_row(row, &seen, t).await;
            for (column, is_count) in &view.values {
                let found = &record[format!("{}_{column}", view.live.name)];
                let is_right = match &expected {
                    Some(expected) => same_json(found, &expected[column], inputs.scale_of(&view.live.plan, column)),
                    None => is_of_nothing(found, *is_count),
                };
                let features = if is_inclusive { "inclusive" } else { "exclusive" };
                assert!(is_right, "{column} of {event:?} is {found}, {features}, plain: {expected:?}\n{}", self.about());
            }
        }
    }

    /// The time is the greatest event time of the partition up to the event. If a snapshot was made for a later time,
    /// it is the greatest of what is read.
    fn check_time(&self, event: &AcceptedEvent, t: Micros, newest_read: Option<Micros>) {
        let own = self.newest(|of| of.0 == event.0 && of.1 <= event.1);
        let is_later = self.has_run && Some(t) == newest_read.max(own);
        assert!(Some(t) == own || is_later, "{event:?} is of the time {t}: expected {own:?}\n{}", self.about());
    }

    /// The greatest time of such events.
    fn newest(&self, is_such: impl Fn(&AcceptedEvent) -> bool) -> Option<Micros> {
        self.journal.accepted.iter().filter(|event| is_such(event)).map(|(_, _, row)| row.ts).max()
    }

    fn about(&self) -> String {
        format!("{:?}\n{}", self.project, self.trace.join("\n"))
    }
}

fn sink(name: &str, features: &str, views: &[FeatureView], filter: &str) -> String {
    let values = views.iter().flat_map(|view| view.values.iter().map(move |(value, _)| (&view.live.name, value)));
    let columns: String = values.map(|(view, value)| format!("{view}.{value} AS {view}_{value}, ")).collect();
    let joins: Vec<String> = views.iter().map(FeatureView::join).collect();
    format!(
        "CREATE SINK {name} WITH (topic = '{name}', features = '{features}') AS
        SELECT e.id, {columns}_position, _as_of FROM s e {} {filter}",
        joins.join(" ")
    )
}

/// A value of a row that does not exist: 0 or NULL, or what an aggregate answers over no events.
fn is_of_nothing(value: &Value, is_count: bool) -> bool {
    match value {
        Value::Null => !is_count,
        Value::Bool(value) => !is_count && !value,
        Value::Array(values) => values.iter().all(|value| is_of_nothing(value, is_count)),
        value => *value == json!(0),
    }
}

async fn holds(project: &Project, steps: &[SinkStep]) {
    let mut case = SinkCase::new(project).await;
    for step in steps.iter().chain(&LAST) {
        case.take(step).await;
    }
    case.finish().await;
}

proptest! {
    // Each event asks for one plain SELECT by view and sink: half as many cases as of `layers`.
    #![proptest_config(ProptestConfig { cases: cases().div_ceil(2), max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn each_accepted_event_has_one_record_with_the_plain_select_over_what_it_sees(
        project in any_project(),
        steps in prop::collection::vec(step(), 2..9),
    ) {
        run(holds(&project, &steps));
    }
}
