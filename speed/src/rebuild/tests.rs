use catalog::GapRecord;
use uuid::Uuid;

use super::*;

fn range(start: i64, end: i64, clock: Micros) -> CheckpointRange {
    CheckpointRange {
        clock: Some(clock),
        max_event_time: Some(clock - 1),
        ..CheckpointRange::of_events(PartitionId::new("s", 0), start, end)
    }
}

fn state(ranges: &[CheckpointRange]) -> CatalogState {
    let checkpoint = |range: &CheckpointRange| CheckpointRecord {
        id: Uuid::now_v7(),
        worker: "w".into(),
        committed_at: 0,
        revision: 0,
        ranges: vec![range.clone()],
    };
    CatalogState { checkpoints: ranges.iter().map(checkpoint).collect(), ..CatalogState::default() }
}

#[test]
fn a_partitions_values_before_a_range_are_those_of_the_checkpoint_that_ends_there() {
    let id = PartitionId::new("s", 0);
    let mut state = state(&[range(0, 10, 5), range(10, 20, 7), range(25, 30, 9)]);
    assert_eq!(values_before(&state, &id, Offset(0)).unwrap(), ValuesBefore::default());
    assert_eq!(values_before(&state, &id, Offset(10)).unwrap(), ValuesBefore { clock: Some(5), max_event_time: Some(4) });
    assert_eq!(values_before(&state, &id, Offset(20)).unwrap().clock, Some(7));
    let error = values_before(&state, &id, Offset(25)).unwrap_err();
    assert!(error.to_string().contains("s/0") && error.to_string().contains("25"), "{error}");
    let gap = GapRecord { partition: id.clone(), start: Offset(20), end: Offset(25), reason: "expired".into(), accepted_at: 0 };
    state.gaps.push(gap);
    assert_eq!(values_before(&state, &id, Offset(25)).unwrap().clock, Some(7), "a gap moves no clock");
}

#[test]
fn other_counts_and_other_clocks_are_refused_with_both() {
    let recorded = range(0, 10, 5);
    assert!(check_counts(&recorded, &recorded).is_ok());
    let fewer = CheckpointRange { archived: 9, absent: 1, ..recorded.clone() };
    let error = check_counts(&recorded, &fewer).unwrap_err();
    assert!(error.to_string().contains("found: 9 archived") && error.to_string().contains("expected: 10 archived"), "{error}");
    assert!(check_counts(&recorded, &CheckpointRange { clock: None, ..recorded.clone() }).is_err());
}
