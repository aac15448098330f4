use super::*;

#[test]
fn a_lasting_failure_is_reported_at_once_after_any_number_of_ordinary_ones() {
    for before in 0..30 {
        let mut failures = FailureCounts::default();
        for _ in 0..before {
            failures.count(true);
        }
        assert_eq!([failures.count(false), failures.count(false)], [1, 2], "after {before} ordinary ones");
    }
}

#[test]
fn ordinary_failures_are_reported_from_the_eleventh_on() {
    let mut failures = FailureCounts::default();
    let reported: Vec<u64> = (0..13).map(|_| failures.count(true)).collect();
    assert_eq!(reported, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
}

#[test]
fn lasting_failures_do_not_make_an_ordinary_one_reported() {
    let mut failures = FailureCounts::default();
    for _ in 0..20 {
        failures.count(false);
    }
    assert_eq!(failures.count(true), 0);
}
