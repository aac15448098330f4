use super::*;

#[test]
fn a_stream_is_named_if_most_rows_lie_before_its_first_event() {
    let arrival = |rows_before: u64, first: Option<i64>| FirstArrival { stream: "s".into(), first, rows_before };
    let named = |rows: u64, arrival: FirstArrival| not_arrived(rows, vec![arrival]).len() == 1;
    for (rows, before, expected) in [(0, 0, false), (1, 0, false), (1, 1, true), (4, 2, false), (4, 3, true), (5, 2, false), (5, 3, true)] {
        assert_eq!(named(rows, arrival(before, Some(0))), expected, "{before} of {rows}");
    }
    let found = not_arrived(4, vec![arrival(4, Some(0)), arrival(1, None), arrival(4, None)]);
    let first = |first: Option<&str>| NotArrived { stream: "s".to_owned(), rows: 4, first: first.map(str::to_owned) };
    assert_eq!(found, [first(Some("1970-01-01T00:00:00Z")), first(None)]);
}
