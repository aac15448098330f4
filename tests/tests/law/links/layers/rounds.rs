//! The law for the materialised join: many events and a run, then rounds of few events, each with a run, that carry most rows over.

use super::*;

/// What happens between two runs: time passes, and events come.
#[derive(Debug, Clone)]
struct Round {
    passes: Micros,
    events: Vec<(usize, Event)>,
}

fn round() -> impl Strategy<Value = Round> {
    let passes = prop::sample::select(vec![0, 1, HOUR, 2 * DAY, 12 * DAY]);
    (passes, prop::collection::vec((0..2usize, event()), 0..4)).prop_map(|(passes, events)| Round { passes, events })
}

/// Events are dated back by what passes after their round, so that the last round is at the law's own time.
async fn hold(view: &View, first: Vec<(usize, Event)>, rounds: Vec<Round>) -> Installation {
    let mut installation = Installation::new(view).await;
    let mut tick = 1_000;
    let mut left: Micros = rounds.iter().map(|round| round.passes).sum();
    for Round { passes, events } in std::iter::once(Round { passes: 0, events: first }).chain(rounds) {
        left -= passes;
        for stream in 0..NAMES.len() {
            let dated = |event: &Event| Event { ts: event.ts - left, ..event.clone() };
            let events = events.iter().filter(|(of, _)| *of == stream).map(|(_, event)| dated(event)).collect();
            installation.take(&Step::Append(stream, events)).await;
        }
        // The clock of events stands at the round's time.
        tick += 1;
        let tick = Event { id: tick, ts: BASE - left, k: None, j: None, u: None, w: None, x: None, d: None, f: None, o: None };
        installation.take(&Step::Append(0, vec![tick])).await;
        installation.take(&Step::Checkpoint).await;
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
        rounds in prop::collection::vec(round(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { drop(hold(&view, first, rounds).await) });
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

#[test]
fn a_new_link_is_joined_and_the_other_rows_are_carried_over() {
    let source = Source { stream: 0, through: Through::Nothing };
    let count = Column {
        aggregate: Aggregate::CountDistinct(Side::L, Of::K),
        shape: Shape::Bare,
        filter: Vec::new(),
        c_within: None,
        l_within: None,
    };
    let view = View {
        windows: Vec::new(),
        c: source,
        l: source,
        swapped: false,
        join: Join { keys: &[(Of::U, Of::U)], spelled: Spelled::On },
        group: &[Of::K],
        wheres: Vec::new(),
        columns: vec![count],
    };
    let event = |id: u16, k, u| Event { id, ts: BASE, k: Some(k), j: None, u: Some(u), w: None, x: None, d: None, f: None, o: None };
    let first = vec![(0, event(1, "", "")), (0, event(2, "b", "b")), (0, event(3, "B", "B")), (0, event(4, "c", "c"))];
    let round = Round { passes: 0, events: vec![(0, event(5, "B", "c"))] };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let installation = runtime.block_on(hold(&view, first, vec![round]));
    let snapshot = installation.node.stand().unwrap().view("v").unwrap().snapshot.clone().unwrap();
    let joined = snapshot.manifest.joined.as_ref().unwrap();
    assert_eq!((joined.rows, joined.carried), (4, 2), "B and c are linked now; the rows of the others stay");
    drop(installation);
    runtime.shutdown_timeout(Duration::from_secs(1));
}
