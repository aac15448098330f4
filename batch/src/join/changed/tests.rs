use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use catalog::DefinitionStatus;
use definitions::{Definitions, parse};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::{Planned, Planner, planning_session};
use engine::states::{KeyCodec, Partial, SortedRun, rollup, sort_and_merge};
use engine::walk::TierEdges;
use proptest::prelude::*;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};

use super::*;

const DAY: Micros = 86_400_000_000;
const NOW: Micros = 1_772_452_800_000_000;

const STREAM: &str = "CREATE STREAM login (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device TEXT) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '1m', key = 'user_id')";

/// A login: its user, its device, and how many days ago it happened.
type Login = (&'static str, &'static str, i64);

struct World {
    view: LiveView,
    links: Arc<LinkPlan>,
}

impl World {
    async fn with_columns(columns: &str) -> World {
        let sql = format!(
            "CREATE VIEW links WITH (windows = '30d') AS SELECT a.device, {columns} FROM login a JOIN login b ON a.user_id = b.user_id GROUP BY a.device"
        );
        let view = parse::parse_view(&sql).unwrap();
        let project =
            Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
        let Planned::Stateful(plan) = Planner::new(&project, Functions::standard()).plan(&view).await.unwrap() else { panic!("inlined") };
        let (codec, links) = (Arc::new(KeyCodec::for_plan(&plan).unwrap()), plan.links().cloned().unwrap());
        let view = LiveView { name: "links".into(), version: 1, status: DefinitionStatus::Active, definition: Arc::new(view), plan, codec };
        World { view, links }
    }

    /// The single bucket of a snapshot made at `t`.
    async fn edges(&self, logins: &[Login], t: Micros) -> SnapshotEdges {
        let stream = parse::parse_stream(STREAM).unwrap();
        let schema = plan_schema(&stream);
        let times = || TimestampMicrosecondArray::from_iter_values(logins.iter().map(|login| NOW - login.2 * DAY)).with_timezone("UTC");
        let column = |name: &str| -> ArrayRef {
            match name {
                "ts" | EVENT_TIME => Arc::new(times()),
                "user_id" => Arc::new(StringArray::from_iter_values(logins.iter().map(|login| login.0))),
                "device" => Arc::new(StringArray::from_iter_values(logins.iter().map(|login| login.1))),
                "id" => Arc::new(StringArray::from_iter_values((0..logins.len()).map(|at| at.to_string()))),
                SOURCE => Arc::new(StringArray::from_iter_values(logins.iter().map(|_| "login"))),
                PARTITION => Arc::new(arrow::array::Int32Array::from_iter_values(logins.iter().map(|_| 0))),
                OFFSET => Arc::new(Int64Array::from_iter_values(0..logins.len() as i64)),
                other => panic!("unknown column {other}"),
            }
        };
        let events = RecordBatch::try_new(schema.clone(), schema.fields().iter().map(|field| column(field.name())).collect()).unwrap();
        let mut partial = Partial::new(self.view.plan.clone(), &planning_session(&Functions::standard()).unwrap()).unwrap();
        let states = partial.states("login", &[events]).await.unwrap();
        let merged = sort_and_merge(&self.view.plan, &self.view.codec, &states).unwrap();
        let rolled_up = rollup(&self.view.plan, &merged, &self.view.plan.floors(t)).unwrap();
        SnapshotEdges(vec![TierEdges(vec![(Arc::new(SortedRun::in_memory(rolled_up)), None)])])
    }

    /// Returns the devices whose rows may have changed.
    async fn changed(&self, old: (&[Login], Micros), new: (&[Login], Micros)) -> Vec<String> {
        let (before, after) = (self.edges(old.0, old.1).await, self.edges(new.0, new.1).await);
        let [was, is] = [&before, &after].map(|edges| edges.0[0].0[0].0.chunks());
        let found = changed(&self.view, &self.links, was, is, JoinTimes { before: old.1, now: new.1 }).unwrap();
        self.devices(&after, &found)
    }

    /// The same, by what a run adds to the tiers of a snapshot.
    async fn changed_by(&self, (before, added): (&[&[Login]], &[Login]), t: (Micros, Micros)) -> Vec<String> {
        let (mut tiers, mut kept) = (SnapshotEdges::default(), SnapshotEdges::default());
        for logins in before {
            tiers.0.extend(self.edges(logins, t.0).await.0);
            kept.0.extend(self.edges(logins, t.0).await.0);
        }
        let delta = self.edges(added, t.1).await;
        kept.0.extend(self.edges(added, t.1).await.0);
        let added = Added::new(&self.view, &self.links, tiers, delta, JoinTimes { before: t.0, now: t.1 });
        let mut found = EdgeStarts::default();
        for (run, is_added) in added.runs() {
            let EdgeStarts { near, far } = added.changed_in(&run, is_added).unwrap();
            found.near.extend(near);
            found.far.extend(far);
        }
        self.devices(&kept, &found)
    }

    /// The devices whose rows may have changed.
    fn devices(&self, edges: &SnapshotEdges, found: &EdgeStarts) -> Vec<String> {
        let keys = keys_of(&self.view, &self.links, edges, 0, &found.near, &found.far).unwrap();
        if keys.is_empty() {
            return Vec::new();
        }
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let groups = self.view.codec.nodes().unwrap().groups_of(&keys).unwrap();
        let mut devices: Vec<String> = groups[0].as_string::<i32>().iter().flatten().map(str::to_owned).collect();
        devices.sort();
        devices
    }
}

