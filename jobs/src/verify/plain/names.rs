//! Names as DataFusion reads them, and as they are written for it.

use datafusion::sql::sqlparser::ast::Ident;

/// Returns a name as DataFusion resolves it: unchanged if quoted, otherwise in lower case.
pub(super) fn resolved(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
