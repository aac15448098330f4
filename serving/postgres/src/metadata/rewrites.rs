//! Rewrites parsed catalog queries of clients that DataFusion cannot plan to ones with the same meaning.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Select, SelectItem, SetExpr, Statement, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use definitions::syntax::SyntaxNode;
use serving::without_escape;
use types::Result;

use super::known_class::KNOWN_CLASS;
use super::spellings::{is_type, placeholders, texts};

/// Gives the columns of a SELECT that are calls without parentheses the names that they have in its text: the parser
/// makes `session_user` of `current_user`.
pub(super) fn with_names_of_keywords(statement: &mut Statement, sql: &str) {
    let written = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap_or_default();
    let (Statement::Query(query), [Statement::Query(written)]) = (statement, written.as_slice()) else { return };
    let (SetExpr::Select(select), SetExpr::Select(written)) = (&mut *query.body, &*written.body) else { return };
    if select.projection.len() != written.projection.len() {
        return;
    }
    for (item, written) in select.projection.iter_mut().zip(&written.projection) {
        if let SelectItem::UnnamedExpr(expr) = item
            && let SelectItem::UnnamedExpr(Expr::Function(call)) = written
            && matches!(call.args, FunctionArguments::None)
        {
            let alias = Ident::with_quote('"', call.name.to_string().to_lowercase());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// What the parser makes of `'int4'::regtype`.
const TYPE_OID: &str = "SELECT oid FROM pg_catalog.pg_type WHERE typname = ";

/// Makes `x::regtype::text` the name of a type. To DataFusion it is the text of its OID.
pub(super) fn with_type_names(statement: &mut Statement) {
    let _ = statement.visit_expressions_mut(|expr| {
        let Expr::Cast { expr: operand, data_type, .. } = &*expr else { return Ok(()) };
        let is_type_oid = match &**operand {
            Expr::Cast { data_type, .. } => is_type(data_type, "regtype"),
            Expr::Subquery(query) => query.to_string().starts_with(TYPE_OID),
            _ => false,
        };
        let is_text = ["text", "varchar", "character varying"].iter().any(|text| is_type(data_type, text));
        if !is_type_oid || !is_text {
            return Ok(());
        }
        // Of no length or precision.
        let named = format!("format_type({operand}, -1)");
        if let Ok(named) = Parser::new(&PostgreSqlDialect {}).try_with_sql(&named).and_then(|mut parser| parser.parse_expr()) {
            *expr = named;
        }
        Ok(())
    });
}

/// How begins what the parser makes of `'orders'::regclass`.
const CLASS_OID: &str = "SELECT c.oid FROM pg_catalog.pg_class";

/// Makes `'orders'::regclass`, as a column of the SELECT, an error where there is no such table. Elsewhere it is NULL
/// then.
pub(super) fn with_known_classes(statement: &mut Statement) {
    let Statement::Query(query) = statement else { return };
    let SetExpr::Select(select) = &mut *query.body else { return };
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
        if require_class(expr)
            && let SelectItem::UnnamedExpr(expr) = item
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new("regclass") };
        }
    }
}

/// Returns whether the expression is such a cast, with others around it or without.
fn require_class(expr: &mut Expr) -> bool {
    if let Expr::Nested(inner) | Expr::Cast { expr: inner, .. } = expr {
        return require_class(inner);
    }
    let Some(name) = name_of_class(expr) else { return false };
    let required = format!("{KNOWN_CLASS}({expr}, {name})");
    match Parser::new(&PostgreSqlDialect {}).try_with_sql(&required).and_then(|mut parser| parser.parse_expr()) {
        Ok(required) => {
            *expr = required;
            true
        }
        Err(_) => false,
    }
}

/// The name in the subquery that looks for its OID.
fn name_of_class(expr: &Expr) -> Option<Expr> {
    let Expr::Subquery(query) = expr else { return None };
    if !query.to_string().starts_with(CLASS_OID) {
        return None;
    }
    let mut name = None;
    let _ = query.visit_expressions(|expr| {
        if let Expr::Function(call) = expr
            && is_named(call, "parse_ident")
            && let FunctionArguments::List(list) = &call.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of))] = list.args.as_slice()
        {
            name = Some(of.clone());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    name
}

/// Scalar subqueries over what no table here has: defaults of columns, sequences, collations. SQLAlchemy asks for them
/// of each column, and DataFusion plans no subquery that may answer several rows.
const ABSENT: [&str; 4] = ["pg_attrdef", "pg_sequence", "pg_collation", "typcollation"];

