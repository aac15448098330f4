use super::*;

const MINUTE: Micros = 60_000_000;
const SEALED_AT: Micros = 1_000 * MINUTE;

#[test]
fn a_version_that_decided_records_by_a_clock_that_is_behind_is_among_the_candidates() {
    let created_after = |minutes: i64| may_have_decided(SEALED_AT + minutes * MINUTE, SEALED_AT);
    assert_eq!([-60, 0, 1, 10].map(created_after), [true; 4]);
    assert_eq!([11, 60].map(created_after), [false; 2]);
}
