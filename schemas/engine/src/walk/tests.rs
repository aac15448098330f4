use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::events::plan_schema;
use crate::functions::Functions;
use crate::plan::{Planned, Planner, ViewPlan, planning_session};
use crate::states::{KeyCodec, Partial, sort_and_merge};
use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use definitions::{Definitions, StreamDefinition, parse};
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::tiles::{Micros, TimeRange};
use types::{Error, ErrorKind};

use super::Walked;
use super::edges::EdgeSet;
use super::{EdgeLayers, LayerRows, NodeProbe, PartChunk, Side, Walk};
use crate::states::sorted::SortedRun;

const NOW: Micros = 1_772_452_800_000_000;
const HUB: &str = "hub";

const CREATED: &str = "CREATE STREAM created (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')";
const LOGIN: &str = "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')";

fn view(columns: &str, options: &str) -> String {
    format!(
        "CREATE VIEW links WITH (windows = '30d'{options}) AS SELECT c.device, {columns} \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device"
    )
}

/// An event: its user and device, and when it was.
type Event = ((String, String), Micros);

fn events(stream: &StreamDefinition, links: impl Iterator<Item = Event>) -> RecordBatch {
    let (links, times): (Vec<(String, String)>, Vec<Micros>) = links.unzip();
    let (users, devices): (Vec<String>, Vec<String>) = links.into_iter().unzip();
    let count = users.len();
    let times = || TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC");
    let schema = plan_schema(stream);
    let column = |name: &str| -> ArrayRef {
        match name {
            "id" => Arc::new(StringArray::from_iter_values((0..count).map(|at| at.to_string()))),
            "ts" | EVENT_TIME => Arc::new(times()),
            "user_id" => Arc::new(StringArray::from_iter_values(&users)),
            "device" => Arc::new(StringArray::from_iter_values(&devices)),
            SOURCE => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&*stream.name, count))),
            PARTITION => Arc::new(Int32Array::from_value(0, count)),
            OFFSET => Arc::new(Int64Array::from_iter_values(0..count as i64)),
            other => panic!("unknown column {other}"),
        }
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| column(field.name())).collect()).unwrap()
}

pub(super) struct World {
    pub(super) plan: Arc<ViewPlan>,
    pub(super) codec: Arc<KeyCodec>,
    pub(super) run: SortedRun,
}

impl World {
    /// Events just before now.
    async fn seen_just_before(
        view_sql: &str,
        created: impl Iterator<Item = (String, String)>,
        login: impl Iterator<Item = (String, String)>,
    ) -> World {
        let just_before = || (0i64..).map(|at| NOW - 1 - at);
        World::at(view_sql, created.zip(just_before()), login.zip(just_before())).await
    }

    pub(super) async fn at(view_sql: &str, created: impl Iterator<Item = Event>, login: impl Iterator<Item = Event>) -> World {
        let streams = vec![parse::parse_stream(CREATED).unwrap(), parse::parse_stream(LOGIN).unwrap()];
        let view = parse::parse_view(view_sql).unwrap();
        let project = Definitions { streams: streams.clone(), views: vec![view.clone()], ..Definitions::default() };
        let Planned::Stateful(plan) = Planner::new(&project, Functions::standard()).plan(&view).await.unwrap() else { panic!("inlined") };
        let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
        let mut partial = Partial::new(plan.clone(), &planning_session(&Functions::standard()).unwrap()).unwrap();
        let mut states = partial.states("created", &[events(&streams[0], created)]).await.unwrap();
        states.extend(partial.states("login", &[events(&streams[1], login)]).await.unwrap());
        let rows = sort_and_merge(&plan, &codec, &states).unwrap();
        let run = SortedRun::in_memory(rows);
        World { plan, codec, run }
    }