/// What no table here has either, and is read as a list: privileges, options, labels, policies, constraints. psql's
/// `\d+` and its like join the items with `array_to_string`, of columns that are texts here and of `ARRAY(SELECT ..)`.
const ABSENT_LISTS: [&str; 5] = ["acl", "reloptions", "pg_enum", "pg_policy", "pg_constraint"];

/// Makes subqueries and lists of what is not there NULL; their parameters stay.
pub(super) fn without_absent(statement: &mut Statement) {
    let _ = statement.visit_expressions_mut(|expr| {
        let absent: &[&str] = match &*expr {
            Expr::Subquery(_) => &ABSENT,
            Expr::Function(call) if is_named(call, "array_to_string") => &ABSENT_LISTS,
            _ => return Ok(()),
        };
        let text = expr.to_string();
        if absent.iter().any(|name| text.contains(name))
            && let Some(null) = null_with(&placeholders(&text))
        {
            *expr = null;
        }
        Ok(())
    });
}

/// Whether a function has this name, in the catalog's schema or without one.
fn is_named(call: &Function, name: &str) -> bool {
    let written = call.name.to_string().to_lowercase();
    written.strip_prefix("pg_catalog.").unwrap_or(&written) == name
}

/// Makes `pg_table_is_visible(t.oid)` in a WHERE the question whether `t` is in one of these schemas. DataFusion plans
/// no such question elsewhere, where the function is true.
pub(super) fn with_visible_tables(statement: &mut Statement, schemas: &[String]) {
    let visible = format!(
        "SELECT visible.oid FROM pg_catalog.pg_class visible WHERE visible.relnamespace IN (
            SELECT oid FROM pg_catalog.pg_namespace WHERE nspname IN ({}))",
        texts(schemas)
    );
    let _ = statement.visit_mut(&mut VisibleTables { visible });
}

struct VisibleTables {
    /// The query of the tables that are found without the name of their schema.
    visible: String,
}

impl VisitorMut for VisibleTables {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(condition) = &mut select.selection {
            let _ = condition.visit_expressions_mut(|expr| {
                if let Some(is_visible) = is_visible(expr, &self.visible) {
                    *expr = is_visible;
                }
                Ok(())
            });
        }
        ControlFlow::Continue(())
    }
}

fn is_visible(expr: &Expr, visible: &str) -> Option<Expr> {
    let Expr::Function(call) = expr else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(oid @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))))] = list.args.as_slice()
    else {
        return None;
    };
    if !is_named(call, "pg_table_is_visible") {
        return None;
    }
    Parser::new(&PostgreSqlDialect {}).try_with_sql(&format!("{oid} IN ({visible})")).ok()?.parse_expr().ok()
}

/// Casts the arguments of `set_config` to their types, which parameters among them have then.
pub(super) fn with_types_of_settings(statement: &mut Statement) -> Result<()> {
    statement.visit_expressions_mut(|expr| {
        let Expr::Function(call) = expr else { return Ok(()) };
        if !is_named(call, "set_config") {
            return Ok(());
        }
        let FunctionArguments::List(list) = &mut call.args else { return Ok(()) };
        for (arg, data_type) in list.args.iter_mut().zip(["TEXT", "TEXT", "BOOLEAN"]) {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = arg {
                let cast = format!("CAST({value} AS {data_type})");
                let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&cast).and_then(|mut parser| parser.parse_expr());
                *value = parsed.map_err(DataFusionError::from)?;
            }
        }
        Ok(())
    })
}

/// Spells patterns with backslashes: DataFusion knows no other `ESCAPE`.
pub(super) fn without_escapes(statement: &mut Statement) {
    let _ = statement.visit_expressions_mut(|expr| {
        if let Some(like) = without_escape(expr) {
            *expr = like;
        }
        Ok(())
    });
}

fn null_with(placeholders: &BTreeSet<String>) -> Option<Expr> {
    let kept: Vec<String> = placeholders.iter().map(|name| format!("CAST({name} AS TEXT)")).collect();
    let text = match kept.is_empty() {
        true => "(CAST(NULL AS TEXT))".to_owned(),
        false => format!("(CASE WHEN false THEN concat({}) END)", kept.join(", ")),
    };
    Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).ok()?.parse_expr().ok()
}

