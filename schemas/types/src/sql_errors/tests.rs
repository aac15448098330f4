use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use parquet::errors::ParquetError;

use crate::{Error, ErrorKind, Reason};

/// What is said of a query over `orders` and `items`.
async fn refused(sql: &str) -> Error {
    let session = SessionContext::new();
    for table in [
        "CREATE TABLE orders (order_id TEXT, customer_id TEXT, revenue DECIMAL(18,2), __offset BIGINT)",
        "CREATE TABLE items (order_id TEXT, sku TEXT)",
    ] {
        session.sql(table).await.unwrap();
    }
    let error = match session.sql(sql).await {
        Ok(frame) => frame.collect().await.unwrap_err(),
        Err(error) => error,
    };
    let error = Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    error
}

#[tokio::test]
async fn wrong_sql_is_reported_with_what_was_found_and_what_was_expected() {
    let cases = [
        (
            "SELECT revenu FROM orders",
            "there is no column \"revenu\": did you mean \"revenue\"? expected one of order_id, customer_id, revenue",
        ),
        (
            "SELECT sku FROM items WHERE sku = \"It's\"",
            "there is no column \"It's\": for a text, write 'It''s'; expected one of order_id, sku",
        ),
        (
            "SELECT sku FROM items WHERE INTERVAL '1 day' > 30",
            "cannot infer common argument type for comparison operation INTERVAL > BIGINT: expected an interval, such as \
             INTERVAL '30 minutes'",
        ),
        (
            "SELECT TIMESTAMP '2026-01-01' + 1 FROM items",
            "cannot coerce arithmetic expression TIMESTAMP + BIGINT to valid types: expected an interval, such as INTERVAL '30 minutes'",
        ),
        ("SELECT sku + 1 FROM items", "cannot coerce arithmetic expression TEXT + BIGINT to valid types"),
        ("SELECT string_agg(sku) FROM items", "found string_agg(TEXT), expected string_agg(TEXT, TEXT)"),
        ("SELECT zzz FROM orders", "there is no column \"zzz\": expected one of order_id, customer_id, revenue"),
        (
            "SELECT skku FROM orders JOIN items ON true",
            "there is no column \"skku\": did you mean \"sku\"? expected one of orders.order_id, orders.customer_id, orders.revenue, \
             items.order_id, items.sku",
        ),
        ("SELECT foo.revenue FROM orders", "found foo.revenue, and FROM has no \"foo\": expected one of orders"),
        (
            "SELECT order_id FROM orders JOIN items ON true",
            "the column \"order_id\" is in several of the tables: expected its table in front, such as t.order_id",
        ),
        ("SELECT sku, sku FROM items", "two columns are called \"sku\": expected different names (.. AS another)"),
        ("SELECT max(sku) AS s, min(sku) AS s FROM items", "two columns are called \"s\": expected different names (.. AS another)"),
        (
            "SELECT max(revenue) AS most, max(CAST(revenue AS TEXT)) AS last FROM orders",
            "two aggregates are called \"max(orders.revenue)\", as casts are left out of their names: expected the cast in a subquery, \
             under a name of its own, such as FROM (SELECT .., CAST(x AS TEXT) AS x_text FROM ..)",
        ),
        (
            "SELECT sku || 'it''s', sku || 'it''s' FROM items",
            "two columns are called \"items.sku || 'it''s'\": expected different names (.. AS another)",
        ),
        (
            r#"SELECT sku || ' 2"', sku || ' 2"' FROM items"#,
            r#"two columns are called "items.sku || ' 2"'": expected different names (.. AS another)"#,
        ),
        (
            "SELECT order_id FROM orders WHERE revenue + 3",
            "cannot create filter with non-boolean predicate 'orders.revenue + 3' returning DECIMAL(23, 2)",
        ),
        ("SELECT sum(revenue FROM orders", "the SQL is not understood: expected ), found FROM"),
        ("SELECT FROM orders WHERE", "the SQL is not understood: expected an expression, found the end of the statement"),
        ("SELECT 'abc", "the SQL is not understood: unterminated string literal"),
        ("SELECT summ(revenue) FROM orders", "there is no function \"summ\": did you mean \"sum\"?"),
        ("SELECT cuont(*) FROM orders", "there is no function \"cuont\": did you mean \"count\"?"),
        ("SELECT coutn(sku) FROM items", "there is no function \"coutn\": did you mean \"count\"?"),
        ("SELECT zzzzzz(sku) FROM items", "there is no function \"zzzzzz\""),
        ("SELECT lst_n(sku, 3) FROM items", "there is no function \"lst_n\": did you mean \"last_n\"?"),
        ("SELECT max_by(sku, order_id) FROM items", "there is no function \"max_by\": write first_value(x ORDER BY y DESC NULLS LAST)"),
        ("SELECT countIf(sku = 'a') FROM items", "there is no function \"countif\": write count(*) FILTER (WHERE ..)"),
        (
            "SELECT json_extract(sku, '$.a') FROM items",
            "there is no function \"json_extract\": write payload ->> 'a', or a column of the stream: name TEXT OPTIONS (path = '$.a')",
        ),
        ("SELECT make_array(1) && make_array(1)", "not supported: the operator &&: write array_has_any(a, b)"),
        ("SELECT sku ^@ 'a' FROM items", "not supported: the operator ^@: write starts_with(a, b)"),
        (
            "SELECT sku COLLATE \"C\" FROM items",
            "not supported: COLLATE: leave it out, texts are compared byte by byte, as with COLLATE \"C\"",
        ),
        (
            "SELECT sku IN (SELECT sku FROM items) FROM items",
            "not supported: IN or EXISTS of such a subquery here: write a LEFT JOIN of its distinct rows, and IS NOT NULL",
        ),
        (
            "SELECT (SELECT count(*) FROM items i WHERE i.order_id < o.order_id) FROM orders o",
            "not supported: a subquery that names a column of the query around it, other than in a comparison with = and without LIMIT: \
             write a JOIN or a window function",
        ),
        (
            "SELECT sku FROM orders o, LATERAL (SELECT sku FROM items i WHERE i.order_id = o.order_id LIMIT 1) AS d",
            "not supported: a subquery that names a column of the query around it, other than in a comparison with = and without LIMIT: \
             write a JOIN or a window function",
        ),
        ("SELECT * FROM order_s", "there is no stream or view \"order_s\""),
        ("SELECT abs(sku) FROM items", "found abs(TEXT), expected a number, e.g. CAST(.. AS DECIMAL(18,2))"),
        ("SELECT sum(sku) FROM items", "found sum(TEXT), expected a number, e.g. CAST(.. AS DECIMAL(18,2))"),
        ("SELECT sum(sku IS NULL) FROM items", "found sum(BOOLEAN), expected a number"),
        ("SELECT median(sku) FROM items", "found median(TEXT), expected a number, e.g. CAST(.. AS DECIMAL(18,2))"),
        (
            "SELECT corr(sku, sku) FROM items",
            "found corr(TEXT, TEXT), expected corr(y: a number, x: a number), e.g. CAST(.. AS DECIMAL(18,2))",
        ),
        (
            "SELECT sku, count(*) FROM items",
            "the column \"sku\" is neither in GROUP BY nor inside an aggregate: expected it in one of them",
        ),
        (
            "SELECT to_char(true, '%Y')",
            "found to_char(BOOLEAN, TEXT), expected to_char(DATE, TEXT) or to_char(TIME, TEXT) or to_char(TIMESTAMPTZ, TEXT) or \
                to_char(TIMESTAMP, TEXT) or to_char(INTERVAL, TEXT)",
        ),
        ("SELECT 1/0", "division by zero"),
    ];
    for (sql, expected) in cases {
        assert_eq!(refused(sql).await.message(), expected, "{sql}");
    }
    for (sql, line, column) in [("SELECT 1,\n  sum(2 FROM orders", "2", "9"), ("SELECT sku,\n summ(sku) FROM items", "2", "2")] {
        let error = refused(sql).await;
        assert_eq!((error.fact("line"), error.fact("column")), (Some(line), Some(column)), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_name_in_double_quotes_may_be_meant_as_a_text() {
    for (sql, expected) in [
        ("SELECT sku FROM items WHERE sku = \"red\"", "there is no column \"red\": for a text, write 'red'; expected one of order_id, sku"),
        (
            "SELECT sku FROM items WHERE sku = \"skku\"",
            "there is no column \"skku\": for a text, write 'skku'; did you mean \"sku\"? expected one of order_id, sku",
        ),
        (
            "SELECT sku FROM items WHERE sku = \"It's\"",
            "there is no column \"It's\": for a text, write 'It''s'; expected one of order_id, sku",
        ),
        ("SELECT sku FROM items WHERE sku = red AND order_id = 'red'", "there is no column \"red\": expected one of order_id, sku"),
        ("SELECT items.\"red\" FROM items", "there is no column \"red\": expected one of order_id, sku"),
        ("SELECT \"red\".sku FROM items", "found red.sku, and FROM has no \"red\": expected one of items"),
    ] {
        assert_eq!(refused(sql).await.with_text_hint(sql).message(), expected, "{sql}");
    }
}

#[test]
fn no_name_of_another_engine_is_one_of_ours() {
    let ours: Vec<&str> = super::known::known_names().collect();
    let theirs: Vec<&str> = super::known::ELSEWHERE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
    for name in &theirs {
        assert!(!ours.contains(name), "{name} is a function here");
        assert_eq!(*name, name.to_lowercase(), "names arrive in lower case");
        assert_eq!(theirs.iter().filter(|other| *other == name).count(), 1, "{name} is listed twice");
    }
}

#[test]
fn numbers_that_do_not_fit_are_shown_without_the_words_of_the_engine() {
    let of_arrow = |error: ArrowError| Error::plain_message(&DataFusionError::ArrowError(Box::new(error), None));
    let overflow = ArrowError::ArithmeticOverflow("Overflow happened on: 1 + 9223372036854775807".into());
    assert_eq!(of_arrow(overflow), "a number is too large: 1 + 9223372036854775807");
    let digits = ArrowError::InvalidArgumentError("-10.0 is too small to store in a Decimal128 of precision 2. Min is -9.9".into());
    assert_eq!(of_arrow(digits), "a number is too large: -10.0 has more digits than its type");
    let cast = ArrowError::CastError("Can't cast value 9999999999999999999 to type Int64".into());
    assert_eq!(of_arrow(cast), "a number is too large: 9999999999999999999 does not fit BIGINT");
    let of_decimal = ArrowError::CastError("value of 3000000000 is out of range Int32".into());
    assert_eq!(of_arrow(of_decimal), "a number is too large: 3000000000 does not fit INT");
    let of_text = ArrowError::CastError("Cannot cast string 'bad' to value of Decimal128(38, 10) type".into());
    assert_eq!(of_arrow(of_text), "cannot cast string 'bad' to value of DECIMAL type", "of whichever decimal it is cast to");
    let abs = ArrowError::ComputeError("Int64Array overflow on abs(-9223372036854775808)".into());
    assert_eq!(of_arrow(abs), "a number is too large: abs(-9223372036854775808)");
    for (text, expected) in [
        ("Signed integer overflow in GCD(-9223372036854775808, 0)", "gcd(-9223372036854775808, 0)"),
        ("Overflow while rounding Int64", "a BIGINT that is rounded"),
        ("Overflow while rounding decimal with scale 2 and decimal places -40", "a DECIMAL that is rounded"),
        ("Decimal overflow: rounded value exceeds precision 38: 1 is too large", "a DECIMAL that is rounded"),
        ("Decimal overflow while applying ceil", "ceil of a DECIMAL"),
    ] {
        assert_eq!(of_arrow(ArrowError::ComputeError(text.into())), format!("a number is too large: {expected}"));
    }
    for text in ["Timestamp out of range", "Date arithmetic overflow: 20454 + 3600000 months"] {
        assert_eq!(of_arrow(ArrowError::ComputeError(text.into())), "a date or a time is out of range");
    }
    let root = ArrowError::ComputeError("Execution error: cannot take square root of a negative number".into());
    assert_eq!(of_arrow(root), "cannot take square root of a negative number");
    let factorial = DataFusionError::Execution("Overflow happened on FACTORIAL(25)".into());
    assert_eq!(Error::plain_message(&factorial), "a number is too large: factorial(25)");
    let repeated = of_arrow(ArrowError::CastError("Cannot cast timezone to different timezone".into()));
    assert!(repeated.starts_with("a local time is not exactly one time in its zone") && repeated.contains("+01:00'"), "{repeated}");
    let other = ArrowError::InvalidArgumentError("Column of Int64".into());
    assert_eq!(of_arrow(other), "column of BIGINT");
    let placeholder = DataFusionError::Execution("Placeholder ':least' was not provided a value for execution.".into());
    assert!(Error::plain_message(&placeholder).starts_with("found :least, which has no value here: expected"), "{placeholder}");
    let values = DataFusionError::NotImplemented("COUNT DISTINCT with multiple arguments".into());
    assert_eq!(Error::plain_message(&values), "not supported: count(DISTINCT a, b): write count(DISTINCT a || '/' || b)");
    let dot = DataFusionError::NotImplemented("Dot access not supported for non-string expr: Identifier(Ident { .. })".into());
    assert_eq!(Error::plain_message(&dot), "not supported: a dot before a member: write top_k(x, 3)[1]['value']");
    let ours = DataFusionError::from(Error::input("the window is unknown"));
    assert_eq!(Error::plain_message(&ours), "the window is unknown");
}

#[test]
fn a_mistake_in_a_condition_over_a_file_is_no_damage_of_the_file() {
    let of_arrow = |error: ArrowError| DataFusionError::ArrowError(Box::new(error), Some(String::new()));
    let text = "Cannot cast string '\"\\\u{301}\n, ' to value of Int64 type";
    for (error, kind, expected, reason) in [
        (of_arrow(ArrowError::DivideByZero), ErrorKind::Input, "division by zero".to_owned(), Some(Reason::DivisionByZero)),
        (
            of_arrow(ArrowError::CastError(text.into())),
            ErrorKind::Input,
            text.replacen('C', "c", 1).replace("Int64", "BIGINT"),
            Some(Reason::InvalidText),
        ),
        (
            of_arrow(ArrowError::ArithmeticOverflow("Overflow happened on: 5 * 9".into())),
            ErrorKind::Input,
            "a number is too large: 5 * 9".to_owned(),
            Some(Reason::NumberTooLarge),
        ),
        (
            of_arrow(ArrowError::ComputeError("Execution error: cannot take square root of a negative number".into())),
            ErrorKind::Input,
            "cannot take square root of a negative number".to_owned(),
            Some(Reason::InvalidPower),
        ),
        (DataFusionError::Execution("it is \"wrong\"".into()), ErrorKind::Input, "it is \"wrong\"".to_owned(), None),
        (Error::input("no (such) day").into(), ErrorKind::Input, "no (such) day".to_owned(), None),
        (
            of_arrow(ArrowError::ExternalError(Box::new(DataFusionError::from(Error::input("no (such) day"))))),
            ErrorKind::Input,
            "no (such) day".to_owned(),
            None,
        ),
    ] {
        let in_filter = ArrowError::ComputeError(format!("Error evaluating filter predicate: {error:?}"));
        let of_file = Error::from(DataFusionError::ParquetError(Box::new(ParquetError::from(in_filter))));
        assert_eq!((of_file.kind(), of_file.message(), of_file.reason()), (kind, expected.as_str(), reason), "{error:?}");
    }
    let damage = Error::from(DataFusionError::ParquetError(Box::new(ParquetError::EOF("the file ends".into()))));
    assert_eq!(damage.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn an_invalid_regular_expression_is_a_mistake_in_the_query() {
    let rows = "(VALUES ('a'), ('b')) AS t (sku)";
    for (call, reason) in [
        ("sku ~ '('", "unclosed group"),
        ("regexp_like(sku, '(')", "unclosed group"),
        ("regexp_match(sku, '(')", "unclosed group"),
        ("regexp_replace(sku, '[', 'x')", "unclosed character class"),
        ("sku SIMILAR TO '('", "unclosed group"),
        ("regexp_replace(sku, 'a{1000}{1000}{10}', '')", "it is too large"),
    ] {
        let said = refused(&format!("SELECT {call} FROM {rows}")).await.to_string();
        assert_eq!(said, format!("a regular expression is not valid: {reason}"), "{call}");
    }
}

#[tokio::test]
async fn no_message_of_the_engine_comes_through_raw() {
    let raw = [
        "Error during",
        "Schema error",
        "SQL error",
        "ParserError",
        "Arrow error",
        "Internal error",
        "Utf8",
        "Int64",
        "BIGINT(",
        "caused by",
        "bug",
    ];
    for sql in [
        "SELECT sum(sku) FROM items",
        "SELECT revenue + customer_id FROM orders",
        "SELECT sku FROM items LIMIT -1",
        "SELECT CAST('x' AS INT)",
        "SELECT * FROM orders WHERE revenue",
        "SELECT * FROM orders WHERE revenue + 3 - CAST('2.5' AS DOUBLE)",
        "SELECT max(sum(3)) FROM orders",
        "SELECT order_id || 'x' FROM orders GROUP BY order_id || 'y'",
        "SELEC 1",
        "SELECT sku FROM items UNION SELECT sku, order_id FROM items",
        "SELECT CAST('yesterday' AS TIMESTAMP)",
    ] {
        let said = refused(sql).await.to_string();
        assert!(!raw.iter().any(|raw| said.contains(raw)), "{sql}: {said}");
    }
}

#[tokio::test]
async fn an_error_of_the_engine_has_its_reason() {
    for (sql, reason) in [
        ("SELECT revenu FROM orders", Some(Reason::UnknownColumn)),
        ("SELECT order_id FROM orders JOIN items ON true", Some(Reason::AmbiguousColumn)),
        ("SELECT sku, sku FROM items", Some(Reason::RepeatedColumn)),
        ("SELECT max(sku) AS s, min(sku) AS s FROM items", Some(Reason::RepeatedColumn)),
        ("SELECT sku, count(*) FROM items", Some(Reason::UngroupedColumn)),
        ("SELECT sku FROM items WHERE count(*) > 1", Some(Reason::UngroupedColumn)),
        ("SELECT sum(count(*)) FROM items", Some(Reason::UngroupedColumn)),
        ("SELECT sku FROM items ORDER BY 2", Some(Reason::InvalidColumnReference)),
        ("SELECT sku FROM items ORDER BY 0", Some(Reason::InvalidColumnReference)),
        ("SELECT sku FROM items GROUP BY 2", Some(Reason::InvalidColumnReference)),
        ("SELECT DISTINCT sku FROM items ORDER BY order_id", Some(Reason::InvalidColumnReference)),
        ("SELECT o.sku FROM items", Some(Reason::UnknownTable)),
        ("SELECT sum(revenue FROM orders", Some(Reason::SqlNotUnderstood)),
        ("SELECT summ(revenue) FROM orders", Some(Reason::UnknownFunction)),
        ("SELECT * FROM order_s", Some(Reason::UnknownTable)),
        ("SELECT 1/0", Some(Reason::DivisionByZero)),
        ("SELECT CAST('x' AS INT)", Some(Reason::InvalidText)),
        ("SELECT CAST('x' AS TIMESTAMP)", Some(Reason::InvalidTime)),
        ("SELECT CAST('x' AS BOOLEAN)", Some(Reason::InvalidText)),
        ("SELECT sku FROM items LIMIT -1", Some(Reason::InvalidLimit)),
        ("SELECT sku FROM items OFFSET -1", Some(Reason::InvalidOffset)),
        ("SELECT sku ~ '(' FROM (VALUES ('a')) AS t (sku)", Some(Reason::InvalidPattern)),
        ("SELECT abs(sku) FROM items", None),
    ] {
        let error = refused(sql).await;
        assert_eq!(error.reason(), reason, "{sql}: {error}");
        let wrapped = DataFusionError::from(error).context("while planning");
        assert_eq!(Error::from(wrapped).reason(), reason, "{sql}");
    }
    let of_arrow = |error: ArrowError| Error::from(DataFusionError::from(error)).reason();
    let overflow = ArrowError::ArithmeticOverflow("Overflow happened on: 1 + 9223372036854775807".into());
    assert_eq!(of_arrow(overflow), Some(Reason::NumberTooLarge));
    let cast = "Cannot cast to Decimal128(20, 3). Overflowing on 57896044618658097711785492504343953926634";
    assert_eq!(of_arrow(ArrowError::CastError(cast.into())), Some(Reason::NumberTooLarge));
    let interval = ArrowError::ParseError("Invalid input syntax for type interval: \"x\"".into());
    assert_eq!(of_arrow(interval), Some(Reason::InvalidTime));
    let local = ArrowError::CastError("Cannot cast timezone to different timezone".into());
    assert_eq!(of_arrow(local), Some(Reason::AmbiguousLocalTime));
    assert_eq!(Error::from(DataFusionError::NotImplemented("x".into())).reason(), Some(Reason::NotSupported));
}
