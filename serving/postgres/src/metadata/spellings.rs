//! Rewrites the texts of clients' catalog queries that DataFusion cannot plan to ones with the same meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, Expr, SelectItem, SetExpr, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use postgres_types::Type;

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
pub(super) fn texts(items: &[String]) -> String {
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
pub(super) fn is_type(data_type: &DataType, name: &str) -> bool {
    let written = data_type.to_string().to_lowercase();
    written.strip_prefix("pg_catalog.").unwrap_or(&written) == name
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
    fn every_spelling_is_read() {
        assert_eq!(TOKENS.len(), SPELLINGS.len());
        for (asked, instead) in SPELLINGS {
            let expected = if instead == SEARCHED { "'system', 'public'" } else { instead };
            assert_eq!(understood(asked, &["system", "public"].map(str::to_owned)), expected);
        }
    }
}
