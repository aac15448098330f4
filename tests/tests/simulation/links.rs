//! The answers of the simulation's linked views: each layer's positions become edges, and the product walks them. The
//! result is compared with the pairs that the rules alone derive from the log's events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt8Array};
use arrow::util::display::array_value_to_string;
use catalog::{CatalogState, DefinitionStatus};
use committed::registry::{LiveView, Registry};
use definitions::{Definitions, parse};
use engine::fresh::FreshLayer;
use engine::functions::Functions;
use engine::plan::{Planned, Planner};
use engine::states::{KeyCodec, SortedRun, StateRows};
use serving::{CheckpointIds, LayerRun, Loaded, LoadedView, ReadView, ServingClock, StateSource, scan};
use tokio::sync::OnceCell;
use types::Result;
use types::vector::Vector;

use crate::log::{Event, STREAMS, SimLog, definition};
use crate::views::{VIEWS, link_of};
use crate::world::{Position, Positions};

static PLANNED: OnceCell<BTreeMap<&str, LiveView>> = OnceCell::const_new();

/// A row: the pairs of a device, and the ids of their far events.
type Row = (String, i64, String);

/// Plans the linked views, once in this process.
pub async fn plan_links() {
    PLANNED.get_or_init(planned).await;
}

async fn planned() -> BTreeMap<&'static str, LiveView> {
    let streams: Vec<_> = STREAMS.iter().map(|(stream, _)| definition(stream)).collect();
    let mut views = BTreeMap::new();
    for (view, (sql, _)) in VIEWS.into_iter().filter_map(|view| Some((view, link_of(view)?))) {
        let definition = parse::parse_view(sql).unwrap();
        let project = Definitions { streams: streams.clone(), views: vec![definition.clone()], ..Definitions::default() };
        let planned = Planner::new(&project, Functions::standard()).plan(&definition).await;
        let Ok(Planned::Stateful(plan)) = planned else { panic!("{sql} is not planned") };
        let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
        let (name, status) = (view.into(), DefinitionStatus::Active);
        views.insert(view, LiveView { name, version: 1, status, definition: Arc::new(definition), plan, codec });
    }
    views
}

/// The product's result of walking these layers: those of snapshot and checkpoints, and the fresh ones.
pub fn walked(log: &SimLog, view: &str, kept: &[&Positions], fresh: &[&Positions]) -> Result<Vec<Row>> {
    let live = PLANNED.get().and_then(|planned| planned.get(view)).unwrap();
    let version = live.view_version();
    let mut layers = Vec::new();
    for positions in kept {
        let run = Arc::new(SortedRun::in_memory(edges(log, live, positions)?));
        layers.push(LayerRun { checkpoints: CheckpointIds::default(), run, failures: Default::default() });
    }
    let mut on_top = Vec::new();
    for positions in fresh {
        let states = BTreeMap::from([(version.clone(), Arc::new(edges(log, live, positions)?))]);
        on_top.push(Arc::new(FreshLayer {
            start: Vector::new(),
            end: Vector::new(),
            states,
            failures: BTreeMap::new(),
            max_event_time: BTreeMap::new(),
        }));
    }
    let loaded = LoadedView::new(live.clone(), None, Vector::new(), None, layers);
    let read_view = ReadView {
        loaded: Arc::new(Loaded {
            state: Arc::new(CatalogState::default()),
            registry: Arc::new(Registry::default()),
            vector: Vector::new(),
            views: BTreeMap::new(),
            building: Default::default(),
            failed: BTreeMap::new(),
        }),
        versions: BTreeMap::new(),
        fresh: on_top,
        vector: Vector::new(),
        now: 0,
        clock: ServingClock::Event,
        complete_to: Arc::default(),
        is_kept: false,
    };
    let wanted: Vec<usize> = (0..live.plan.columns.len()).collect();
    rows_of(&scan(live, &StateSource::Layers { read_view: &read_view, view: &loaded }, 0, 0, &wanted)?.0)
}

/// The edges of these positions' events, each as a separate state row: what Partial computes from one event.
fn edges(log: &SimLog, live: &LiveView, positions: &[Position]) -> Result<StateRows> {
    let far_stream = link_of(&live.name).map_or("", |(_, far)| far);
    let mut edges: Vec<(bool, &Event)> = Vec::new();
    for position in positions {
        let event = log.event(position).unwrap();
        edges.extend((&*position.partition.stream == "a").then_some((false, event)));
        edges.extend((&*position.partition.stream == far_stream).then_some((true, event)));
    }
    let text = |of: &dyn Fn(&(bool, &Event)) -> Option<String>| -> ArrayRef { Arc::new(edges.iter().map(of).collect::<StringArray>()) };
    let mut columns: Vec<ArrayRef> = Vec::new();
    for key in &live.plan.keys {
        columns.push(match key.name().as_str() {
            "far_side" => Arc::new(edges.iter().map(|(far, _)| Some(*far)).collect::<BooleanArray>()),
            "device" => text(&|(far, event)| (!far).then(|| event.device.clone())),
            "via_user_id" => text(&|(_, event)| Some(event.user.clone())),
            "near_id" => text(&|(far, event)| (!far).then(|| event.id.clone())),
            "far_id" => text(&|(far, event)| far.then(|| event.id.clone())),
            other => panic!("an edge has no {other}"),
        });
    }
    let time = |of: &dyn Fn(&Event) -> i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_iter_values(edges.iter().map(|(_, event)| of(event))).with_timezone("UTC"))
    };
    columns.push(Arc::new(UInt8Array::from_value(live.plan.finest().code(), edges.len())));
    columns.push(time(&|event| live.plan.finest().floor(event.time)));
    columns.push(Arc::new(Int64Array::from_value(1, edges.len())));
    columns.push(time(&|event| event.time));
    StateRows::sort(&live.plan, &live.codec, &[RecordBatch::try_new(live.plan.state_schema().clone(), columns)?])
}

fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>> {
    let text = |column: usize, row: usize| array_value_to_string(batch.column(column), row);
    let mut rows = Vec::new();
    for row in 0..batch.num_rows() {
        rows.push((text(0, row)?, text(1, row)?.parse().unwrap_or(-1), text(2, row)?));
    }
    rows.sort();
    Ok(rows)
}

/// The expected rows: every event of `a` with every matching one of the far side.
pub fn expected(log: &SimLog, view: &str, vector: &Vector) -> Vec<Row> {
    let (_, far_stream) = link_of(view).unwrap();
    let (near, far) = (log.said_before("a", vector), log.said_before(far_stream, vector));
    let mut devices: BTreeMap<&str, (i64, BTreeSet<&str>)> = BTreeMap::new();
    for near in near {
        for far in far.iter().filter(|far| far.user == near.user && (far_stream != "a" || far.id != near.id)) {
            let (pairs, ends) = devices.entry(&near.device).or_default();
            *pairs += 1;
            ends.insert(&far.id);
        }
    }
    let row = |(device, (pairs, ends)): (&str, (i64, BTreeSet<&str>))| {
        (device.to_owned(), pairs, format!("[{}]", ends.into_iter().collect::<Vec<_>>().join(", ")))
    };
    devices.into_iter().map(row).collect()
}
