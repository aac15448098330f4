use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;
use crate::states::testing::{events, planned, session};
use crate::states::{KeyCodec, KeyPieces, Partial, StateRows, answer, answer_kept, cost_of_key, merge_sets, rollup, sort_and_merge};
use types::tiles::Level;

const T: Micros = 1_772_452_812_345_678;
const MINUTE: Micros = 60_000_000;

/// Windows that move at different steps, one that ends before now, and states of every kind: a number, a set, a list of
/// all values, and sums of floating point numbers, whose result depends on the order of merging.
const VIEW: &str = "CREATE VIEW v WITH (windows = '1h, 1d') AS SELECT k, count(*) AS n, sum(x) AS total, \
    avg(x / 3.0::double) AS mean, stddev(x / 7.0::double) AS spread, count(DISTINCT x) AS different, count(DISTINCT id) AS ids, \
    median(x) AS middle, last_n(x, 3) AS newest, \
    count(DISTINCT x) FILTER (WHERE within(ts, '1d', '1h')) AS before, \
    count(DISTINCT x) FILTER (WHERE within(ts, 'all')) AS ever FROM s GROUP BY k";

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// The layers of one key, as a serving node has them.
struct World {
    plan: Arc<ViewPlan>,
    codec: KeyCodec,
    partial: Partial,
    snapshot: Option<StateRows>,
    committed: Vec<StateRows>,
    fresh: Vec<StateRows>,
}

#[derive(Debug, Clone)]
enum Step {
    /// Events, each this long before now, become a fresh layer.
    Arrive(Vec<(i64, i64)>),
    /// The fresh layers are merged into one.
    Compact,
    /// What is fresh is committed as one layer.
    Commit,
    /// What is fresh is withdrawn.
    Withdraw,
    /// All that is committed becomes a snapshot.
    Run,
    /// Time passes before the next question.
    Later(i64),
    /// Only some of the columns are asked.
    Ask(Vec<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let event = || (0i64..600, -MINUTE..2_000 * MINUTE);
    prop_oneof![
        1 => prop::collection::vec(event(), 200..600).prop_map(Step::Arrive),
        4 => prop::collection::vec(event(), 1..10).prop_map(Step::Arrive),
        1 => Just(Step::Compact),
        2 => Just(Step::Commit),
        1 => Just(Step::Withdraw),
        1 => Just(Step::Run),
        2 => (0i64..90 * MINUTE).prop_map(Step::Later),
        6 => prop::collection::vec(0usize..20, 1..20).prop_map(Step::Ask),
    ]
}

impl World {
    fn new() -> World {
        let plan = Arc::new(planned(VIEW));
        let codec = KeyCodec::for_plan(&plan).unwrap();
        let partial = Partial::new(plan.clone(), &session()).unwrap();
        World { plan, codec, partial, snapshot: None, committed: Vec::new(), fresh: Vec::new() }
    }

    fn arrive(&mut self, before: &[(i64, i64)], t: Micros) {
        let rows: Vec<(String, i64, Micros)> = before.iter().map(|(x, before)| ("k".to_owned(), *x, t - before)).collect();
        let states = RUNTIME.block_on(self.partial.states("s", &[events(&rows)])).unwrap();
        self.fresh.push(sort_and_merge(&self.plan, &self.codec, &states).unwrap());
    }

    fn merged(&self, layers: &[StateRows]) -> StateRows {
        merge_sets(&self.plan, &self.codec, &layers.iter().collect::<Vec<_>>()).unwrap()
    }

    fn take(&mut self, step: &Step, t: Micros) {
        match step {
            Step::Arrive(events) => self.arrive(events, t),
            Step::Compact => self.fresh = vec![self.merged(&self.fresh)],
            Step::Commit => {
                self.committed.push(self.merged(&self.fresh));
                self.fresh.clear();
            }
            Step::Withdraw => self.fresh.clear(),
            Step::Run => {
                let of_snapshot = self.snapshot.iter().map(|rows| rows_of(rows, self.plan.finest()));
                let all: Vec<StateRows> = of_snapshot.chain(std::mem::take(&mut self.committed)).collect();
                let no_floor: Vec<_> = self.plan.levels.iter().map(|level| (*level, None)).collect();
                self.snapshot = Some(rollup(&self.plan, &self.merged(&all), &no_floor).unwrap());
            }
            Step::Later(_) | Step::Ask(_) => {}
        }
    }

    fn key_column() -> ArrayRef {
        Arc::new(arrow::array::StringArray::from(vec!["k"]))
    }

    fn key(&self) -> Vec<u8> {
        self.codec.encode(&[World::key_column()], 1).unwrap().value(0).to_vec()
    }

    fn pieces(&self) -> Pieces<'_> {
        let key = self.key();
        let mut pieces = Pieces::default();
        if let Some(rows) = &self.snapshot {
            pieces.add(rows.batch(), rows.find(&key), 0, true);
        }
        for rows in &self.committed {
            pieces.add(rows.batch(), rows.find(&key), 0, false);
        }
        for rows in &self.fresh {
            pieces.add_fresh(rows.batch(), rows.find(&key), 0);
        }
        pieces
    }

    fn all_columns(&self) -> Vec<usize> {
        (0..self.plan.columns.len()).collect()
    }

    fn plain(&self, t: Micros, wanted: &[usize]) -> (RecordBatch, Vec<bool>) {
        let answered = answer(&self.plan, &self.codec, &[&self.key()], &self.pieces(), t, wanted).unwrap();
        (answered.rows, answered.found)
    }

