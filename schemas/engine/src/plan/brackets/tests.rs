use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::lacks_brackets;

fn is_found(condition: &str) -> bool {
    let statement = Parser::parse_sql(&GenericDialect {}, &format!("SELECT 1 FROM t WHERE {condition}")).unwrap().remove(0);
    lacks_brackets(&statement)
}

#[test]
fn what_the_parser_takes_for_the_right_side_is_found() {
    for condition in [
        "a IS DISTINCT FROM b AND c",
        "a IS NOT DISTINCT FROM b OR c",
        "c AND a IS DISTINCT FROM NOT b AND d",
        "CASE WHEN a IS DISTINCT FROM true AND b THEN c END",
        "(a IS DISTINCT FROM b OR c) AND d",
    ] {
        assert!(is_found(condition), "{condition}");
    }
    for condition in [
        "(a IS DISTINCT FROM b) AND c",
        "a IS DISTINCT FROM (b AND c)",
        "c OR a IS NOT DISTINCT FROM b",
        "a IS DISTINCT FROM b + 1",
        "a IS NOT NULL AND b",
    ] {
        assert!(!is_found(condition), "{condition}");
    }
}
