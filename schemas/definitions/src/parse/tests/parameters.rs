//! `CREATE PARAMETER`: a type that is written or follows from the literal, and one value of it.

use super::*;
use crate::ParameterType;

fn one(text: &str) -> Result<(String, String, Option<String>), String> {
    let (definitions, diagnostics) = parse(text);
    match (definitions.parameters.as_slice(), diagnostics.is_empty()) {
        ([one], true) => Ok((one.value_type.to_string(), one.value.clone(), one.description.clone())),
        _ => Err(diagnostics.to_string()),
    }
}

#[test]
fn the_type_follows_from_the_literal_or_is_written() {
    for (text, expected_type, value) in [
        ("CREATE PARAMETER a = 20", "BIGINT", "20"),
        ("CREATE PARAMETER a = -20;", "BIGINT", "-20"),
        ("CREATE PARAMETER a = 0.5", "DOUBLE", "0.5"),
        ("CREATE PARAMETER a = 'it''s'", "TEXT", "it's"),
        ("CREATE PARAMETER a = TRUE", "BOOLEAN", "true"),
        ("CREATE PARAMETER a = INTERVAL '30 minutes'", "INTERVAL", "30 minutes"),
        ("CREATE PARAMETER a DECIMAL(18,2) = 1000", "DECIMAL(18,2)", "1000.00"),
        ("CREATE PARAMETER a DOUBLE = +20", "DOUBLE", "20.0"),
        ("CREATE PARAMETER a TEXT = ''", "TEXT", ""),
        ("CREATE PARAMETER a INTERVAL = '1 day'", "INTERVAL", "1 day"),
        ("create parameter \"a\" bigint = 9223372036854775807", "BIGINT", "9223372036854775807"),
    ] {
        assert_eq!(one(text), Ok((expected_type.to_owned(), value.to_owned(), None)), "{text}");
    }
    let described = one("CREATE PARAMETER a = 20 WITH (description = 'most payments an hour')").unwrap();
    assert_eq!(described.2.as_deref(), Some("most payments an hour"));
    let stored = parse_parameter("CREATE PARAMETER max_hourly = 20").unwrap();
    assert_eq!((&*stored.name, stored.value_type, stored.origin.line), ("max_hourly", ParameterType::BigInt, 1));
    assert!(parse_parameter(DEVICE_VELOCITY).unwrap_err().message().contains("found CREATE VIEW; expected one CREATE PARAMETER"));
}

#[test]
fn what_is_no_parameter_is_refused_at_its_place() {
    for (text, found) in [
        ("CREATE PARAMETER a 20", "a.sql:1:20: error: found '20'"),
        ("CREATE PARAMETER a =", "a.sql:1:21: error: found the end of the statement"),
        ("CREATE PARAMETER a BIGINT 20", "a.sql:1:27: error: found '20'"),
        ("CREATE PARAMETER a = b", "a.sql:1:22: error: found 'b'"),
        ("CREATE PARAMETER a = 1 + 1", "a.sql:1:24: error: found '+'"),
        ("CREATE PARAMETER a INT = 1", "a.sql:1:20: error: a parameter is not INT"),
        ("CREATE PARAMETER a NUMERIC = 1", "a.sql:1:20: error: unknown type 'NUMERIC'"),
        ("CREATE PARAMETER a BIGINT = '20'", "a.sql:1:29: error: the value is TEXT: expected BIGINT"),
        ("CREATE PARAMETER a BIGINT = 0.5", "a.sql:1:29: error: the value '0.5' is DOUBLE: expected BIGINT"),
        ("CREATE PARAMETER a BOOLEAN = 1", "a.sql:1:30: error: the value is BIGINT: expected BOOLEAN"),
        (
            "CREATE PARAMETER a = INTERVAL '3 lightyears'",
            "a.sql:1:22: error: the value '3 lightyears' is TEXT ('lightyears' is no unit): expected an INTERVAL such as '30 minutes'",
        ),
        (
            "CREATE PARAMETER a DECIMAL(4,2) = 123",
            "a.sql:1:35: error: the value '123' is a number that does not fit: expected DECIMAL(4,2)",
        ),
        ("CREATE PARAMETER a = 1 WITH (topic = 'x')", "a.sql:1:30: error: unknown option 'topic'"),
        ("CREATE PARAMETER a = 1; CREATE VIEW a AS SELECT 1 AS x", "a.sql:1:37: error: the view 'a' has the name of a parameter"),
    ] {
        let problems = one(text).unwrap_err();
        assert!(problems.starts_with(found), "{text}: {problems}");
    }
}

#[test]
fn a_parameter_with_a_mistake_is_left_out_by_its_name() {
    let (_, diagnostics) = parse("CREATE PARAMETER most TEXT = 1");
    assert_eq!(diagnostics.0[0].left_out.as_deref(), Some("most"));
}
