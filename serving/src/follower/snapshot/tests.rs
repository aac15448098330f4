use super::*;

const NOW: Micros = 1_772_452_800_000_000;
const SECOND: Micros = 1_000_000;

fn run(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn published() -> SnapshotFacts {
    SnapshotFacts { published: Some(run(2)), at_hand: None, lost: None, now: NOW }
}

fn lost(number: u128, seconds_ago: Micros) -> Option<LostSnapshot> {
    Some(LostSnapshot { run: run(number), at: NOW - seconds_ago * SECOND, is_foreign: false })
}

#[test]
fn a_view_without_a_published_snapshot_is_answered_without() {
    for at_hand in [None, Some((run(1), false)), Some((run(1), true))] {
        assert_eq!(decide(SnapshotFacts { published: None, at_hand, ..published() }), SnapshotStep::AnswerWithout);
    }
}

#[test]
fn a_copy_of_the_published_snapshot_is_kept_and_one_of_another_replaced() {
    assert_eq!(decide(SnapshotFacts { at_hand: Some((run(2), false)), ..published() }), SnapshotStep::Keep);
    for at_hand in [None, Some((run(1), false)), Some((run(1), true))] {
        assert_eq!(decide(SnapshotFacts { at_hand, ..published() }), SnapshotStep::Open, "{at_hand:?}");
    }
}

#[test]
fn damage_of_the_published_snapshot_is_reported_once_and_opened_again_later() {
    let damaged = SnapshotFacts { at_hand: Some((run(2), true)), ..published() };
    assert_eq!(decide(damaged), SnapshotStep::ReportDamaged);
    let after = |seconds| SnapshotFacts { lost: lost(2, seconds), at_hand: Some((run(1), false)), ..published() };
    assert_eq!(decide(after(0)), SnapshotStep::LeaveAlone(after(0).lost.unwrap()));
    assert_eq!(decide(after(29)), SnapshotStep::LeaveAlone(after(29).lost.unwrap()));
    assert_eq!(decide(after(30)), SnapshotStep::Open);
}

#[test]
fn what_was_lost_of_an_earlier_run_says_nothing_of_the_published_one() {
    assert_eq!(decide(SnapshotFacts { lost: lost(1, 0), ..published() }), SnapshotStep::Open);
}

#[test]
fn a_copy_at_hand_goes_before_an_earlier_failure() {
    let facts = SnapshotFacts { at_hand: Some((run(2), false)), lost: lost(2, 0), ..published() };
    assert_eq!(decide(facts), SnapshotStep::Keep);
}

#[test]
fn a_snapshot_of_another_format_is_opened_once() {
    let foreign = |number| LostSnapshot { run: run(number), at: NOW - 3600 * SECOND, is_foreign: true };
    assert_eq!(decide(SnapshotFacts { lost: Some(foreign(2)), ..published() }), SnapshotStep::LeaveAlone(foreign(2)));
    assert_eq!(decide(SnapshotFacts { lost: Some(foreign(1)), ..published() }), SnapshotStep::Open);
}