    fn ask_all(&self, devices: &[String]) -> Walked {
        let wanted: Vec<usize> = (0..self.plan.columns.len()).collect();
        let links = self.plan.links().cloned().unwrap();
        let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(devices.to_vec()))];
        Walk::new(&self.plan, &self.codec, &links, &self.run, NOW).rows(&groups, devices.len(), &wanted).unwrap()
    }

    fn ask(&self, device: &str) -> Walked {
        self.ask_all(&[device.to_owned()])
    }

    /// The far end of each path, and the columns in which it counts.
    fn paths(&self, device: &str, most: usize, of: Option<&str>) -> Vec<(String, Vec<String>)> {
        self.paths_in(&self.run, device, most, of)
    }

    /// The same in these layers.
    fn paths_in(&self, layers: &dyn EdgeLayers, device: &str, most: usize, of: Option<&str>) -> Vec<(String, Vec<String>)> {
        let links = self.plan.links().cloned().unwrap();
        let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(vec![device]))];
        let of = of.map(|name| self.plan.columns.iter().position(|column| column.field.name() == name).unwrap());
        let paths = Walk::new(&self.plan, &self.codec, &links, layers, NOW).paths(&groups, most, of).unwrap();
        let ends = texts(paths.column_by_name("far_device").unwrap());
        let counted_in = paths.column_by_name("counted_in").unwrap().as_list::<i32>();
        ends.into_iter().enumerate().map(|(row, end)| (end, texts(&counted_in.value(row)))).collect()
    }

    fn near_edges(&self, device: &str) -> usize {
        let links = self.plan.links().cloned().unwrap();
        let walk = Walk::new(&self.plan, &self.codec, &links, &self.run, NOW);
        let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(vec![device]))];
        EdgeSet::gather(&walk, Side::Near, walk.find_keys(&groups, 1).unwrap().iter()).unwrap().len()
    }
}

fn texts(values: &ArrayRef) -> Vec<String> {
    values.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect()
}

fn number(answers: &Walked, column: usize) -> i64 {
    answers.rows.column(column).as_primitive::<Int64Type>().value(0)
}

fn user(at: usize) -> String {
    format!("u{at}")
}

fn close(found: i64, expected: f64, standard_errors: f64) {
    let relative = (found as f64 - expected).abs() / expected;
    assert!(relative < standard_errors, "found {found}, expected {expected} within {standard_errors}");
}

#[tokio::test]
async fn a_supernode_of_a_million_users_is_sampled_estimated_and_said_to_be() {
    const USERS: usize = 1_000_000;
    const KEPT: usize = 10_000;
    let columns = "count(DISTINCT l.device) AS devices, count(DISTINCT c.user_id) AS users";
    // Each user of the hub logs in from a device of the user's own, and from one that all share.
    let created = (0..USERS).map(|at| (user(at), HUB.to_owned()));
    let logins = (0..USERS).flat_map(|at| [(user(at), format!("d{at}")), (user(at), "shared".to_owned())]);
    let world = World::seen_just_before(&view(columns, ""), created, logins).await;
    assert_eq!(world.near_edges(HUB), KEPT, "what a walk holds is bounded by max_degree");
    let answers = world.ask(HUB);
    assert!(answers.estimated[0] && answers.found[0]);
    // The share of users followed has a standard error of 1/sqrt(k), 1 %.
    close(number(&answers, 1), USERS as f64 + 1.0, 0.05);
    close(number(&answers, 2), USERS as f64, 0.05);
}

#[tokio::test]
async fn a_neighbour_with_several_near_end_points_is_one_neighbour_of_the_sample() {
    const USERS: usize = 20_000;
    // Each user opened two accounts, under two ids; the ids are end points of the near side, so that each user has two
    // edges.
    let columns = "count(DISTINCT l.device) AS devices, count(DISTINCT c.id) AS accounts";
    let created = (0..2 * USERS).map(|at| (user(at % USERS), HUB.to_owned()));
    let logins = (0..USERS).map(|at| (user(at), format!("d{at}")));
    let answers = World::seen_just_before(&view(columns, ", max_degree = 1000"), created, logins).await.ask(HUB);
    assert!(answers.estimated[0]);
    close(number(&answers, 1), USERS as f64, 0.15);
    close(number(&answers, 2), 2.0 * USERS as f64, 0.15);
}

