//! Rewrites the catalog queries of clients that DataFusion cannot plan to ones with the same meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Select, SelectItem, SetExpr,
    Statement, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use definitions::syntax::SyntaxNode;
use postgres_types::Type;
use serving::without_escape;
use types::Result;

use super::known_class::KNOWN_CLASS;

const OID: &str = "oid";

/// Stands for the schemas of the search path, as a list of texts.
const SEARCHED: &str = "searched";

/// What is asked, as tokens, and what is asked instead. Spaces, line ends and the case of words do not count.
const SPELLINGS: [(&str, &str); 16] = [
    // Drivers ask whether a type can be sent: functions are there by their names, and one that is none is `-`.
    ("typreceive != 0", "typreceive <> '-'"),
    ("typsend != 0", "typsend <> '-'"),
    ("FROM pg_indexes", "FROM pg_catalog.pg_indexes"),
    // pgAdmin: the settings, by the function that makes the view.
    ("FROM pg_show_all_settings()", "FROM pg_catalog.pg_settings"),
    // The type of names.
    ("::name", "::text"),
    ("current_role", "current_user"),
    // JDBC: whether a type is an array, by its function.
    ("typinput='pg_catalog.array_in'::regproc", "typinput='array_in'"),
    // psql's \du: which roles a role is a member of. There are no members.
    (
        "ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid)",
        "'{}'",
    ),
    // JDBC's getTypeInfo: whether a type is that of a table's rows. Those that have a table are.
    ("(SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)", "false"),
    // JDBC's getProcedures: columns that it leaves for later, all of one name.
    ("NULL, NULL, NULL, d.description", "NULL AS reserved_1, NULL AS reserved_2, NULL AS reserved_3, d.description"),
    // Grafana: the schemas where a name without one is looked for.
    (
        r#"SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(
            array_lower(string_to_array(current_setting('search_path'),','),1),
            array_upper(string_to_array(current_setting('search_path'),','),1)
        ) as i, string_to_array(current_setting('search_path'),',') s"#,
        SEARCHED,
    ),
    // Metabase: the comment on a column, by the name of its table. There are none.
    (
        r#"COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST("c"."table_schema" AS TEXT), CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID),
            "c"."ordinal_position")"#,
        "CAST(NULL AS TEXT)",
    ),
    // asyncpg: the type that a domain is of in the end. No domain is of another one.
    (
        "(WITH RECURSIVE typebases(oid, depth) AS (
            SELECT t2.typbasetype AS oid, 0 AS depth FROM pg_type t2 WHERE t2.oid = t.oid
            UNION ALL
            SELECT t2.typbasetype AS oid, tb.depth + 1 AS depth FROM pg_type t2, typebases tb
            WHERE tb.oid = t2.oid AND t2.typbasetype != 0
        ) SELECT oid FROM typebases ORDER BY depth DESC LIMIT 1)",
        "t.typbasetype",
    ),
    // asyncpg: the attributes of types that have several, and then the types of these. No column is of such a type.
    (
        "(SELECT array_agg(ia.atttypid ORDER BY ia.attnum)
            FROM pg_attribute ia INNER JOIN pg_class c ON (ia.attrelid = c.oid)
            WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid)",
        "CAST(NULL AS TEXT[])",
    ),
    (
        "(SELECT array_agg(ia.attname::text ORDER BY ia.attnum)
            FROM pg_attribute ia INNER JOIN pg_class c ON (ia.attrelid = c.oid)
            WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid)",
        "CAST(NULL AS TEXT[])",
    ),
    ("ti.oid = any(tt.attrtypoids)", "false"),
];

static TOKENS: LazyLock<Vec<(Vec<Token>, &str)>> =
    LazyLock::new(|| SPELLINGS.iter().filter_map(|(asked, instead)| Some((words(tokens(asked)?), *instead))).collect());

/// The same text, in words that are understood. `searched` are the schemas of the search path.
pub(super) fn understood(sql: &str, searched: &[String]) -> String {
    let Some(mut tokens) = tokens(sql) else { return sql.to_owned() };
    let mut is_changed = false;
    for (asked, instead) in TOKENS.iter() {
        while let Some(found) = find(&tokens, asked) {
            let instead = if *instead == SEARCHED { texts(searched) } else { (*instead).to_owned() };
            // What it is asked as is one word to all that follows.
            tokens.splice(found, [Token::Placeholder(instead)]);
            is_changed = true;
        }
    }
    match is_changed {
        false => sql.to_owned(),
        true => tokens.iter().map(ToString::to_string).collect(),
    }
}

/// A list of texts in SQL, for `IN`.
fn texts(items: &[String]) -> String {
    match items {
        [] => "NULL".to_owned(),
        items => items.iter().map(|item| format!("'{item}'")).collect::<Vec<_>>().join(", "),
    }
}

/// The parameters of a text: `$1`, `$2`, ..
pub(super) fn placeholders(sql: &str) -> BTreeSet<String> {
    let placeholder = |token: Token| match token {
        Token::Placeholder(name) => Some(name),
        _ => None,
    };
    tokens(sql).unwrap_or_default().into_iter().filter_map(placeholder).collect()
}

