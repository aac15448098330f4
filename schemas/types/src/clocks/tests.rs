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

#[test]
fn a_clock_that_went_back_is_wrong_until_it_is_where_it_was() {
    let latest = LatestTime::default();
    let outage = |now: Micros| latest.outage(now, |seconds| seconds.to_string()).map(|outage| (outage.what, outage.error));
    assert_eq!(outage(0), None, "no time was used yet");
    assert_eq!([10, 3_610, 12, 9].map(|second| latest.note(second * SECOND)), [10, 3_610, 3_610, 3_610].map(|second| second * SECOND));
    assert_eq!(outage(13 * SECOND), Some((CLOCK_WENT_BACK, "3597".to_owned())));
    assert_eq!([3_605, 3_610, 9_999].map(|second| outage(second * SECOND)), [None, None, None]);
}