const LIVENESS: &str = "count(DISTINCT b.device) AS devices";
const COUNTED: &str = "count(*) AS pairs";
const LOGINS: [Login; 4] = [("u1", "d1", 3), ("u1", "d2", 3), ("u2", "d3", 3), ("u2", "d4", 20)];

#[tokio::test]
async fn nothing_changed_where_no_edge_and_no_window_did() {
    for columns in [LIVENESS, COUNTED] {
        let world = World::with_columns(columns).await;
        assert_eq!(world.changed((&LOGINS, NOW), (&LOGINS, NOW + DAY)).await, Vec::<String>::new(), "{columns}");
    }
}

#[tokio::test]
async fn a_new_edge_changes_the_keys_of_its_node_and_no_others() {
    for columns in [LIVENESS, COUNTED] {
        let world = World::with_columns(columns).await;
        let more: Vec<Login> = LOGINS.into_iter().chain([("u1", "d9", 0)]).collect();
        assert_eq!(world.changed((&LOGINS, NOW), (&more, NOW)).await, ["d1", "d2", "d9"], "{columns}");
        assert_eq!(world.changed((&more, NOW), (&LOGINS, NOW)).await, ["d1", "d2", "d9"], "{columns}, and one that is gone");
    }
}

#[tokio::test]
async fn an_edge_that_a_window_passed_over_changes_the_keys_of_its_node() {
    for columns in [LIVENESS, COUNTED] {
        let world = World::with_columns(columns).await;
        // d4's login of 20 days ago leaves the window of 30 days within the next 11.
        assert_eq!(world.changed((&LOGINS, NOW), (&LOGINS, NOW + 11 * DAY)).await, ["d3", "d4"], "{columns}");
        assert_eq!(world.changed((&LOGINS, NOW + 11 * DAY), (&LOGINS, NOW)).await, ["d3", "d4"], "{columns}, and backwards");
        if columns == LIVENESS {
            assert_eq!(world.changed((&LOGINS, NOW + 11 * DAY), (&LOGINS, NOW + 12 * DAY)).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn an_edge_that_is_seen_again_changes_what_counts_events_and_not_what_asks_for_links() {
    let again: Vec<Login> = LOGINS.into_iter().chain([("u1", "d1", 0)]).collect();
    let changed = World::with_columns(LIVENESS).await.changed((&LOGINS, NOW), (&again, NOW)).await;
    assert_eq!(changed, Vec::<String>::new());
    assert_eq!(World::with_columns(COUNTED).await.changed((&LOGINS, NOW), (&again, NOW)).await, ["d1", "d2"]);
}

/// The pairs of each device within 30 days of `t`, a whole hour, counted one by one.
fn pairs(logins: &[Login], t: Micros) -> BTreeMap<&'static str, usize> {
    let is_counted = |login: &&Login| NOW - login.2 * DAY >= t - 30 * DAY;
    let counted: Vec<&Login> = logins.iter().filter(is_counted).collect();
    let mut pairs = BTreeMap::new();
    for near in &counted {
        *pairs.entry(near.1).or_default() += counted.iter().filter(|far| far.0 == near.0).count();
    }
    pairs
}

fn login() -> impl Strategy<Value = Login> {
    (prop::sample::select(vec!["u1", "u2", "u3"]), prop::sample::select(vec!["d1", "d2", "d3", "d4"]), 0i64..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Links by what is live are found exactly.
    #[test]
    fn what_a_delta_changes_is_what_comparing_all_edges_finds(
        before in prop::collection::vec(login(), 0..12),
        of_base in 0usize..12,
        added in prop::collection::vec(login(), 0..4),
        passes in prop::sample::select(vec![0, 1, 5 * DAY, 20 * DAY, -DAY]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (base, delta) = before.split_at(of_base.min(before.len()));
        let after: Vec<Login> = before.iter().chain(&added).copied().collect();
        let (found, all) = runtime.block_on(async {
            let world = World::with_columns(LIVENESS).await;
            let found = world.changed_by((&[base, delta], &added), (NOW, NOW + passes)).await;
            (found, world.changed((&before, NOW), (&after, NOW + passes)).await)
        });
        prop_assert_eq!(found, all);
    }

    /// What counts events may be joined again where nothing changed, and never the other way round. The time of a run
    /// does not go back: it would recompute the snapshot (`lacks_tiles`).
    #[test]
    fn no_key_whose_pairs_changed_is_left_out(
        before in prop::collection::vec(login(), 0..12),
        of_base in 0usize..12,
        added in prop::collection::vec(login(), 0..4),
        days in 0i64..30,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (base, delta) = before.split_at(of_base.min(before.len()));
        let after: Vec<Login> = before.iter().chain(&added).copied().collect();
        let t = (NOW, NOW + days * DAY);
        let (found, all) = runtime.block_on(async {
            let world = World::with_columns(COUNTED).await;
            let found = world.changed_by((&[base, delta], &added), t).await;
            (found, world.changed((&before, t.0), (&after, t.1)).await)
        });
        let (was, is) = (pairs(&before, t.0), pairs(&after, t.1));
        for device in ["d1", "d2", "d3", "d4"].into_iter().filter(|device| was.get(device) != is.get(device)) {
            prop_assert!(found.iter().any(|known| known == device), "{device} is not among what a delta changes: {found:?}");
            prop_assert!(all.iter().any(|known| known == device), "{device} is not among what comparing finds: {all:?}");
        }
    }
}
