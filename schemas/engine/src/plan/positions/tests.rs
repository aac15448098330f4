use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::keep_numbered_keys;
use crate::plan::{Planned, testing};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (event_time = 'ts', key = 'k')";

async fn planned(select: &str, is_strict: bool) -> Result<Planned, String> {
    testing::planned(STREAM, select, is_strict).await
}

#[tokio::test]
async fn a_key_that_would_be_read_as_the_position_of_another_column_is_refused_where_it_is() {
    for (select, name, number) in [
        ("SELECT 2 AS two, k, count(*) AS n FROM s GROUP BY two", "two", 2),
        ("SELECT (2) AS \"Two\", k, count(*) AS n FROM s GROUP BY (\"Two\")", "\"Two\"", 2),
        ("SELECT k, 1 AS one, count(*) AS n FROM s GROUP BY k, ONE", "ONE", 1),
        ("SELECT 7 AS seven, k, count(*) AS n FROM s GROUP BY seven, k", "seven", 7),
    ] {
        let refused = planned(select, true).await.map(drop).unwrap_err();
        let place = "CREATE VIEW v AS ".len() + select.rfind(name).unwrap() + 1;
        let message = format!("GROUP BY {name} would be read as the position of a column: it is an alias of the number {number}");
        assert_eq!(refused, format!("{place} view \"v\": {message}"), "{select}");
    }
    for select in [
        "SELECT 1 AS one, count(*) AS n FROM s GROUP BY one",
        "SELECT CAST(2 AS BIGINT) AS two, k, count(*) AS n FROM s GROUP BY two, k",
        "SELECT 2 AS two, k, count(*) AS n FROM s GROUP BY k",
        "SELECT 'a' AS a, k, count(*) AS n FROM s GROUP BY a, k",
        "SELECT k, count(*) AS n FROM s GROUP BY 1",
    ] {
        planned(select, true).await.map(drop).unwrap_or_else(|found| panic!("{select}: {found}"));
    }
}

/// An earlier release applied such a view, which groups by `k`. It goes on as it is.
#[tokio::test]
async fn a_stored_view_is_planned_as_before() {
    let stored = planned("SELECT 2 AS two, k, count(*) AS n FROM s GROUP BY two", false).await;
    let Ok(Planned::Stateful(plan)) = &stored else { panic!("{stored:?}") };
    assert_eq!(plan.keys.iter().map(|key| key.name().as_str()).collect::<Vec<_>>(), ["k"]);
}

#[test]
fn the_numbers_of_a_query_are_no_positions() {
    for (query, expected) in [
        ("SELECT 2 AS two, k FROM v GROUP BY two", "SELECT CAST(2 AS BIGINT) AS two, k FROM v GROUP BY two"),
        ("SELECT 2 AS two, k FROM v GROUP BY k", "SELECT 2 AS two, k FROM v GROUP BY k"),
        ("SELECT * FROM (SELECT -1 AS a FROM v GROUP BY A) AS t", "SELECT * FROM (SELECT CAST(-1 AS BIGINT) AS a FROM v GROUP BY A) AS t"),
    ] {
        let mut parsed = Parser::parse_sql(&GenericDialect {}, query).unwrap();
        keep_numbered_keys(&mut parsed[0]);
        assert_eq!(parsed[0].to_string(), expected);
    }
}
