use types::ErrorKind;

use super::super::{casts, function_names, statement};
use super::*;

/// Each level writes its operand several times.
fn nested(levels: usize, before: &str, after: &str) -> String {
    format!("SELECT {}1{}", before.repeat(levels), after.repeat(levels))
}

fn rewritten(sql: &str) -> Result<usize> {
    let state = engine::plan::query_session_builder().with_default_features().build();
    let mut statement = statement::read(sql)?.statement;
    function_names::rewrite(&mut statement)?;
    casts::rewrite(&mut statement)?;
    check_planned(&mut statement, &state)?;
    Ok(statement.to_string().len())
}

#[test]
fn texts_that_double_with_each_level_are_refused_before_they_are_large() {
    for (levels, before, after) in [
        (25, "div(", ", 1)"),
        (25, "width_bucket(", ", 1, 2, 3)"),
        (25, "format('%1$s%1$s', ", ")"),
        (25, "(", ", 1) IN ((1, 1), (2, 2))"),
        (25, "(", ", 1) < (1, 1)"),
        // The parser itself takes hardly more of some.
        (12, "1 = ALL(ARRAY[", "])"),
        (12, "1 < ANY(ARRAY[", "])"),
        (25, "coalesce(", ", 1)"),
        (25, "CAST(", " BETWEEN 1 AND 2 AS INT)"),
        (18, "((", ")::text LIKE 'a')::int"),
    ] {
        assert!(rewritten(&nested(2, before, after)).unwrap() < 10_000, "{before}");
        let error = rewritten(&nested(levels, before, after)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{before}: {error}");
    }
}

#[test]
fn what_tools_write_is_not_refused() {
    for (levels, before, after) in
        [(40, "replace(", ", 'a', 'b')"), (40, "CASE WHEN a = 1 THEN 2 ELSE ", " END"), (6, "coalesce((", ")::text, '')")]
    {
        rewritten(&nested(levels, before, after)).unwrap_or_else(|error| panic!("{before}: {error}"));
    }
}

#[test]
fn long_lists_of_rows_are_not_refused() {
    let rows: Vec<String> = (0..10_000).map(|row| format!("({row}, {row})")).collect();
    rewritten(&format!("SELECT (a, b) IN ({}) FROM v", rows.join(", "))).unwrap();
    let error = rewritten(&format!("SELECT ({}) IN ({}) FROM v", "1, ".repeat(1_000) + "1", rows.join(", "))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}