#[tokio::test]
async fn a_user_of_too_many_devices_thins_the_end_points_of_every_path_alike() {
    let columns = "count(DISTINCT l.device) AS devices, count(*) AS pairs";
    let created = (0..50).map(|at| (user(at), HUB.to_owned()));
    // One user has 5,000 devices, the others the first forty of them.
    let logins =
        (0..5_000).map(|at| (user(0), format!("d{at}"))).chain((1..50).flat_map(|of| (0..40).map(move |at| (user(of), format!("d{at}")))));
    let world = World::seen_just_before(&view(columns, ", max_degree = 1000"), created, logins).await;
    let answers = world.ask(HUB);
    assert!(answers.estimated[0]);
    close(number(&answers, 1), 5_000.0, 0.15);
    close(number(&answers, 2), 5_000.0 + 49.0 * 40.0, 0.3);
}

#[tokio::test]
async fn up_to_max_degree_nothing_is_estimated() {
    let columns = "count(DISTINCT l.device) AS devices, count(*) AS pairs";
    let created = || (0..100).map(|at| (user(at), HUB.to_owned()));
    let logins = || (0..100).flat_map(|of| (0..30).map(move |at| (user(of), format!("d{}", at * (of % 3 + 1)))));
    let world = World::seen_just_before(&view(columns, ", max_degree = 100"), created(), logins()).await;
    let answers = world.ask(HUB);
    let expected: std::collections::BTreeSet<usize> = (0..100).flat_map(|of| (0..30).map(move |at| at * (of % 3 + 1))).collect();
    assert!(!answers.estimated[0]);
    assert_eq!((number(&answers, 1), number(&answers, 2)), (expected.len() as i64, 3_000));
    // One fewer, and it is.
    let world = World::seen_just_before(&view(columns, ", max_degree = 99"), created(), logins()).await;
    assert!(world.ask(HUB).estimated[0]);
}

#[tokio::test]
async fn a_neighbour_that_left_every_window_does_not_count_towards_the_degree() {
    // 3,000 logins, one an hour back from now: 720 of them are within 30 days.
    let columns = "count(DISTINCT l.device) AS devices";
    let hours = |count: i64| (0..count).map(|at| NOW - 1 - at * 3_600_000_000);
    let logins = (0..3_000).map(|at| (user(0), format!("d{at}"))).zip(hours(3_000));
    let created = std::iter::once(((user(0), HUB.to_owned()), NOW - 1));
    let world = World::at(&view(columns, ", max_degree = 800"), created, logins).await;
    let answers = world.ask(HUB);
    assert!(!answers.estimated[0]);
    assert_eq!(number(&answers, 1), 720);
}

#[tokio::test]
async fn copies_by_doubling_are_what_adding_one_by_one_gives() {
    let columns = "count(*) AS pairs, count(DISTINCT l.device) AS devices";
    for times in [1usize, 2, 3, 7, 64, 100] {
        let created = (0..times).map(|_| (user(0), HUB.to_owned()));
        let logins = (0..5).map(|at| (user(0), format!("d{at}")));
        let answers = World::seen_just_before(&view(columns, ""), created, logins).await.ask(HUB);
        assert_eq!((number(&answers, 1), number(&answers, 2)), (times as i64 * 5, 5));
    }
}

#[tokio::test]
async fn many_keys_at_once_are_answered_as_one_by_one() {
    let columns = "count(DISTINCT l.device) AS devices, count(*) AS pairs";
    // More near edges than are held at once: 40 devices of 3,000 users each.
    let created = (0..40).flat_map(|device| (0..3_000).map(move |at| (user(at * (device + 1)), format!("d{device}"))));
    let logins = (0..9_000).map(|at| (user(at * 13), format!("d{}", at % 97)));
    let world = World::seen_just_before(&view(columns, ""), created, logins).await;
    let devices: Vec<String> = (0..40).map(|device| format!("d{device}")).collect();
    let all = world.ask_all(&devices);
    assert!(all.found.iter().any(|found| *found));
    for (row, device) in devices.iter().enumerate() {
        let one = world.ask(device);
        assert_eq!(all.rows.slice(row, 1), one.rows);
        assert_eq!(all.found[row], one.found[0]);
    }
}

