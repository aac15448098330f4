use proptest::prelude::*;

use super::*;

/// A row: the time it is looked at, two times in it, how long after the first one it changes if it does, and whether
/// its outcome is known after that.
type Row = (Micros, Option<Micros>, Option<Micros>, Option<Micros>, bool);

fn column(times: impl Iterator<Item = Option<Micros>>) -> TimestampMicrosecondArray {
    times.collect()
}

/// The changes that are found, and how often all rows were evaluated.
fn found(rows: &[Row]) -> (Vec<Option<Micros>>, usize) {
    let (first, second) = (column(rows.iter().map(|row| row.1)), column(rows.iter().map(|row| row.2)));
    let times: Vec<Micros> = rows.iter().map(|row| row.0).collect();
    let mut evaluated = 0;
    let changes = first_changes(&times, &[&second, &first], |of, times| {
        assert_eq!(of.len(), times.len());
        evaluated += usize::from(of.len() == rows.len());
        let outcome = |(row, time): (&Row, &Micros)| match change(row).is_some_and(|change| *time >= change) {
            true => row.4.then_some(true),
            false => Some(false),
        };
        Ok(rows[of].iter().zip(times).map(outcome).collect())
    });
    (changes.unwrap(), evaluated)
}

fn change((at, time, _, after, _): &Row) -> Option<Micros> {
    after.map(|after| time.unwrap_or(*at) + after)
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let time = || prop::option::weighted(0.9, -1_000_000_000_000i64..1_000_000_000_000);
    // Of many rows that change after the same time, some do not.
    let after = prop::option::weighted(0.9, prop_oneof![6 => Just(30_000_000i64), 1 => 0i64..9_000_000_000_000]);
    prop::collection::vec((-1_000_000i64..1_000_000, time(), time(), after, any::<bool>()), 0..200)
}

proptest! {
    #[test]
    fn each_row_changes_when_its_comparison_does(rows in rows()) {
        let expected: Vec<Option<Micros>> = rows.iter().map(|row| change(row).filter(|change| *change > row.0)).collect();
        prop_assert_eq!(found(&rows).0, expected);
    }
}

#[test]
fn rows_that_change_as_long_after_a_time_of_theirs_are_evaluated_a_few_times() {
    let rows: Vec<Row> = (0..4_096).map(|row| (7, Some(row * row), Some(-row), Some(30_000_000), true)).collect();
    let (changes, evaluated) = found(&rows);
    assert_eq!(changes[4_095], Some(4_095 * 4_095 + 30_000_000));
    // At their time, at the end, and at two guesses by each of the two columns.
    assert_eq!(evaluated, 6);
    // A few rows are bisected.
    assert!(found(&rows[..GUESSED_FROM - 1]).1 > 50);
}
