use super::*;

const SECOND: Micros = 1_000_000;

#[test]
fn a_clock_is_wrong_from_five_seconds_on_in_either_direction() {
    let clock = WatchedClock::new(CLOCK_DIFFERS);
    let found = |by: Micros| clock.outage(by, |seconds| format!("by {seconds} s")).map(|outage| (outage.what, outage.error));
    assert_eq!([0, 5 * SECOND, -5 * SECOND].map(found), [None, None, None]);
    assert_eq!(found(61 * SECOND + 1), Some((CLOCK_DIFFERS, "by 61 s".to_owned())));
    assert_eq!(found(-7 * SECOND), Some((CLOCK_DIFFERS, "by 7 s".to_owned())));
}

#[test]
fn an_outage_lasts_from_when_the_clock_was_first_found_wrong() {
    let clock = WatchedClock::new(CLOCK_DIFFERS);
    let outage = |by: Micros| clock.outage(by, |seconds| seconds.to_string());
    let first = outage(9 * SECOND).unwrap().lasting;
    let since = clock.since.lock().unwrap().unwrap();
    assert!(outage(30 * SECOND).unwrap().lasting >= first);
    assert_eq!(clock.since.lock().unwrap().unwrap(), since);
    assert_eq!(outage(0), None);
    assert_eq!(*clock.since.lock().unwrap(), None, "the next outage begins anew");
}