#[tokio::test]
async fn a_walk_ends_between_two_batches_of_edges_when_it_is_asked_to() {
    // One key, whose far edges are more than are held at once.
    let created = (0..40).map(|at| (user(at), HUB.to_owned()));
    let logins = (0..40 * 9_000).map(|at| (user(at % 40), format!("d{at}")));
    let world = World::seen_just_before(&view("count(DISTINCT l.device) AS devices", ""), created, logins).await;
    let links = world.plan.links().cloned().unwrap();
    let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(vec![HUB]))];
    let asked = AtomicUsize::new(0);
    let cancel_check = || match asked.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Ok(()),
        _ => Err(Error::unavailable("nobody waits")),
    };
    let walk = Walk::new(&world.plan, &world.codec, &links, &world.run, NOW).cancelled_by(&cancel_check);
    let outcome = walk.rows(&groups, 1, &[0, 1]);
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    asked.store(0, Ordering::Relaxed);
    let outcome = walk.edge_times(&groups, 1, &[TimeRange::ALL], NOW);
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
    asked.store(0, Ordering::Relaxed);
    let outcome = walk.revived(&SortedRun::chunks(&world.run).iter().collect::<Vec<_>>());
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn a_walk_within_its_edges_answers_as_any_and_one_edge_less_is_over_budget() {
    // Two near edges, and three far edges of their nodes.
    let created = (0..2).map(|at| (user(at), HUB.to_owned()));
    let logins = [(user(0), "d0"), (user(0), "d1"), (user(1), "d2"), (user(2), "elsewhere")];
    let logins = logins.into_iter().map(|(user, device)| (user, device.to_owned()));
    let world = World::seen_just_before(&view("count(DISTINCT l.device) AS devices", ""), created, logins).await;
    let links = world.plan.links().cloned().unwrap();
    let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(vec![HUB]))];
    let walk = Walk::new(&world.plan, &world.codec, &links, &world.run, NOW);
    let within = |budget: usize| walk.rows_within(budget, &groups, 1, &[0, 1]).unwrap();
    assert_eq!(within(5).map(|answers| number(&answers, 1)), Some(3));
    assert!(within(4).is_none(), "the far edges are too many");
    assert!(within(1).is_none(), "the near edges are too many");
}

#[tokio::test]
async fn an_unknown_key_has_no_row_and_its_counts_are_0() {
    let world =
        World::seen_just_before(&view("count(*) AS pairs", ""), std::iter::empty(), std::iter::once((user(0), "d".to_owned()))).await;
    let answers = world.ask(HUB);
    assert!(!answers.found[0]);
    assert_eq!(number(&answers, 1), 0);
}

const HOUR: Micros = 3_600_000_000;

/// One account, and three logins of its user: from the device itself, from another, and from a third five days ago.
async fn filtered() -> World {
    let columns = "count(DISTINCT l.device) FILTER (WHERE l.device <> c.device) AS linked, count(DISTINCT c.user_id) AS users, \
        count(DISTINCT l.device) FILTER (WHERE within(c.ts, '30d') AND within(l.ts, '1d')) AS recent, \
        count(DISTINCT l.device) FILTER (WHERE l.id = '2') + count(DISTINCT c.user_id) FILTER (WHERE c.id = 'none') AS either";
    let created = std::iter::once(((user(0), HUB.to_owned()), NOW - 1));
    let logins = [(HUB, HOUR), ("new", 2 * HOUR), ("old", 5 * 24 * HOUR)];
    let logins = logins.into_iter().map(|(device, ago)| ((user(0), device.to_owned()), NOW - ago));
    World::at(&view(columns, ""), created, logins).await
}

fn owned_paths(paths: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    paths.iter().map(|(end, columns)| ((*end).to_owned(), columns.iter().map(|column| (*column).to_owned()).collect())).collect()
}

#[tokio::test]
async fn a_path_says_in_which_columns_it_counts_by_their_filters_and_windows() {
    let world = filtered().await;
    let expected = owned_paths(&[
        (HUB, &["users_30d", "recent"]),
        ("new", &["linked_30d", "users_30d", "recent"]),
        ("old", &["linked_30d", "users_30d", "either_30d"]),
    ]);
    assert_eq!(world.paths(HUB, 10, None), expected);
    assert_eq!(world.paths(HUB, 1, None), expected[..1]);
}

