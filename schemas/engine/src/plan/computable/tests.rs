use definitions::{Definitions, parse};

use crate::functions::Functions;
use crate::plan::{Planned, Planner};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, status TEXT, x BIGINT, amount DECIMAL(18,2), \
    paid TIMESTAMPTZ) \
    WITH (event_time = 'ts', key = 'k')";

async fn planned(view: &str) -> Result<Planned, String> {
    planned_by(view, Planner::strict).await
}

async fn planned_by(view: &str, planner: impl FnOnce(Planner) -> Planner) -> Result<Planned, String> {
    let view = parse::parse_view(view).unwrap();
    let project = Definitions { streams: vec![parse::parse_stream(STREAM).unwrap()], views: vec![view.clone()], ..Definitions::default() };
    let planned = planner(Planner::new(&project, Functions::standard())).plan(&view).await;
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
        ("regexp_like(status, '(')", "'(') cannot be computed (unclosed group)"),
    ];
    for (condition, named) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains(named), "{view}: {found}");
        }
    }
    let found = planned("CREATE VIEW v AS SELECT k, count(*) > CAST('many' AS BIGINT) AS n FROM s GROUP BY k").await.unwrap_err();
    assert!(found.contains("'many'"), "{found}");
}

#[tokio::test]
async fn what_divides_every_event_by_zero_is_refused() {
    let conditions = [
        ("x / 0 > 1", "x / 0"),
        ("x % 0 = 1", "x % 0"),
        ("x / (1 - 1) > 1", "x / (1 - 1)"),
        ("1 + x / 0 > 1 OR x > 5", "x / 0"),
        ("amount / 0 > 1", "amount / 0"),
        ("amount / 0.00 > 1", "amount / "),
        ("amount % 0 > 1", "amount % 0"),
        ("x / 0.0 > 1", "x / "),
        ("CASE WHEN x / 0 > 1 THEN true ELSE false END", "x / 0"),
    ];
    for (condition, named) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.starts_with("view \"v\": ") && found.contains(named), "{view}: {found}");
            assert!(found.contains("divides by zero: expected a divisor other than 0"), "{view}: {found}");
        }
    }
    let found = planned("CREATE VIEW v AS SELECT k, sum(x) / 0 AS n FROM s GROUP BY k").await.unwrap_err();
    assert!(found.contains("divides by zero"), "{found}");
}

#[tokio::test]
async fn a_unit_that_is_not_known_is_refused_with_those_that_are() {
    let conditions = [
        (
            "date_trunc('fortnight', ts) = ts",
            "date_trunc('fortnight', ts) cannot be computed: 'fortnight' is not a known unit: expected one of \
             microsecond, millisecond, second, minute, hour, day, week, month, quarter, year",
        ),
        ("date_trunc('dow', ts) = ts", "'dow' is not a known unit"),
        ("date_trunc(k, ts) = ts", "k is not a constant unit"),
        ("date_part('fortnight', ts) = 1", "'fortnight' is not a known unit"),
        ("date_part('fortnight', ts - INTERVAL '1 day') = 1", "month, quarter, year, isoyear, epoch"),
        ("date_part('fortnight', ts - paid) = 1", "expected one of day, week, epoch"),
    ];
    for (condition, named) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains(named), "{view}: {found}");
        }
    }
}

#[tokio::test]
async fn an_operator_that_cannot_be_computed_is_refused() {
    let of_arrays = "compares arrays, and this is a text: expected an array on each side; of a JSON, payload ->> 'a'";
    let conditions = [
        ("status @> '{}'", "(status @> '{}') cannot be computed: @> ", of_arrays),
        ("'{}' <@ status", "('{}' <@ status) cannot be computed: <@ ", of_arrays),
        ("CASE WHEN x > 0 THEN status @> k ELSE true END", "(status @> k) cannot be computed: @> ", of_arrays),
        ("status @@ 'paid'", "(status @@ 'paid') cannot be computed: ", "there is no text search: expected LIKE"),
    ];
    for (condition, named, reason) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view).replace("\"status\"", "status");
            assert!(found.contains(named) && found.contains(reason), "{view}: {found}");
        }
    }
    for view in views("string_to_array(status, ',') @> ARRAY['paid', k] OR ARRAY[k] <@ make_array(status)") {
        planned(&view).await.unwrap_or_else(|found| panic!("{view}: {found}"));
    }
}

