use std::sync::{Arc, LazyLock};

use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::prelude::SessionContext;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;
use crate::events::plan_schema;
use crate::functions::Functions;
use crate::plan::{Planned, Planner, ViewPlan, planning_session};
use crate::states::nodes::NodeCodec;
use crate::states::sorted::{SortedFileWriter, map_file};
use crate::states::{Partial, Probe, sort_and_merge};
use definitions::{Definitions, StreamDefinition, parse};
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::tiles::Micros;

const NOW: Micros = 1_772_452_800_000_000;
const HOUR: Micros = 3_600_000_000;
/// Users and devices have the same names. The first of these is a hub.
const NODES: usize = 6;
/// A chunk has fewer rows than the hub.
const MOST_OF_A_CHUNK: usize = NODES - 1;

const CREATED: &str = "CREATE STREAM created (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')";
const LOGIN: &str = "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')";

/// Of two streams; of one whose group key is its join key, with a row an edge; likewise of two keys, with a row an edge
/// and tile.
const VIEWS: [&str; 3] = [
    "CREATE VIEW links WITH (windows = '30d') AS SELECT c.device, count(DISTINCT l.device) AS devices, count(*) AS pairs \
     FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device",
    "CREATE VIEW links WITH (windows = '30d') AS SELECT a.device, count(DISTINCT b.user_id) AS users \
     FROM created a JOIN created b ON a.device = b.device GROUP BY a.device",
    "CREATE VIEW links WITH (windows = '30d') AS SELECT a.user_id, a.device, count(DISTINCT b.id) AS ids, count(*) AS pairs \
     FROM created a JOIN created b ON a.user_id = b.user_id AND a.device = b.device GROUP BY a.user_id, a.device",
];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static SESSION: LazyLock<SessionContext> = LazyLock::new(|| planning_session(&Functions::standard()).unwrap());
static PLANS: LazyLock<Vec<Arc<ViewPlan>>> = LazyLock::new(|| VIEWS.into_iter().map(planned).collect());

fn planned(view: &str) -> Arc<ViewPlan> {
    let view = parse::parse_view(view).unwrap();
    let streams = vec![parse::parse_stream(CREATED).unwrap(), parse::parse_stream(LOGIN).unwrap()];
    let project = Definitions { streams, views: vec![view.clone()], ..Definitions::default() };
    let planner = Planner::new(&project, Functions::standard());
    let Planned::Stateful(plan) = RUNTIME.block_on(planner.plan(&view)).unwrap() else { panic!("inlined") };
    plan
}

/// A user, a device, and how many hours ago.
type Event = (Option<usize>, Option<usize>, i64);

fn event() -> impl Strategy<Value = Event> {
    let node = || prop::option::weighted(0.9, 0..NODES);
    (node(), node(), 0i64..200)
}

/// Every user on the first device, and the first of them there again and again.
fn hub() -> impl Iterator<Item = Event> {
    (0..NODES).map(|user| (Some(user), Some(0), 0)).chain(std::iter::repeat_n((Some(0), Some(0), 0), NODES))
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn batch(stream: &StreamDefinition, events: &[Event]) -> RecordBatch {
    let times = || TimestampMicrosecondArray::from_iter_values(events.iter().map(|(_, _, hours)| NOW - 1 - hours * HOUR));
    let schema = plan_schema(stream);
    let column = |column: &str| -> ArrayRef {
        match column {
            "id" => Arc::new(StringArray::from_iter_values((0..events.len()).map(|at| at.to_string()))),
            "ts" | EVENT_TIME => Arc::new(times().with_timezone("UTC")),
            "user_id" => Arc::new(events.iter().map(|(user, _, _)| user.map(name)).collect::<StringArray>()),
            "device" => Arc::new(events.iter().map(|(_, device, _)| device.map(name)).collect::<StringArray>()),
            SOURCE => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&*stream.name, events.len()))),
            PARTITION => Arc::new(Int32Array::from_value(0, events.len())),
            OFFSET => Arc::new(Int64Array::from_iter_values(0..events.len() as i64)),
            other => panic!("unknown column {other}"),
        }
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| column(field.name())).collect()).unwrap()
}

fn edges(plan: &Arc<ViewPlan>, codec: &KeyCodec, created: &[Event], login: &[Event]) -> StateRows {
    let states = RUNTIME.block_on(async {
        let mut partial = Partial::new(plan.clone(), &SESSION).unwrap();
        let mut states = Vec::new();
        for stream in &plan.streams {
            let events = if &*stream.name == "created" { created } else { login };
            states.extend(partial.states(&stream.name, &[batch(stream, events)]).await.unwrap());
        }
        states
    });
    sort_and_merge(plan, codec, &states).unwrap()
}

