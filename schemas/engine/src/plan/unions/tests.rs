use crate::plan::{Planned, testing};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT, amount DECIMAL(18,2), price DOUBLE) \
    WITH (event_time = 'ts', key = 'k')";

/// Plans a view over a union of `k` and `v`.
async fn planned(union: &str, is_strict: bool) -> Result<Planned, String> {
    testing::planned(STREAM, &format!("SELECT k, max(v) AS v FROM ({union}) e GROUP BY k"), is_strict).await
}

#[tokio::test]
async fn a_column_of_a_union_has_one_type() {
    for (union, found) in [
        ("SELECT k, amount AS v FROM s UNION ALL SELECT k, price FROM s", "of type DECIMAL(18,2) in one SELECT and DOUBLE in another"),
        ("SELECT k, price AS v FROM s UNION ALL SELECT k, amount FROM s", "of type DOUBLE in one SELECT and DECIMAL(18,2) in another"),
        ("SELECT k, ts AS v FROM s UNION ALL SELECT k, lower(k) FROM s", "of type TIMESTAMPTZ in one SELECT and TEXT in another"),
        ("SELECT k, x AS v FROM s UNION ALL SELECT k, x FROM s UNION ALL SELECT k, lower(k) FROM s", "and TEXT in another"),
        (
            "SELECT k, x AS v FROM s UNION ALL SELECT k, amount FROM s UNION ALL SELECT k, price FROM s",
            "of type DECIMAL(18,2) in one SELECT and DOUBLE in another",
        ),
        ("SELECT k, NULL AS v FROM s UNION ALL SELECT k, lower(k) FROM s UNION ALL SELECT k, ts FROM s", "of type TEXT in one SELECT"),
    ] {
        let refused = planned(union, true).await.map(drop).unwrap_err();
        assert!(refused.contains("the column \"v\" of UNION ALL") && refused.contains(found), "{union}: {refused}");
    }
    for union in [
        "SELECT k, CAST(amount AS DOUBLE) AS v FROM s UNION ALL SELECT k, price FROM s",
        "SELECT k, x AS v FROM s UNION ALL SELECT k, price FROM s",
        "SELECT k, x AS v FROM s UNION ALL SELECT k, amount FROM s",
        "SELECT k, amount AS v FROM s UNION ALL SELECT k, NULL FROM s",
    ] {
        planned(union, true).await.map(drop).unwrap_or_else(|found| panic!("{union}: {found}"));
    }
}

/// An earlier release applied such a view. It goes on as it is.
#[tokio::test]
async fn a_stored_union_is_planned_as_before() {
    let stored = planned("SELECT k, amount AS v FROM s UNION ALL SELECT k, price FROM s", false).await;
    assert!(matches!(stored, Ok(Planned::Stateful(_))), "{stored:?}");
}
