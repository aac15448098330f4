use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::FunctionRegistry;
use datafusion::prelude::SessionContext;

use super::*;
use crate::functions::Functions;
use crate::plan::{planning_session, session_builder};
use types::{ErrorKind, Result};

async fn answer(session: &SessionContext, sql: &str) -> Result<String> {
    Ok(pretty_format_batches(&session.sql(sql).await?.collect().await?).unwrap().to_string())
}

#[test]
fn each_function_whose_argument_makes_it_large_is_bounded_under_all_its_names() {
    let session = planning_session(&Functions::standard()).unwrap();
    let by_number = ["repeat", "lpad", "rpad", "range", "generate_series", "array_repeat", "list_repeat", "array_resize", "list_resize"];
    let by_text = ["replace", "regexp_replace", "array_to_string", "list_to_string", "array_join", "list_join", "encode", "levenshtein"];
    for name in by_number.into_iter().chain(by_text) {
        assert!(session.udf(name).unwrap().inner().is::<Wrapped<Growth>>(), "{name}");
    }
    assert!(!session.udf("upper").unwrap().inner().is::<Wrapped<Growth>>());
}

#[tokio::test]
async fn a_value_past_the_bound_is_refused_and_never_made() {
    let session = planning_session(&Functions::standard()).unwrap();
    let calls = [
        ("repeat", "repeat('x', 2000000000)"),
        ("repeat", "repeat('x', CAST(value AS BIGINT) * 100000)"),
        ("lpad", "lpad('x', 300000000, 'y')"),
        ("lpad", "lpad(CAST(value AS TEXT), 20000)"),
        ("rpad", "rpad('x', 2000000000)"),
        ("range", "range(1, 100000000000)"),
        ("range", "range(-9000000000000000000, 9000000000000000000)"),
        ("range", "range(9000, 0, -1)"),
        ("range", "range(value * 100000)"),
        ("generate_series", "generate_series(1, 200000000)"),
        ("generate_series", "generate_series(DATE '0001-01-01', DATE '9999-12-31', INTERVAL '1 day')"),
        ("generate_series", "generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2025-01-01', INTERVAL '1 second')"),
        ("range", "range(TIMESTAMP '2024-01-01', TIMESTAMP '2025-01-01', INTERVAL '1 nanosecond')"),
        ("array_repeat", "array_repeat(NULL, 1000000000)"),
        ("array_repeat", "array_repeat(array_repeat(array_repeat(1, 2000), 2000), 2000)"),
        ("array_repeat", "list_repeat(repeat('x', 1000), 1000)"),
        ("array_resize", "array_resize([1], 400000000, 0)"),
        ("array_resize", "list_resize([CAST(value AS TEXT)], 1000000)"),
        ("array_resize", "array_resize(['a'], 1000, repeat('x', 1000))"),
        // Hundreds of megabytes each, and gigabytes.
        ("replace", "replace(repeat('a', 60000), 'a', repeat('b', 60000))"),
        ("replace", "replace(repeat('a', 60000), left('ab', CAST(value AS INT)), repeat('b', 60000))"),
        ("regexp_replace", "regexp_replace(repeat('a', 60000), 'a', repeat('b', 60000), 'g')"),
        ("regexp_replace", "regexp_replace(repeat('a', 60000), '(.*)', repeat('\\1', 30000))"),
        ("array_to_string", "array_to_string(range(8000), repeat('x', 60000))"),
        ("array_to_string", "array_join(array_repeat(range(90), 90), ',', repeat('x', 60000))"),
    ];
    for (name, call) in calls {
        let sql = format!("SELECT {call} FROM generate_series(1, 3)");
        let error = answer(&session, &sql).await.expect_err(call);
        let message = error.to_string();
        assert!(error.kind() == ErrorKind::Input && message.contains(&format!("{name} makes a value of")), "{call}: {message}");
    }
}

#[tokio::test]
async fn encoded_texts_do_not_double_without_end() {
    let session = planning_session(&Functions::standard()).unwrap();
    let nested = |calls: usize| (0..calls).fold("repeat('x', 6000)".to_owned(), |text, _| format!("encode({text}, 'hex')"));
    let short = answer(&session, &format!("SELECT length({}) AS n", nested(2))).await.unwrap();
    assert!(short.contains("24000"), "{short}");
    let message = answer(&session, &format!("SELECT length({})", nested(10))).await.unwrap_err().to_string();
    assert!(message.contains("encode makes a value of"), "{message}");
}

/// Of constants it is computed while a query is planned: no cancel and no time limit ends it then.
#[tokio::test]
async fn long_texts_are_not_compared_letter_by_letter() {
    let session = planning_session(&Functions::standard()).unwrap();
    for other in ["repeat('b', 20000)", "repeat('b', 20000 + CAST(value AS INT))"] {
        let error = answer(&session, &format!("SELECT levenshtein(repeat('a', 20000), {other}) FROM range(1)")).await.expect_err(other);
        assert!(error.to_string().starts_with("levenshtein takes 400000000 steps for a value: expected at most"), "{other}: {error}");
    }
    let short = answer(&session, "SELECT levenshtein(repeat('a', 200), repeat('b', 300)) AS distance").await.unwrap();
    assert!(short.contains("300"), "{short}");
}

