use super::*;

const SECOND: Micros = 1_000_000;

fn progress(events_read: i64, events: i64) -> BuildProgress {
    BuildProgress { events, events_read, resumed: 0, began: Some(0) }
}

#[test]
fn what_is_left_is_at_the_pace_so_far() {
    let text = |events_read, seconds: i64| progress(events_read, 1_000).text(seconds * SECOND);
    assert_eq!(text(430, 90), "43 %, about 2 min");
    assert_eq!(text(500, 40), "50 %, about 40 s");
    assert_eq!(text(1, 60), "0 %, about 17 h");
    assert_eq!(text(0, 90), "0 %", "nothing is known of the pace");
    assert_eq!(text(1_000, 90), "99 %, about 1 s", "what is read is still to be written");
    let resumed = |events_read| BuildProgress { resumed: 400, ..progress(events_read, 1_000) }.text(10 * SECOND);
    assert_eq!((resumed(400), resumed(500)), ("40 %".to_owned(), "50 %, about 50 s".to_owned()), "what a run goes on with tells no pace");
    assert_eq!(BuildProgress { began: None, ..progress(0, 1_000) }.text(0), "waits for its run");
}

#[test]
fn the_pace_is_not_past_any_number() {
    let odd = BuildProgress { events: i64::MAX, events_read: 1, resumed: 0, began: Some(i64::MIN) };
    assert_eq!((odd.percent(), odd.seconds_left(i64::MAX).is_some()), (0, true));
    assert_eq!(progress(0, 0).percent(), 0);
    assert_eq!(progress(5, 10).seconds_left(-SECOND), Some(0), "a clock that is behind");
}
