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
async fn hold(view: &View, first: Vec<(usize, Event)>, rounds: Vec<Round>) {
    let mut installation = Installation::new(view).await;
    let mut left: Micros = rounds.iter().map(|round| round.passes).sum();
    for Round { passes, events } in std::iter::once(Round { passes: 0, events: first }).chain(rounds) {
        left -= passes;
        for stream in 0..NAMES.len() {
            let dated = |event: &Event| Event { ts: event.ts - left, ..event.clone() };
            let events = events.iter().filter(|(of, _)| *of == stream).map(|(_, event)| dated(event)).collect();
            installation.take(&Step::Append(stream, events)).await;
        }
        // The clock of events stands at the round's time.
        let id = 1_000 + (left % 997) as u16;
        let tick = Event { id, ts: BASE - left, k: None, j: None, u: None, w: None, x: None, d: None, f: None, o: None };
        installation.take(&Step::Append(0, vec![tick])).await;
        installation.take(&Step::Checkpoint).await;
        installation.take(&Step::Run).await;
    }
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
        runtime.block_on(hold(&view, first, rounds));
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
