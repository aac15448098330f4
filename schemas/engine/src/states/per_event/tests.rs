use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Decimal128Type, Int64Type};
use proptest::prelude::*;

use super::*;
use crate::plan::StateIndex;
use crate::states::Partial;
use crate::states::testing::{events, planned, session};
use crate::steps::REASON_CHARACTERS;

/// What a view does with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Fails,
    Filtered,
    /// It is counted, and its value is added.
    Adds(i64),
}

use Outcome::{Adds, Fails, Filtered};

type Case = (&'static str, fn(&str, i64) -> Outcome);

/// Each view sums one value, here computed without SQL.
const CASES: [Case; 9] = [
    // One more digit than a decimal has, in bits that hold it.
    (
        "SELECT k, sum(CASE WHEN CAST('99999999999999999999999999999999999999' AS DECIMAL(38,0)) + x IS NOT NULL THEN x END) AS v \
         FROM s GROUP BY k",
        |_, x| if x > 0 { Fails } else { Adds(x) },
    ),
    ("SELECT k, sum(100 / x) AS v FROM s GROUP BY k", |_, x| 100i64.checked_div(x).map_or(Fails, Adds)),
    ("SELECT k, sum(x * 3000000000) AS v FROM s GROUP BY k", |_, x| x.checked_mul(3_000_000_000).map_or(Fails, Adds)),
    ("SELECT k, sum(-x) AS v FROM s GROUP BY k", |_, x| x.checked_neg().map_or(Fails, Adds)),
    ("SELECT k, sum(CAST(k AS BIGINT)) AS v FROM s GROUP BY k", |k, _| k.parse().map_or(Fails, Adds)),
    ("SELECT 100 / x AS q, sum(1) AS v FROM s GROUP BY q", |_, x| if x == 0 { Fails } else { Adds(1) }),
    ("SELECT k, sum(1) AS v FROM s WHERE x <> 0 AND 100 / x > 4 GROUP BY k", |_, x| match x {
        0 => Filtered,
        x if 100 / x > 4 => Adds(1),
        _ => Filtered,
    }),
    ("SELECT k, sum(100 / x) FILTER (WHERE x <> 0) AS v FROM s GROUP BY k", |_, x| Adds(100i64.checked_div(x).unwrap_or(0))),
    (
        "SELECT k, sum(y) AS v FROM (SELECT k, x, CASE WHEN x <> 0 THEN 100 / x END AS y FROM s WHERE x < 100) AS t WHERE y > 0 GROUP BY k",
        |_, x| match 100i64.checked_div(x) {
            Some(y) if x < 100 && y > 0 => Adds(y),
            _ => Filtered,
        },
    ),
];

fn event() -> impl Strategy<Value = (&'static str, i64)> {
    let key = prop::sample::select(vec!["1", "22", "-3", "x", ""]);
    let number = prop_oneof![8 => -3..6i64, 1 => Just(10_000_000_000_000), 1 => Just(i64::MIN)];
    (key, number)
}

/// Returns the failing offsets, the number of events in the states, and the sum of their values.
fn computed(sql: &str, rows: &[(&str, i64)], cuts: &BTreeSet<usize>) -> (Vec<i64>, i64, i128) {
    let plan = Arc::new(planned(&format!("CREATE VIEW v AS {sql}")));
    let named: Vec<(String, i64, i64)> = rows.iter().map(|(key, x)| ((*key).to_owned(), *x, 0)).collect();
    let whole = events(&named);
    let mut partial = Partial::new(plan.clone(), &session()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let edges: Vec<usize> = cuts.iter().copied().filter(|cut| *cut < rows.len()).chain([rows.len()]).collect();
    let (mut from, mut count, mut sum) = (0, 0, 0);
    for to in edges {
        let states = runtime.block_on(partial.states("s", &[whole.slice(from, to - from)])).unwrap();
        for batch in &states {
            let (counts, sums) = (batch.column(plan.state_offset(StateIndex(0))), batch.column(plan.state_offset(StateIndex(1))));
            count += counts.as_primitive::<Int64Type>().values().iter().sum::<i64>();
            sum += sums.as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        }
        from = to;
    }
    (partial.take_failures().listed().map(|failure| failure.offset.0).collect(), count, sum)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn events_fail_alone_however_they_are_batched(
        rows in prop::collection::vec(event(), 1..200),
        cuts in prop::collection::btree_set(1..200usize, 0..6),
    ) {
        for (sql, outcome) in CASES {
            let outcomes: Vec<Outcome> = rows.iter().map(|(key, x)| outcome(key, *x)).collect();
            let failing: Vec<i64> = (0i64..).zip(&outcomes).filter(|(_, outcome)| **outcome == Fails).map(|(offset, _)| offset).collect();
            let values: Vec<i128> = outcomes.iter().filter_map(|outcome| if let Adds(value) = outcome { Some((*value).into()) } else { None }).collect();
            prop_assert_eq!(computed(sql, &rows, &cuts), (failing, values.len() as i64, values.iter().sum()), "{}", sql);
        }
    }
}

#[test]
fn a_failure_says_where_and_why() {
    let plan = planned("CREATE VIEW v AS SELECT k, sum(100 / x) AS v FROM s GROUP BY k");
    let mut partial = Partial::new(Arc::new(plan), &session()).unwrap();
    let rows: Vec<(String, i64, i64)> = (0..100).map(|x| ("a".to_owned(), x - 70, 0)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(partial.states("s", &[events(&rows)])).unwrap();
    let failures = partial.take_failures();
    let texts: Vec<String> = failures.listed().map(|failure| failure.to_string()).collect();
    assert_eq!(texts, ["the event at offset 70 of s/0 fails: division by zero"]);
    assert!(partial.take_failures().is_empty(), "they are taken once");
}

#[test]
fn a_reason_is_short_however_long_the_value_is() {
    let plan = planned("CREATE VIEW v AS SELECT sum(CAST(k AS BIGINT)) AS v FROM s");
    let mut partial = Partial::new(Arc::new(plan), &session()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(partial.states("s", &[events(&[("\u{1F600}".repeat(100_000), 1, 0)])])).unwrap();
    let reason = partial.take_failures().listed().next().unwrap().reason;
    assert!(reason.starts_with("cannot cast string '\u{1F600}") && reason.ends_with("\u{1F600} .."), "{reason}");
    assert_eq!(reason.chars().count(), REASON_CHARACTERS + 3);
}

#[test]
fn a_view_that_refuses_ends_at_the_event() {
    let plan = planned("CREATE VIEW v WITH (on_error = 'refuse') AS SELECT k, sum(100 / x) AS v FROM s GROUP BY k");
    let mut partial = Partial::new(Arc::new(plan), &session()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rows: Vec<(String, i64, i64)> = (0..3).map(|x| ("a".to_owned(), x - 1, 0)).collect();
    let error = runtime.block_on(partial.states("s", &[events(&rows)])).unwrap_err();
    assert_eq!(error.kind(), types::ErrorKind::Input);
    assert!(error.to_string().contains("the event at offset 1 of s/0 fails"), "{error}");
    assert!(partial.take_failures().is_empty());
}

#[test]
fn only_expressions_that_can_fail_are_searched() {
    let can_fail = |select: &str| {
        let plan = planned(&format!("CREATE VIEW v AS {select}"));
        PerEvent::plan(&plan, &session()).unwrap().iter().any(PerEvent::can_fail)
    };
    assert!(!can_fail("SELECT k, sum(x) AS v FROM s WHERE x > 3 AND k IS NOT NULL GROUP BY k"));
    assert!(!can_fail("SELECT k, count(*) FILTER (WHERE x = 1 OR NOT k = 'a') AS v FROM s GROUP BY k"));
    assert!(can_fail("SELECT k, sum(x + 1) AS v FROM s GROUP BY k"));
    assert!(can_fail("SELECT k, sum(1) FILTER (WHERE 100 / x > 4) AS v FROM s GROUP BY k"));
}