/// The rows in chunks of these sizes, again and again.
fn run(plan: &ViewPlan, rows: &StateRows, sizes: &[usize]) -> SortedRun {
    let file = tempfile::tempfile().unwrap();
    let mut writer = SortedFileWriter::to_file(file.try_clone().unwrap(), plan.state_schema()).unwrap();
    let (mut from, mut sizes) = (0, sizes.iter().cycle());
    while from < rows.len() {
        let to = (from + sizes.next().unwrap()).min(rows.len());
        writer.write(&rows.slice(from..to)).unwrap();
        from = to;
    }
    writer.finish().unwrap();
    map_file(&file).unwrap()
}

/// How the edges of every node begin that there may be, and of some that are never, each with what tells its bucket.
fn nodes(codec: &NodeCodec, links: &LinkPlan) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (groups, via) = (tuples(links.layout.groups.len()), tuples(links.layout.via.len()));
    let near = codec.near(&groups, groups[0].len()).unwrap();
    let near_places = codec.near_places(&groups, groups[0].len()).unwrap();
    let far = codec.far(&via, via[0].len()).unwrap();
    let near = near.iter().flatten().zip(near_places.iter().flatten());
    near.chain(far.iter().flatten().zip(far.iter().flatten())).map(|(prefix, place)| (prefix.to_vec(), place.to_vec())).collect()
}

/// All tuples of names, two that no event has and NULL among them: a column each.
fn tuples(columns: usize) -> Vec<ArrayRef> {
    let names: Vec<Option<String>> = (0..NODES + 2).map(|node| Some(name(node))).chain([None]).collect();
    let step = |column: usize| names.len().pow(column as u32);
    let value = |at: usize, column: usize| names[(at / step(column)) % names.len()].as_deref();
    let of = |column: usize| -> ArrayRef { Arc::new((0..step(columns)).map(|at| value(at, column)).collect::<StringArray>()) };
    (0..columns).map(of).collect()
}

/// The number of each chunk, and the rows.
type Found = Vec<(usize, Range<usize>)>;

fn numbered(run: &SortedRun, found: Vec<(&StateRows, Range<usize>)>) -> Found {
    let number = |chunk: &StateRows| run.chunks().iter().position(|known| std::ptr::eq(known, chunk)).unwrap();
    found.into_iter().map(|(chunk, rows)| (number(chunk), rows)).collect()
}

/// What is found of all nodes in one search: by halves at first, and by hash the second time.
fn found_together(run: &SortedRun, codec: &Arc<NodeCodec>, nodes: &[(Vec<u8>, Vec<u8>)]) -> Vec<Found> {
    let prefixes: Vec<Probe<'_>> = nodes.iter().map(|(prefix, _)| Probe::new(prefix)).collect();
    let search = || {
        let mut found = vec![Vec::new(); nodes.len()];
        run.find_nodes(codec, &prefixes, |node, chunk, rows| found[node].extend(numbered(run, vec![(chunk, rows)])));
        found
    };
    let (by_halves, by_hash) = (search(), search());
    assert_eq!(by_halves, by_hash);
    by_hash
}

/// What begins so, by looking at every row.
fn beginning(run: &SortedRun, prefix: &[u8]) -> Found {
    let mut found = Vec::new();
    for (number, chunk) in run.chunks().iter().enumerate() {
        let keys = chunk.keys().iter().flatten().enumerate();
        let rows: Vec<usize> = keys.filter(|(_, key)| key.starts_with(prefix)).map(|(row, _)| row).collect();
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            found.push((number, *first..last + 1));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_node_is_found_in_all_its_chunks_and_no_other(
        view in 0..VIEWS.len(),
        created in vec(event(), 0..40),
        login in vec(event(), 0..40),
        sizes in vec(1..=MOST_OF_A_CHUNK, 1..9),
    ) {
        let plan = &PLANS[view];
        let links = plan.links().unwrap();
        let codec = KeyCodec::for_plan(plan).unwrap();
        let created: Vec<Event> = hub().chain(created).collect();
        let run = run(plan, &edges(plan, &codec, &created, &login), &sizes);
        let mut index = NodeIndex::default();
        for chunk in run.chunks() {
            index.add(&codec, links, chunk).unwrap();
        }
        let (mut rows, mut most_chunks, mut absent) = (0, 0, 0);
        let nodes = nodes(codec.nodes().unwrap(), links);
        let together = found_together(&run, codec.nodes().unwrap(), &nodes);
        for ((prefix, place), together) in nodes.iter().zip(together) {
            let expected = beginning(&run, prefix);
            prop_assert_eq!(&together, &expected);
            prop_assert_eq!(&numbered(&run, run.find_prefix(prefix)), &expected);
            prop_assert_eq!(&numbered(&run, index.find(&run, prefix, bucket_hash(place))), &expected);
            rows += expected.iter().map(|(_, rows)| rows.len()).sum::<usize>();
            most_chunks = most_chunks.max(expected.len());
            absent += usize::from(expected.is_empty());
        }
        prop_assert_eq!(rows, run.rows(), "every row is of one of the nodes");
        prop_assert!(most_chunks > 1, "no node goes over several chunks");
        prop_assert!(absent > 1, "no node was asked for that is not there");
    }
}
