use super::*;

const SECOND: Micros = 1_000_000;

fn compared(before: i64, server: i64, after: i64) -> ClockComparison {
    ClockComparison { before: before * SECOND, server: server * SECOND, after: after * SECOND }
}

#[test]
fn the_time_that_an_answer_takes_is_no_difference() {
    assert_eq!([compared(100, 100, 160), compared(100, 130, 160), compared(100, 160, 160)].map(ClockComparison::ahead), [0, 0, 0]);
    assert_eq!(compared(100, 70, 160).ahead(), 30 * SECOND);
    assert_eq!(compared(100, 190, 160).ahead(), -30 * SECOND);
}

#[test]
fn clocks_that_differ_are_an_outage_until_they_agree() {
    let clock = ComparedClock::default();
    assert_eq!(clock.outage(), None);
    for (server, error) in [(70, "it is 30 s ahead"), (110, "it is 9 s behind")] {
        clock.note(compared(100, server, 101));
        let outage = clock.outage().unwrap();
        assert_eq!((outage.what, outage.error.as_str()), (CLOCK_DIFFERS, error));
    }
    assert_eq!(clock.note(compared(100, 97, 101)), 3 * SECOND);
    assert_eq!(clock.outage(), None);
}

#[test]
fn clocks_are_compared_once_a_minute() {
    let (clock, begun) = (ComparedClock::default(), Instant::now());
    let is_due = |seconds| clock.is_due(begun + Duration::from_secs(seconds));
    assert_eq!([0, 1, 59, 60, 61, 119, 120].map(is_due), [true, false, false, true, false, false, true]);
}