/// Adding a month less 31 days to 1 January gives 1 January.
#[tokio::test]
async fn a_series_whose_step_points_both_ways_is_refused() {
    let session = planning_session(&Functions::standard()).unwrap();
    for (from, to, step) in [("2024-02-01", "2024-01-01", "1 month -31 days"), ("2024-01-01", "2024-02-01", "-1 month 31 days")] {
        for (kind, call) in [("DATE", "range"), ("DATE", "generate_series"), ("TIMESTAMP", "generate_series")] {
            let sql = format!("SELECT {call}({kind} '{from}', {kind} '{to}', INTERVAL '{step}')");
            let message = answer(&session, &sql).await.expect_err(&sql).to_string();
            assert!(message.contains("both ways"), "{sql}: {message}");
        }
    }
}

#[tokio::test]
async fn the_values_of_a_batch_are_bounded_together() {
    let session = planning_session(&Functions::standard()).unwrap();
    for call in ["length(repeat('x', 60000 + value % 2))", "length(lpad(CAST(value AS TEXT), 16000))"] {
        let message = answer(&session, &format!("SELECT sum({call}) FROM generate_series(1, 8192)")).await.expect_err(call).to_string();
        assert!(message.contains("rows at once"), "{call}: {message}");
        assert!(answer(&session, &format!("SELECT sum({call}) FROM generate_series(1, 20)")).await.is_ok(), "{call}");
    }
    let constant =
        answer(&session, "SELECT sum(length(lpad('x', 16000)) + value - value) AS n FROM generate_series(1, 8192)").await.unwrap();
    assert!(constant.contains("131072000"), "one constant stands for all rows: {constant}");
}

#[tokio::test]
async fn within_the_bound_the_answers_are_those_of_datafusion() {
    let bounded = planning_session(&Functions::standard()).unwrap();
    let plain = SessionContext::new_with_state(session_builder().build());
    let calls = [
        "lpad(CAST(value AS TEXT), 10, '0')",
        "lpad('abcdef', value)",
        "rpad('x', 3, CAST(value AS TEXT))",
        "rpad('x', CAST(NULL AS BIGINT), '-')",
        "lpad('x', -1, '')",
        "repeat('ab', value)",
        "repeat('', 1000000000)",
        "repeat(nullif(CAST(value AS TEXT), '2'), -value)",
        "repeat('ab', CAST(NULL AS BIGINT))",
        "range(value)",
        "range(5, value)",
        "range(9000000000000000000, value, 7)",
        "range(CAST(NULL AS BIGINT), value)",
        "range(nullif(value, 2), 5, 2)",
        "generate_series(5, value, -1)",
        "generate_series(DATE '2024-01-31', DATE '2024-05-01', INTERVAL '1 month')",
        "generate_series(DATE '2024-05-01', DATE '2024-01-31', INTERVAL '-1 month')",
        "generate_series(DATE '9999-01-01', DATE '2024-01-01', INTERVAL '1 day')",
        "range(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02', INTERVAL '6 hours')",
        "array_repeat('x', value)",
        "array_repeat([1, NULL], 2)",
        "array_repeat(CAST(NULL AS TEXT), 3)",
        "list_repeat(value, CAST(NULL AS BIGINT))",
        "array_resize([1, 2, 3], value)",
        "array_resize([1, 2, 3], 5, value)",
        "list_resize(['a'], 3, 'b')",
        "array_resize(CASE WHEN value = 2 THEN NULL ELSE [value] END, 2)",
        "replace(repeat('ab', value), 'a', 'xyz')",
        "replace('abc', '', repeat('x', value))",
        "replace(nullif(CAST(value AS TEXT), '2'), '1', 'one')",
        "regexp_replace(repeat('ab', value), '(a)', '\\1\\1', 'g')",
        "regexp_replace('aaa', 'a', 'b')",
        "array_to_string(range(value), ', ')",
        "array_to_string([1, NULL, value], '-', 'none')",
    ];
    for call in calls {
        let sql = format!("SELECT value, {call} AS answer FROM generate_series(1, 4) ORDER BY value");
        let expected = answer(&plain, &sql).await.unwrap_or_else(|error| panic!("{call}: {error}"));
        let found = answer(&bounded, &sql).await.unwrap_or_else(|error| panic!("{call}: {error}"));
        assert_eq!(found, expected, "{call}");
    }
}

#[tokio::test]
async fn what_the_functions_refuse_they_refuse_themselves() {
    let bounded = planning_session(&Functions::standard()).unwrap();
    let plain = SessionContext::new_with_state(session_builder().build());
    let calls = ["range(1, 5, 0)", "range('x', 1)", "repeat(1)", "array_resize([1], -1)", "array_resize(1, 2)", "lpad('x')"];
    for call in calls {
        let sql = format!("SELECT {call}");
        let expected = answer(&plain, &sql).await.expect_err(call).to_string();
        assert_eq!(answer(&bounded, &sql).await.expect_err(call).to_string(), expected, "{call}");
    }
}