/// The parameters that a text casts to OIDs, `$1::oid`, `$1::oid[]` and `CAST($1 AS oid)`, with the types that they
/// have for clients. To DataFusion they are integers.
pub(crate) fn oid_params(sql: &str) -> BTreeMap<usize, Type> {
    let words = words(tokens(sql).unwrap_or_default());
    let param = |at: usize| {
        let (name, cast, after) = match &words[at..] {
            [Token::Placeholder(name), Token::DoubleColon, Token::Word(cast), after @ ..] => (name, cast, after),
            [Token::Placeholder(name), Token::Word(of), Token::Word(cast), after @ ..] if of.value.eq_ignore_ascii_case("as") => {
                let before = at.checked_sub(2).map(|start| &words[start..at]);
                let is_cast = |word: &Token| matches!(word, Token::Word(word) if word.value.eq_ignore_ascii_case("cast"));
                before.filter(|before| is_cast(&before[0]) && before[1] == Token::LParen)?;
                (name, cast, after)
            }
            _ => return None,
        };
        let number = name.strip_prefix('$')?.parse::<usize>().ok()?;
        let is_array = matches!(after, [Token::LBracket, Token::RBracket, ..]);
        let described = if is_array { Type::OID_ARRAY } else { Type::OID };
        cast.value.eq_ignore_ascii_case("oid").then_some((number, described))
    };
    (0..words.len()).filter_map(param).collect()
}

/// The columns of a SELECT that are cast to OIDs or arrays of them, as far as there is no `*` before them.
pub(crate) fn oid_columns(sql: &str) -> BTreeSet<usize> {
    if !sql.to_lowercase().contains(OID) {
        return BTreeSet::new();
    }
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap_or_default();
    let [Statement::Query(query)] = statements.as_slice() else { return BTreeSet::new() };
    let SetExpr::Select(select) = &*query.body else { return BTreeSet::new() };
    let expr = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(is_cast_to_oid(expr)),
        _ => None,
    };
    let casts = select.projection.iter().map_while(expr).enumerate();
    casts.filter(|(_, is_oid)| *is_oid).map(|(index, _)| index).collect()
}

fn is_cast_to_oid(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(expr) => is_cast_to_oid(expr),
        Expr::Cast { data_type, .. } => match data_type {
            DataType::Array(ArrayElemTypeDef::SquareBracket(item, None)) => is_type(item, OID),
            other => is_type(other, OID),
        },
        _ => false,
    }
}

/// Whether a type has this name, in the catalog's schema or without one.
fn is_type(data_type: &DataType, name: &str) -> bool {
    let written = data_type.to_string().to_lowercase();
    written.strip_prefix("pg_catalog.").unwrap_or(&written) == name
}

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

fn tokens(sql: &str) -> Option<Vec<Token>> {
    Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().ok()
}

fn words(tokens: Vec<Token>) -> Vec<Token> {
    tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect()
}

/// Where these words are, spaces between them included.
fn find(tokens: &[Token], words: &[Token]) -> Option<std::ops::Range<usize>> {
    (0..tokens.len()).filter(|start| !matches!(tokens[*start], Token::Whitespace(_))).find_map(|start| {
        let mut rest = tokens[start..].iter().enumerate().filter(|(_, token)| !matches!(token, Token::Whitespace(_)));
        let mut end = start;
        for word in words {
            let (at, token) = rest.next()?;
            if !is_same(token, word) {
                return None;
            }
            end = start + at + 1;
        }
        Some(start..end)
    })
}

fn is_same(a: &Token, b: &Token) -> bool {
    match (a, b) {
        (Token::Word(a), Token::Word(b)) => a.value.eq_ignore_ascii_case(&b.value) && a.quote_style == b.quote_style,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

    use super::*;

    #[test]
    fn what_is_asked_in_other_words_is_the_rest_of_the_text_as_it_was() {
        let sql = "select a , ARRAY(SELECT b.rolname\n        FROM pg_catalog.pg_auth_members m\n        JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid)\n        \
            WHERE m.member = r.oid) as memberof, 'typsend != 0' FROM t WHERE TYPSEND != 0 AND typsend\n!=\n0";
        let found = understood(sql, &[]);
        assert_eq!(found, "select a , '{}' as memberof, 'typsend != 0' FROM t WHERE typsend <> '-' AND typsend <> '-'");
        for same in ["SELECT 1", "SELECT 'unfinished", "SELECT typsend != 1, x", ""] {
            assert_eq!(understood(same, &[]), same);
        }
    }

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
    fn parameters_that_are_cast_to_oids_are_found() {
        let found = oid_params("SELECT '$4::oid', $1::int, $2 :: OID[] FROM pg_type WHERE oid = $3::oid OR oid = any($5)");
        assert_eq!(found, BTreeMap::from([(2, Type::OID_ARRAY), (3, Type::OID)]));
        let found = oid_params("SELECT CAST($1 AS OID), cast ( $2 as oid[] ), CAST($3 AS INT), ($4 AS oid)");
        assert_eq!(found, BTreeMap::from([(1, Type::OID), (2, Type::OID_ARRAY)]));
        assert!(oid_params("SELECT 'unfinished").is_empty());
    }

    #[test]
    fn columns_that_are_cast_to_oids_are_found() {
        let sql = "SELECT 1::oid, oid, (CAST(a AS pg_catalog.oid)) AS b, '{1}'::oid[], 1::oid + 1 FROM pg_class";
        assert_eq!(oid_columns(sql), BTreeSet::from([0, 2, 3]));
        assert_eq!(oid_columns("SELECT 1::oid, *, 2::oid FROM pg_class"), BTreeSet::from([0]));
        assert!(oid_columns("SELECT 1").is_empty() && oid_columns("SELECT 'unfinished oid").is_empty());
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

    #[test]
    fn every_spelling_is_read() {
        assert_eq!(TOKENS.len(), SPELLINGS.len());
        for (asked, instead) in SPELLINGS {
            let expected = if instead == SEARCHED { "'system', 'public'" } else { instead };
            assert_eq!(understood(asked, &["system", "public"].map(str::to_owned)), expected);
        }
    }
}