/// `date_part('minute', ..)` of 25 hours would be 1,500. In PostgreSQL it is 0.
#[tokio::test]
async fn a_part_of_a_difference_of_times_is_refused_where_it_would_be_all_of_it() {
    let units = ["hour", "minute", "mins", "second", "millisecond", "microsecond", "nanosecond"];
    let calls = units.map(|unit| format!("date_part('{unit}', ts - paid)")).into_iter();
    for call in calls.chain(["extract(minute FROM ts - paid)".to_owned()]) {
        for view in views(&format!("{call} > 5")) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains("is not that of PostgreSQL: expected date_part('epoch', (ts - paid)), its seconds"), "{view}: {found}");
        }
    }
    for condition in [
        "date_part('epoch', ts - paid) > 5 AND date_part('day', ts - paid) > 5",
        "date_part('minute', ts) > 5 AND extract(hour FROM INTERVAL '25 hours') > 5",
    ] {
        for view in views(condition) {
            planned(&view).await.unwrap_or_else(|found| panic!("{view}: {found}"));
        }
    }
}

#[tokio::test]
async fn an_invalid_pattern_is_refused_in_every_function() {
    let conditions = [
        ("status ~ '('", "unclosed group"),
        ("status !~* '('", "unclosed group"),
        ("regexp_like(status, '(', 'm')", "unclosed group"),
        ("regexp_like(status, 'a', 'z')", "unrecognized flag"),
        ("regexp_match(status, '(') IS NULL", "unclosed group"),
        ("regexp_replace(status, '(', '') = 'a'", "unclosed group"),
        ("regexp_replace(status, '(', k, 'g') = 'a'", "unclosed group"),
        ("regexp_count(status, '(') > 1", "did not compile"),
        ("regexp_instr(status, '(') > 1", "did not compile"),
        ("regexp_like(status, '(' || ')(')", "unclosed group"),
    ];
    for (condition, reason) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains(reason) && found.contains(": expected a valid regular expression"), "{view}: {found}");
        }
    }
}

#[tokio::test]
async fn a_pattern_of_postgresql_is_refused_in_a_new_definition_with_that_of_chrono() {
    let conditions = [
        ("to_char(ts, 'YYYY-MM-DD') = k", "PostgreSQL's pattern 'YYYY-MM-DD': expected '%Y-%m-%d'"),
        ("date_format(ts, 'hh24:mi') = k", "PostgreSQL's pattern 'hh24:mi': expected '%H:%M'"),
        ("to_char(ts, 'Month') = k", "PostgreSQL's pattern 'Month': found Month, expected fields that begin with %"),
        ("CASE WHEN x > 0 THEN to_char(ts, 'YYYY') ELSE k END = k", "PostgreSQL's pattern 'YYYY': expected '%Y'"),
    ];
    for (condition, expected) in conditions {
        for view in views(condition) {
            let found = planned(&view).await.expect_err(&view);
            assert!(found.contains(&format!("to_char in a definition does not read {expected}")), "{view}: {found}");
            planned_by(&view, |planner| planner).await.unwrap_or_else(|found| panic!("stored {view}: {found}"));
        }
    }
    for condition in ["to_char(ts, '%Y-%m-%d') = k", "to_char(ts, k) = k", "to_char(ts - paid, 'ISO8601') = k", "to_char(ts, '-') = k"] {
        for view in views(condition) {
            planned(&view).await.unwrap_or_else(|found| panic!("{view}: {found}"));
        }
    }
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
        "CASE WHEN x <> 0 THEN 7 / x > 1 ELSE x / 0 > 1 END",
        "x / nullif(x, 0) > 1 AND x % 2 = 1 AND amount / 2 > 1",
        "CAST(x AS DOUBLE) / 0 > 1",
        "date_trunc('DAY', ts) = ts OR date_part('epoch', ts) > 5.5 OR extract(dow FROM ts) = 1",
        "status ~ 'a|b' OR status ~ k OR regexp_like(status, k) OR regexp_like(status, 'a', '')",
        "regexp_replace(status, '(a)', '\\1', 'g') = 'a' OR regexp_replace(status, k, status, 'i') = 'a'",
        "regexp_count(status, 'a', 1, 'i') > 1 OR regexp_instr(status, k, x) > 1",
        "regexp_match(status, '(a)(b)', 'i') IS NULL",
    ];
    for condition in conditions {
        for view in views(condition) {
            planned(&view).await.unwrap_or_else(|found| panic!("{view}: {found}"));
        }
    }
}
