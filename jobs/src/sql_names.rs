//! Names in SQL text that is generated: which of them have to be quoted.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr, Statement};
use datafusion::sql::sqlparser::parser::Parser;
use types::sql_dialect::SqlDialect;

/// Whether a name stands for itself everywhere in a SELECT: it is no word of SQL, and needs no quotes.
pub(crate) fn is_plain(name: &str) -> bool {
    let select = format!("SELECT {name}, sum({name}) AS {name}, {name} FROM {name} GROUP BY {name}, {name}");
    let parsed = Parser::parse_sql(&SqlDialect, &select);
    let Ok([Statement::Query(query)]) = parsed.as_deref() else { return false };
    let SetExpr::Select(select) = &*query.body else { return false };
    let is_name = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(found)) if found.value == name);
    matches!(&select.projection[..], [first, _, last] if is_name(first) && is_name(last))
}

/// Returns a name as SQL text, quoted if it would otherwise mean something else.
pub(crate) fn quoted(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { format!("\"{name}\"") }
}