    fn kept(&self, t: Micros, wanted: &[usize], kept: &KeptKey) -> (RecordBatch, Vec<bool>) {
        let (key, pieces) = ([World::key_column()], self.pieces());
        let of_key = KeyPieces { key: &key, pieces: &pieces };
        let answered = answer_kept(&self.plan, &self.codec, of_key, t, wanted, kept).unwrap();
        (answered.rows, answered.found)
    }

    fn cost(&self, t: Micros, kept: Option<&KeptKey>) -> usize {
        cost_of_key(&self.plan, &self.pieces(), t, &self.all_columns(), kept).unwrap()
    }
}

/// The rows of one level: those of a snapshot that others are rolled up from.
fn rows_of(rows: &StateRows, level: Level) -> StateRows {
    let keep = crate::states::levels(rows.batch()).unwrap().iter().map(|code| code.map(|code| code == level.code())).collect();
    let keys = arrow::compute::filter(rows.keys(), &keep).unwrap();
    let batch = arrow::compute::filter_record_batch(rows.batch(), &keep).unwrap();
    StateRows::from_sorted(batch, arrow::array::AsArray::as_binary::<i32>(&keys).clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// To the last bit: a column of floating point numbers is compared as it is.
    #[test]
    fn an_answer_with_what_is_kept_is_the_answer_without(steps in prop::collection::vec(step(), 1..40)) {
        let (mut world, kept, mut t) = (World::new(), KeptKey::default(), T);
        for step in &steps {
            world.take(step, t);
            if let Step::Later(by) = step {
                t += by;
            }
            let mut wanted = match step {
                Step::Ask(columns) => columns.iter().map(|column| column % world.plan.columns.len()).collect(),
                _ => world.all_columns(),
            };
            wanted.dedup();
            prop_assert_eq!(world.kept(t, &wanted, &kept), world.plain(t, &wanted), "after {:?}", step);
        }
    }
}

/// A key with this many different values, half of them in a snapshot.
fn hot() -> World {
    let mut world = World::new();
    for _ in 0..2 {
        let before: Vec<(i64, i64)> = (0..4_000).map(|at| (at, at * MINUTE / 100)).collect();
        world.arrive(&before, T);
        world.take(&Step::Commit, T);
        if world.snapshot.is_none() {
            world.take(&Step::Run, T);
        }
    }
    world
}

#[test]
fn a_question_that_was_answered_costs_nothing_and_one_after_an_event_little() {
    let (mut world, kept) = (hot(), KeptKey::default());
    let anew = world.cost(T, None);
    assert!(anew > 16_000, "{anew}");
    assert_eq!(world.cost(T, Some(&kept)), anew);
    world.kept(T, &world.all_columns(), &kept);
    let again = world.cost(T, Some(&kept));
    assert!(again < 1_024, "{again}");
    // A state of all values has to be merged again; a set does not.
    world.arrive(&[(9_000, 0)], T);
    let names = ["different_1h", "different_1d", "ids_1h", "ids_1d", "ever"];
    let sets: Vec<usize> =
        world.all_columns().into_iter().filter(|column| names.contains(&&**world.plan.columns[*column].field.name())).collect();
    assert_eq!(sets.len(), names.len());
    let cost = cost_of_key(&world.plan, &world.pieces(), T, &sets, Some(&kept)).unwrap();
    assert!(cost < 1_024, "{cost}");
    assert_eq!(world.kept(T, &sets, &kept), world.plain(T, &sets));
}

/// A checkpoint's values are added; earlier ones are not encoded again.
#[test]
fn a_set_takes_in_what_is_committed_after_it() {
    let (mut world, kept) = (hot(), KeptKey::default());
    let ever = world.all_columns().into_iter().find(|column| world.plan.columns[*column].field.name() == "ever").unwrap();
    world.kept(T, &[ever], &kept);
    let usage = kept.lock().iter().find(|(_, kept)| kept.set.is_some()).map(|(usage, _)| *usage).unwrap();
    world.arrive(&[(9_000, 0), (1, 0)], T);
    world.take(&Step::Commit, T);
    let runs = world.pieces().runs_in(&world.plan, usage.range, T).unwrap();
    let committed = MergedRows::of_runs(&world.plan, usage.state, &world.pieces(), runs.iter());
    assert!(kept.set(usage, &committed).is_none());
    let (taken_in, set) = kept.take_set(usage, &committed).expect("it is made anew");
    assert_eq!((taken_in.0.len() + 1, set.size_with(&[]).unwrap().values), (committed.0.len(), 4_000));
    assert_eq!(world.kept(T, &[ever], &kept), world.plain(T, &[ever]));
}

#[test]
fn without_its_sets_a_key_keeps_little_and_its_values_count() {
    let (world, kept) = (hot(), KeptKey::default());
    world.kept(T, &world.all_columns(), &kept);
    let with_sets = kept.memory_bytes();
    kept.drop_sets();
    assert!(kept.memory_bytes() < with_sets / 4, "{} of {with_sets}", kept.memory_bytes());
    assert!(world.cost(T, Some(&kept)) < 1_024);
}

/// A layer that was dropped leaves nothing behind but a number of bytes.
#[test]
fn no_layer_is_kept_alive() {
    let (mut world, kept) = (hot(), KeptKey::default());
    world.kept(T, &world.all_columns(), &kept);
    let level = Arc::downgrade(world.committed[0].batch().column(world.plan.keys.len()));
    world.committed.clear();
    assert!(level.upgrade().is_none());
    assert_eq!(world.kept(T, &world.all_columns(), &kept), world.plain(T, &world.all_columns()));
}
