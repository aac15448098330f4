//! The dialect of SQL in definitions and queries: sqlparser's generic one, with PostgreSQL's precedence of operators.
//!
//! Generic, `a ->> 'k' = 'x'` is `a ->> ('k' = 'x')`, and `n + 1 || 'x'` is `n + (1 || 'x')`. `SELECT a ISNULL` is the
//! column `a` under that name.

use std::any::TypeId;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Below `+` and `-`, above comparisons, LIKE and IS: what PostgreSQL calls any other operator.
const ANY_OTHER_OPERATOR: u8 = 25;

/// It is taken for [`GenericDialect`] wherever the parser asks for that, and says the same of what it supports.
#[derive(Debug, Clone, Copy)]
pub struct SqlDialect;

/// Parses a text of one statement.
pub fn parse_statement(sql: &str) -> Result<Statement, DataFusionError> {
    let mut statements = DFParserBuilder::new(sql).with_dialect(&SqlDialect).build()?.parse_statements()?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (Some(_), false) => Err(DataFusionError::Plan("found several statements, expected one".to_owned())),
        (None, _) => Err(DataFusionError::Plan("found no statement, expected one".to_owned())),
    }
}

/// `ISNULL` and `NOTNULL`, which PostgreSQL has beside `IS NULL` and `IS NOT NULL`.
fn null_test(token: &Token) -> Option<fn(Box<Expr>) -> Expr> {
    let Token::Word(word) = token else { return None };
    let is = |operator: &str| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(operator);
    if is("isnull") {
        Some(Expr::IsNull)
    } else if is("notnull") {
        Some(Expr::IsNotNull)
    } else {
        None
    }
}

macro_rules! supports_what_is_generic {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            GenericDialect.$method()
        })*
    };
}

impl Dialect for SqlDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::StringConcat => Some(Ok(ANY_OTHER_OPERATOR)),
            token => null_test(token).map(|_| Ok(self.prec_value(Precedence::Is))),
        }
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        let test = null_test(&parser.peek_token_ref().token)?;
        parser.next_token();
        Some(Ok(test(Box::new(expr.clone()))))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::PgOther => ANY_OTHER_OPERATOR,
            other => GenericDialect.prec_value(other),
        }
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    // All that the generic dialect of sqlparser 0.62 overrides.
    supports_what_is_generic!(
        supports_unicode_string_literal,
        supports_partition_by_after_order_by,
        supports_array_join_syntax,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens,
        supports_connect_by,
        supports_match_recognize,
        supports_pipe_operator,
        supports_start_transaction_modifier,
        supports_window_function_null_treatment_arg,
        supports_dictionary_syntax,
        supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables,
        supports_select_wildcard_except,
        support_map_literal_syntax,
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_extract_comma_syntax,
        supports_create_view_comment_syntax,
        supports_parens_around_table_factor,
        supports_values_as_table_factor,
        supports_create_index_with_clause,
        supports_explain_with_utility_options,
        supports_limit_comma,
        supports_update_order_by,
        supports_from_first_select,
        supports_projection_trailing_commas,
        supports_asc_desc_in_column_definition,
        supports_try_convert,
        supports_bitwise_shift_operators,
        supports_comment_on,
        supports_load_extension,
        supports_named_fn_args_with_assignment_operator,
        supports_struct_literal,
        supports_empty_projections,
        supports_nested_comments,
        supports_multiline_comment_hints,
        supports_user_host_grantee,
        supports_string_escape_constant,
        supports_array_typedef_with_brackets,
        supports_match_against,
        supports_set_names,
        supports_comma_separated_set_assignments,
        supports_filter_during_aggregation,
        supports_select_wildcard_exclude,
        supports_data_type_signed_suffix,
        supports_interval_options,
        supports_quote_delimited_string,
        supports_select_wildcard_replace,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_optimize_table,
        supports_install,
        supports_detach,
        supports_prewhere,
        supports_with_fill,
        supports_limit_by,
        supports_interpolate,
        supports_settings,
        supports_select_format,
        supports_comment_optimizer_hint,
        supports_constraint_keyword_without_name,
        supports_key_column_option,
        supports_comma_separated_trim,
        supports_cte_without_as,
        supports_select_item_multi_column_alias,
        supports_xml_expressions
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same expression with all its brackets.
    fn grouped(sql: &str) -> String {
        fn text(expr: &Expr) -> String {
            match expr {
                Expr::BinaryOp { left, op, right } => format!("({} {op} {})", text(left), text(right)),
                Expr::Like { expr, pattern, .. } => format!("({} LIKE {})", text(expr), text(pattern)),
                Expr::IsNull(expr) => format!("({} IS NULL)", text(expr)),
                Expr::Between { expr, low, high, .. } => format!("({} BETWEEN {} AND {})", text(expr), text(low), text(high)),
                other => other.to_string(),
            }
        }
        text(&Parser::new(&SqlDialect).try_with_sql(sql).unwrap().parse_expr().unwrap())
    }

    #[test]
    fn operators_bind_as_those_of_postgresql() {
        for (sql, expected) in [
            ("a ->> 'k' = 'x' AND b", "(((a ->> 'k') = 'x') AND b)"),
            ("x = a ->> 'k'", "(x = (a ->> 'k'))"),
            ("a -> 'k' ->> 0 IS NULL", "(((a -> 'k') ->> 0) IS NULL)"),
            ("a ->> 'k' LIKE b #>> '{c}'", "((a ->> 'k') LIKE (b #>> '{c}'))"),
            ("x BETWEEN a ->> 'k' AND b ->> 'k'", "(x BETWEEN (a ->> 'k') AND (b ->> 'k'))"),
            ("a ->> 'k' || 'x' < b", "(((a ->> 'k') || 'x') < b)"),
            ("a -> 1 + n", "(a -> (1 + n))"),
            ("n + 1 || 'x' = b", "(((n + 1) || 'x') = b)"),
            ("a @> b = c", "((a @> b) = c)"),
            ("NOT a ->> 'k' = 'x'", "NOT a ->> 'k' = 'x'"),
            ("a = b ISNULL OR c notnull", "(((a = b) IS NULL) OR c IS NOT NULL)"),
        ] {
            assert_eq!(grouped(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_generic_is_understood() {
        for sql in ["SELECT * EXCLUDE (a) FROM t", "SELECT a FROM t GROUP BY ALL", "SELECT {'a': 1}", "SELECT `a`, \"b\" FROM t LIMIT 1, 2"]
        {
            let generic = DFParserBuilder::new(sql).with_dialect(&GenericDialect {}).build().unwrap().parse_statement();
            assert_eq!(parse_statement(sql).ok(), generic.ok(), "{sql}");
        }
        for sql in ["SELECT a AS isnull FROM t", "SELECT isnull, notnull FROM t", "SELECT a \"isnull\" FROM t"] {
            let generic = DFParserBuilder::new(sql).with_dialect(&GenericDialect {}).build().unwrap().parse_statement();
            assert_eq!(parse_statement(sql).ok(), generic.ok(), "{sql}");
        }
        assert!(parse_statement("SELECT 1; SELECT 2").is_err() && parse_statement("").is_err());
    }
}
