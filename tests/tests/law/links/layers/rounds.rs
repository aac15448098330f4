//! The law for the materialised join: many events and a run, then rounds of few events, each with a run, that carry
//! most rows over.

use basestream_tests::until;
use storage::MaterialisedJoin;

use super::*;

/// What happens between two runs: time passes, and events are appended. The run may be another process's than the one
/// before.
#[derive(Debug, Clone)]
struct Round {
    passes: Micros,
    events: Vec<(usize, Event)>,
    other_process: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let passes = prop::sample::select(vec![0, 1, HOUR, 2 * DAY, 12 * DAY]);
    let events = prop::collection::vec((0..2usize, event()), 0..4);
    (passes, events, any::<bool>()).prop_map(|(passes, events, other_process)| Round { passes, events, other_process })
}

/// Events are dated back by the time that passes after their round, so that the last round is at the law's own time.
async fn hold(view: &View, first: Vec<(usize, Event)>, rounds: Vec<Round>) -> Installation {
    let mut installation = Installation::new(view).await;
    let mut left: Micros = rounds.iter().map(|round| round.passes).sum();
    let rounds = std::iter::once(Round { passes: 0, events: first, other_process: false }).chain(rounds);
    for (tick, Round { passes, events, other_process }) in (1_001..).zip(rounds) {
        left -= passes;
        for stream in 0..NAMES.len() {
            let dated = |event: &Event| Event { ts: event.ts - left, ..event.clone() };
            let events = events.iter().filter(|(of, _)| *of == stream).map(|(_, event)| dated(event)).collect();
            installation.take(&Step::Append(stream, events)).await;
        }
        // Sets the event clock to the round's time.
        let tick = Event { id: tick, ts: BASE - left, k: None, j: None, u: None, w: None, x: None, d: None, f: None, o: None };
        installation.take(&Step::Append(0, vec![tick])).await;
        installation.take(&Step::Checkpoint).await;
        if other_process {
            installation.take(&Step::OtherProcess).await;
        }
        installation.take(&Step::Run).await;
    }
    installation
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_runs_materialise_is_the_plain_join_whatever_they_carry_over(
        view in view(),
        first in prop::collection::vec((0..2usize, event()), 40..80),
        rounds in prop::collection::vec(round(), 1..6),
    ) {
        run(async { drop(hold(&view, first, rounds).await) });
    }
}

/// The number of k that share a u, over one stream joined with itself.
fn neighbours() -> View {
    let source = Source { stream: 0, through: Through::Nothing };
    let count = Column {
        aggregate: Aggregate::CountDistinct(Side::L, Of::K),
        shape: Shape::Bare,
        filter: Vec::new(),
        c_within: None,
        l_within: None,
    };
    View {
        windows: Vec::new(),
        c: source,
        l: source,
        swapped: false,
        join: Join { keys: &[(Of::U, Of::U)], spelled: Spelled::On },
        group: &[Of::K],
        wheres: Vec::new(),
        columns: vec![count],
    }
}

fn link(id: u16, k: &'static str, u: &'static str) -> (usize, Event) {
    (0, Event { id, ts: BASE, k: Some(k), j: None, u: Some(u), w: None, x: None, d: None, f: None, o: None })
}

/// The sum of x over the events that share a u.
fn sums() -> View {
    let mut view = neighbours();
    view.columns[0].aggregate = Aggregate::Sum(Of::X);
    view
}

fn apart() -> Vec<(usize, Event)> {
    vec![link(1, "", ""), link(2, "b", "b"), link(3, "B", "B"), link(4, "c", "c")]
}

impl Installation {
    fn joined(&self) -> MaterialisedJoin {
        let snapshot = self.node.read_view().unwrap().view("v").unwrap().snapshot.clone().unwrap();
        snapshot.manifest.joined.clone().unwrap()
    }
}

#[test]
fn a_new_link_is_joined_and_the_other_rows_are_carried_over() {
    run(async {
        let round = Round { passes: 0, events: vec![link(5, "B", "c")], other_process: false };
        let joined = hold(&neighbours(), apart(), vec![round]).await.joined();
        assert_eq!((joined.rows, joined.carried), (4, 2), "B and c are linked now; the rows of the others stay");
    });
}

#[test]
fn a_sum_of_nothing_is_null_beside_the_sum_of_another_key() {
    run(async {
        let with_x = |(stream, event): (usize, Event), x| (stream, Event { x, ..event });
        // Two events of b: their far states are merged as a copy of themselves, after those of the other key.
        let first = vec![with_x(link(1, "a", ""), Some(5)), link(2, "b", "b"), link(3, "b", "b")];
        hold(&sums(), first, Vec::new()).await.check().await;
    });
}

/// Among the steps that are drawn, a compaction may find nothing due, and no version may be kept.
#[test]
fn a_version_that_is_served_again_over_a_compacted_archive_is_the_plain_join() {
    run(async {
        let with_link = |id| Round { passes: 0, events: vec![link(id, "B", "c")], other_process: false };
        let mut installation = hold(&neighbours(), apart(), vec![with_link(5), with_link(6)]).await;
        installation.take(&Step::Compact).await;
        // Those of one day become one.
        assert!(installation.harness.catalog.state().await.unwrap().checkpoints.len() < 3, "{}", installation.about());
        installation.take(&Step::Redefine(Box::new(sums()))).await;
        installation.take(&Step::Run).await;
        assert_eq!(installation.harness.served("v").await.unwrap(), Some(2));
        installation.take(&Step::RollBack).await;
        assert_eq!(installation.harness.served("v").await.unwrap(), Some(1));
        for step in [Step::Compact, Step::Recompute, Step::AsOf(HOUR)] {
            installation.take(&step).await;
        }
        installation.check_ledger().await;
    });
}

#[test]
fn what_cannot_be_read_of_the_join_before_is_walked_again() {
    run(async {
        let mut installation = hold(&neighbours(), apart(), Vec::new()).await;
        for file in installation.joined().files {
            let path = installation.harness.path().join("storage").join(&file.path);
            assert!(path.exists(), "{}", path.display());
            std::fs::write(path, "no Parquet").unwrap();
        }
        // The materialised rows cannot be read while they are damaged, so the run is made without a check before it.
        installation.append(0, &[link(5, "B", "c").1]).await;
        let worker = installation.harness.worker("one", Duration::from_secs(3_600), Some(installation.fresh.clone()));
        let is_read = async || installation.node.read_view().unwrap().vector.covers(&installation.ends);
        until("the worker to read to the log's end", is_read).await;
        worker.finish().await.unwrap();
        installation.take(&Step::Run).await;
        let joined = installation.joined();
        assert_eq!((joined.rows, joined.carried), (4, 0));
    });
}

#[test]
fn a_join_that_was_not_made_is_an_error_and_no_empty_table() {
    run(async {
        let installation = Installation::new(&neighbours()).await;
        let error = installation.node.query("SELECT * FROM v__batch", Vec::new()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no batch run of this version of the view has ended yet"), "{error}");
    });
}
