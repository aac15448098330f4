use definitions::{Definitions, parse};

use crate::functions::Functions;
use crate::plan::{Planned, Planner};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, status TEXT, x BIGINT, amount DECIMAL(18,2)) \
    WITH (event_time = 'ts', key = 'k')";

async fn planned(view: &str) -> Result<Planned, String> {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let planned = Planner::new(&project, Functions::standard()).strict().plan(&view).await;
    planned.map_err(|found| found.0.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("\n"))
}

/// Where a view may compare: what it counts, what it reads, and without an aggregate.
fn views(condition: &str) -> [String; 4] {
    [
        format!("CREATE VIEW v AS SELECT k, count(*) FILTER (WHERE {condition}) AS n FROM s GROUP BY k"),
        format!("CREATE VIEW v AS SELECT k, count(*) AS n FROM s WHERE {condition} GROUP BY k"),
        format!("CREATE VIEW v AS SELECT k, sum(CASE WHEN {condition} THEN 1 ELSE 0 END) AS n FROM s GROUP BY k"),
        format!("CREATE VIEW v AS SELECT k, ts FROM s WHERE {condition}"),
    ]
}

#[tokio::test]
async fn what_no_event_can_be_compared_with_is_refused() {
    let conditions = [
        ("amount > 'abc'", "'abc'"),
        ("ts > '2026-13-01'", "2026-13-01"),
        ("ts > TIMESTAMP 'yesterday'", "yesterday"),
        ("amount BETWEEN 1 AND '10,5'", "10,5"),
        ("amount IN (1, 'x')", "'x'"),
        ("status IN ('a', 5)", "'a'"),
        ("x > 1 / 0", "1 / 0) cannot be computed: division by zero"),
        ("x > CAST('7.5' AS BIGINT)", "'7.5'"),
        ("x > 9223372036854775807 + 1", "9223372036854775807 + 1) cannot be computed: a number is too large"),
        ("x > 2 * -9223372036854775807", "cannot be computed: a number is too large"),
    ];
    for (condition, named) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains(named), "{view}: {found}");
        }
    }
    // A pattern is read where the layers plan what is computed for each event, which a view without an aggregate leaves
    // to those that use it.
    for view in &views("regexp_like(status, '(')")[..3] {
        assert!(planned(view).await.expect_err(view).contains("regex"), "{view}");
    }
    let found = planned("CREATE VIEW v AS SELECT k, count(*) > CAST('many' AS BIGINT) AS n FROM s GROUP BY k").await.unwrap_err();
    assert!(found.contains("'many'"), "{found}");
}

#[tokio::test]
async fn constants_that_can_be_computed_are_taken() {
    let conditions = [
        "amount > '10.5'",
        "ts > '2026-12-01'",
        "ts > TIMESTAMP '2026-12-01 00:00:00' - INTERVAL '1 day'",
        "x > 7 / 2 + CAST('7' AS BIGINT)",
        "x / (x - x) > 1",
        "amount IN (1, '2') OR status IN ('a', 'b')",
        "regexp_like(status, '^a+$')",
        "coalesce(x, 1 + 1) = nullif(2, 3)",
        "CAST(status AS BIGINT) > 5",
        "CASE WHEN x > 0 THEN true ELSE 1 / 0 > 1 END",
    ];
    for condition in conditions {
        for view in views(condition) {
            planned(&view).await.unwrap_or_else(|found| panic!("{view}: {found}"));
        }
    }
}