#[tokio::test]
async fn the_paths_of_a_column_are_the_newest_that_count_in_it() {
    let world = filtered().await;
    let ends = |most: usize, of: &str| world.paths(HUB, most, Some(of)).into_iter().map(|(end, _)| end).collect::<Vec<_>>();
    assert_eq!(ends(10, "linked_30d"), ["new", "old"]);
    assert_eq!(ends(1, "linked_30d"), ["new"], "an older one takes the place of what does not count");
    assert_eq!(ends(10, "recent"), [HUB, "new"]);
    assert_eq!(ends(10, "either_30d"), ["old"], "one of its two aggregates counts it");
}

#[tokio::test]
async fn a_path_that_counts_nowhere_comes_after_older_ones_that_count() {
    let columns = "count(DISTINCT l.device) FILTER (WHERE l.device <> c.device) AS linked";
    let created = std::iter::once(((user(0), HUB.to_owned()), NOW - 1));
    let logins = [(HUB, HOUR), ("new", 2 * HOUR), ("old", 5 * 24 * HOUR)];
    let logins = logins.into_iter().map(|(device, ago)| ((user(0), device.to_owned()), NOW - ago));
    let world = World::at(&view(columns, ""), created, logins).await;
    let expected = owned_paths(&[("new", &["linked_30d"]), ("old", &["linked_30d"]), (HUB, &[])]);
    assert_eq!(world.paths(HUB, 10, None), expected);
    assert_eq!(world.paths(HUB, 2, None), expected[..2]);
}

/// Layers of edges, one over the other.
struct Layered([SortedRun; 2]);

impl EdgeLayers for Layered {
    fn edges_of(&self, nodes: &[NodeProbe<'_>]) -> Vec<Vec<LayerRows<'_>>> {
        let [below, above] = &self.0;
        let both = below.edges_of(nodes).into_iter().zip(above.edges_of(nodes));
        both.map(|(mut rows, more)| {
            rows.extend(more);
            rows
        })
        .collect()
    }

    fn parts(&self) -> u32 {
        1
    }

    fn chunks(&self, part: u32) -> Vec<PartChunk<'_>> {
        self.0.iter().flat_map(|run| EdgeLayers::chunks(run, part)).collect()
    }
}

#[tokio::test]
async fn paths_of_the_same_age_are_in_the_order_of_their_keys_whichever_layers_they_are_in() {
    let sql = view("count(DISTINCT l.device) AS devices", "");
    // The accounts are older than all logins, and as old as each other.
    let world = async |users: [usize; 2], devices: [&str; 2]| {
        let created = users.into_iter().map(|of| ((user(of), HUB.to_owned()), NOW - 10 * 24 * HOUR));
        let logins = devices.into_iter().flat_map(|device| (0..3).map(move |of| ((user(of), device.to_owned()), NOW - HOUR)));
        World::at(&sql, created, logins).await
    };
    let (below, above) = (world([2, 1], ["d", "b"]).await, world([0, 1], ["c", "a"]).await);
    let layers = Layered([below.run.clone(), above.run.clone()]);
    let ends = |most: usize| below.paths_in(&layers, HUB, most, None).into_iter().map(|(end, _)| end).collect::<Vec<_>>();
    assert_eq!(ends(12), ["a", "b", "c", "d"].repeat(3), "those of one account after those of the one before");
    assert_eq!(ends(3), ["a", "b", "c"]);
}

#[tokio::test]
async fn full_edges_say_in_which_columns_their_paths_count() {
    let columns = "count(*) AS pairs, count(DISTINCT l.device) AS devices, \
        count(*) FILTER (WHERE within(c.ts, '30d') AND within(l.ts, '7d', '1d')) AS earlier";
    let created = std::iter::once(((user(0), HUB.to_owned()), NOW - 1));
    let logins = [("new", 2 * HOUR), ("old", 5 * 24 * HOUR)];
    let logins = logins.into_iter().map(|(device, ago)| ((user(0), device.to_owned()), NOW - ago));
    let world = World::at(&view(columns, ""), created, logins).await;
    let expected = owned_paths(&[("new", &["pairs_30d", "devices_30d"]), ("old", &["pairs_30d", "devices_30d", "earlier"])]);
    assert_eq!(world.paths(HUB, 10, None), expected);
    assert_eq!(world.paths(HUB, 10, Some("earlier")), expected[1..]);
    assert!(world.paths("nowhere", 10, None).is_empty());
}
