use super::is_no_aggregate;
use crate::plan::{Planned, testing};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (event_time = 'ts', key = 'k')";

/// Plans a view with this column. What is refused is its place and its message.
async fn planned(column: &str, is_strict: bool) -> Result<Planned, String> {
    testing::planned(STREAM, &format!("SELECT k, {column} AS n FROM s GROUP BY k"), is_strict).await
}

#[tokio::test]
async fn a_clause_that_a_call_would_ignore_is_refused_where_it_is() {
    for (column, found) in [
        ("coalesce(sum(x), 0) FILTER (WHERE x > 1)", "FILTER of a function that is no aggregate is not kept: coalesce()"),
        ("round(avg(x), 2) FILTER (WHERE within(ts, '7d'))", "FILTER of a function that is no aggregate is not kept: round()"),
        ("abs(DISTINCT sum(x))", "DISTINCT in a function that is no aggregate is not kept: abs()"),
        ("nullif(sum(x), 0 ORDER BY 1)", "ORDER BY in a function that is no aggregate is not kept: nullif()"),
        ("corr(DISTINCT x, x)", "DISTINCT in an aggregate of each row is not kept: corr()"),
        ("regr_count(DISTINCT x, x) FILTER (WHERE x > 1)", "DISTINCT in an aggregate of each row is not kept: regr_count()"),
        ("approx_percentile_cont(DISTINCT x, 0.5)", "DISTINCT in an aggregate of each row is not kept: approx_percentile_cont()"),
        ("bit_xor(DISTINCT x)", "DISTINCT in bit_xor is not kept: bit_xor()"),
        ("sum(5)(x)", "a call with two lists of arguments is not kept: sum()"),
    ] {
        let refused = planned(column, true).await.map(drop).unwrap_err();
        assert_eq!(refused, format!("28 view \"v\": {found}"), "{column}");
    }
    for column in [
        "coalesce(sum(x) FILTER (WHERE x > 1), 0)",
        "count(DISTINCT x)",
        "var_pop(DISTINCT x)",
        "bit_xor(x)",
        "last_n(x, 2 ORDER BY ts)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
        "zscore(sum(x), 1, 2)",
    ] {
        planned(column, true).await.map(drop).unwrap_or_else(|found| panic!("{column}: {found}"));
    }
}

#[tokio::test]
async fn a_distinct_from_without_brackets_is_refused() {
    let column = "count(*) FILTER (WHERE x > 1 IS DISTINCT FROM true AND k = 'a')";
    let refused = planned(column, true).await.map(drop).unwrap_err();
    assert!(refused.contains("IS DISTINCT FROM lacks brackets"), "{refused}");
    planned(column, false).await.map(drop).unwrap();
    planned("count(*) FILTER (WHERE (x > 1 IS DISTINCT FROM true) AND k = 'a')", true).await.map(drop).unwrap();
}

/// An earlier release applied such a view. It goes on as it is.
#[tokio::test]
async fn a_stored_view_is_planned_as_before() {
    let stored = planned("coalesce(sum(x), 0) FILTER (WHERE x > 1)", false).await;
    assert!(matches!(stored, Ok(Planned::Stateful(_))), "{stored:?}");
}

#[test]
fn no_aggregate_is_taken_for_another_function() {
    for aggregate in datafusion::functions_aggregate::all_default_aggregate_functions() {
        assert!(!is_no_aggregate(aggregate.name()), "{}", aggregate.name());
    }
}
