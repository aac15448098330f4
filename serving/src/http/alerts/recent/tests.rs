use proptest::prelude::*;

use super::*;

fn event(revision: i64, seq: i64) -> Arc<TransitionEvent> {
    let place = TransitionPlace { revision, seq };
    Arc::new(TransitionEvent { place, alert: "a".into(), view: None, state: "began", json: "x".repeat(10) })
}

proptest! {
    /// For any sequence of events and any room to keep them: a reader that takes one batch after another gets each
    /// event after its place once, or learns that some are gone. It learns that only if some are.
    #[test]
    fn a_reader_gets_every_event_after_its_place_or_learns_that_some_are_gone(
        commits in proptest::collection::vec(0i64..40, 1..12),
        (events, bytes) in (1usize..200, 1usize..2_000),
        (revision, seq) in (1i64..14, prop_oneof![0i64..40, Just(i64::MAX)]),
    ) {
        let mut recent = Recent::new(TransitionPlace::after(0), Room { events, bytes });
        let (mut all, mut next) = (Vec::new(), 0);
        for (revision, count) in (1..).zip(&commits) {
            let made: Vec<_> = (next..next + count).map(|seq| event(revision, seq)).collect();
            next += count;
            all.extend(made.iter().map(|event| event.place));
            recent.add(EventPiece { events: made, to: TransitionPlace::after(revision) });
        }
        let begin = TransitionPlace { revision, seq };
        let expected: Vec<_> = all.iter().copied().filter(|place| *place > begin).collect();
        let kept = all.len().min(events).min(bytes / 10);
        let (mut place, mut found) = (begin, Vec::new());
        let is_whole = loop {
            let Some(piece) = recent.after(place) else { break false };
            found.extend(piece.events.iter().map(|event| event.place));
            prop_assert!(piece.to >= place && piece.events.len() <= PIECE);
            if piece.to == place {
                break true;
            }
            place = piece.to;
        };
        match is_whole {
            true => prop_assert_eq!(found, expected),
            false => prop_assert!(found.is_empty() && expected.len() > kept, "{} of {} are kept", kept, expected.len()),
        }
    }
}