#[cfg(test)]
mod tests {
    use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

    use super::*;

    #[test]
    fn a_subquery_over_what_is_not_there_is_null_and_keeps_its_parameters() {
        let sql = "SELECT CASE WHEN a.d THEN (SELECT e FROM pg_catalog.pg_attrdef WHERE adnum = a.n AND $2 = $1) END, (SELECT oid FROM pg_class) FROM a";
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        without_absent(&mut statements[0]);
        let expected = "SELECT CASE WHEN a.d THEN (CASE WHEN false THEN concat(CAST($1 AS TEXT), CAST($2 AS TEXT)) END) END, \
            (SELECT oid FROM pg_class) FROM a";
        assert_eq!(statements[0].to_string(), expected);

        // psql's \d+ and \dn+.
        let sql = "SELECT pg_catalog.array_to_string(c.reloptions || array(select 'toast.' || x from pg_catalog.unnest(tc.reloptions) x), ', '), \
            array_to_string(n.nspacl, E'\\n') AS a, array_to_string(ARRAY['x'], ',') FROM pg_class c";
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        without_absent(&mut statements[0]);
        let expected = "SELECT (CAST(NULL AS TEXT)), (CAST(NULL AS TEXT)) AS a, array_to_string(ARRAY['x'], ',') FROM pg_class c";
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn tables_of_other_schemas_are_not_visible() {
        let sql = "SELECT pg_table_is_visible(c.oid) FROM pg_class AS c WHERE c.relkind = 'v' AND pg_catalog.pg_table_is_visible(c.oid)";
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        with_visible_tables(&mut statements[0], &["public", "pg_catalog"].map(str::to_owned));
        let expected = "SELECT pg_table_is_visible(c.oid) FROM pg_class AS c WHERE c.relkind = 'v' AND c.oid IN (\
            SELECT visible.oid FROM pg_catalog.pg_class visible WHERE visible.relnamespace IN (\
            SELECT oid FROM pg_catalog.pg_namespace WHERE nspname IN ('public', 'pg_catalog')))";
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn a_type_as_a_text_is_its_name() {
        for (sql, expected) in [
            ("SELECT a::regtype::text FROM t", "SELECT format_type(a::regtype, -1) FROM t"),
            ("SELECT a::regtype, a::text, 1::regclass::text", "SELECT a::regtype, a::text, 1::regclass::text"),
        ] {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            with_type_names(&mut statements[0]);
            assert_eq!(statements[0].to_string().to_lowercase(), expected.to_lowercase());
        }
    }

    #[test]
    fn the_arguments_of_set_config_have_types() {
        let sql = "SELECT set_config('a', $1, b.c), set_config($2::text, 'it''s', 'f') FROM b WHERE abs($3) > 0";
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        with_types_of_settings(&mut statements[0]).unwrap();
        let expected = "SELECT set_config(CAST('a' AS TEXT), CAST($1 AS TEXT), CAST(b.c AS BOOLEAN)), \
            set_config(CAST($2::TEXT AS TEXT), CAST('it''s' AS TEXT), CAST('f' AS BOOLEAN)) FROM b WHERE abs($3) > 0";
        assert_eq!(statements[0].to_string(), expected);
    }

    #[test]
    fn a_class_is_required_as_a_column_alone() {
        let sql = "SELECT 'a'::regclass, 'b'::regclass::oid AS b, '7'::regclass FROM pg_class WHERE oid = 'c'::regclass";
        let mut statements = PostgresCompatibilityParser::new().parse(sql).unwrap();
        with_known_classes(&mut statements[0]);
        let written = statements[0].to_string();
        assert_eq!(written.matches("known_class((SELECT c.oid FROM").count(), 2, "{written}");
        assert!(written.contains(", 'a'::TEXT) AS regclass") && written.contains(", 'b'::TEXT)"), "{written}");
    }

    #[test]
    fn the_columns_of_keywords_have_their_names() {
        let sql = "SELECT current_user, session_user, USER, current_user AS a, version() FROM t";
        let mut statements = PostgresCompatibilityParser::new().parse(sql).unwrap();
        with_names_of_keywords(&mut statements[0], sql);
        let expected = "SELECT session_user AS \"current_user\", session_user AS \"session_user\", USER AS \"user\", session_user AS a, \
            version() AS version FROM t";
        assert_eq!(statements[0].to_string(), expected);
    }
}
