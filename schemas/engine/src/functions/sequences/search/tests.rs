use std::time::Instant;

use super::super::tests::event;
use super::*;

/// Events of one condition each, by its number, at these seconds; 0 is an event that holds none of those asked for.
fn events(of: &[(i64, u32)]) -> Vec<MarkedEvent> {
    of.iter().map(|(second, condition)| event(second * 1_000_000, (1 << condition) >> 1)).collect()
}

fn found(pattern: &str, of: &[(i64, u32)]) -> i64 {
    let pattern = Pattern::parse("sequence_count", pattern, 3).unwrap();
    let mut search = Search::new(&pattern);
    let events = events(of);
    assert_eq!(search.matches(&events), search.count(&events) > 0);
    search.count(&events)
}

/// The examples of ClickHouse's documentation: docs/en/sql-reference/aggregate-functions/parametric-functions.md.
/// Events that hold no condition are not kept: where 3 is no condition, its event is left out.
#[test]
fn the_documented_examples_of_clickhouse_are_answered_as_there() {
    assert_eq!(found("(?1)(?2)", &[(1, 1), (3, 2)]), 1);
    assert_eq!(found("(?1)(?2)", &[(1, 1), (2, 3), (3, 2)]), 0);
    assert_eq!(found("(?1).*(?2)", &[(1, 1), (3, 2), (4, 1), (6, 2)]), 2);
}

#[test]
fn a_time_lets_any_events_lie_between() {
    let of = [(0, 1), (5, 3), (9, 2)];
    assert_eq!(found("(?1)(?t<=9)(?2)", &of), 1);
    assert_eq!(found("(?1)(?t<9)(?2)", &of), 0);
    assert_eq!(found("(?1)(?t>=9)(?2)", &of), 1);
    assert_eq!(found("(?1)(?t>9)(?2)", &of), 0);
    assert_eq!(found("(?1)(?t==9)(?2)", &of), 1);
    assert_eq!(found("(?1)(?t==8)(?2)", &of), 0);
    // Directly after it, with a time.
    assert_eq!(found("(?1)(?2t<=9)", &of), 0);
    assert_eq!(found("(?1)(?3t<=5)(?2t==4)", &of), 1);
    assert_eq!(found("(?1)(?3t<5)", &of), 0);
}

#[test]
fn a_later_beginning_is_found_where_an_earlier_one_fails() {
    assert_eq!(found("(?1)(?t<=2)(?2)", &[(0, 1), (5, 1), (6, 2)]), 1);
    assert_eq!(found("(?1)(?t>=5)(?2)(?3)", &[(0, 1), (5, 2), (6, 2), (7, 3)]), 1);
    assert_eq!(found("(?1)(?t==4)(?2)", &[(0, 1), (1, 1), (3, 1), (5, 2), (7, 2)]), 1);
    assert_eq!(found("(?1)(?t==4)(?2)", &[(0, 1), (1, 1), (3, 1), (5, 2), (6, 1), (7, 2), (10, 2)]), 2);
}

/// Where the sequence ends, a time that the next event would have met is met: as in ClickHouse.
#[test]
fn at_the_end_what_takes_no_event_is_passed() {
    let of = [(0, 1), (1, 2)];
    for (pattern, count) in [("(?2).*", 1), ("(?2)(?t<=5)", 1), ("(?2)(?t>=0)", 1), ("(?2)(?t>0)", 0), ("(?2)(?t==0)", 0), ("(?2).", 0)] {
        assert_eq!(found(pattern, &of), count, "{pattern}");
    }
}

#[test]
fn after_any_number_a_time_is_measured_from_where_that_ends() {
    let of = [(0, 1), (100, 3), (103, 2)];
    assert_eq!(found("(?1).*(?t<=5)(?2)", &of), 1);
    assert_eq!(found("(?1).*(?t>=3)(?2)", &of), 1);
    assert_eq!(found("(?1).*(?t>3)(?2)", &of), 0);
}

/// A pattern on which trying one way after another takes 2^40 steps.
#[test]
fn the_work_is_events_times_parts() {
    let pattern = Pattern::parse("sequence_count", &format!("{}(?2)", "(?1)(?t<=1000000)".repeat(40)), 3).unwrap();
    let of: Vec<MarkedEvent> = (0..100_000).map(|second| event(second * 1_000_000, 1)).collect();
    let begun = Instant::now();
    assert_eq!(Search::new(&pattern).count(&of), 0);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
