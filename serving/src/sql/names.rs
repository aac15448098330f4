//! The names of a query's tables.

use committed::registry::{LiveView, Registry};
use datafusion::sql::planner::IdentNormalizer;
use datafusion::sql::sqlparser::ast::Ident;

pub(super) use crate::query_runtime::CATALOG as DEFAULT_CATALOG;
pub(super) const DEFAULT_SCHEMA: &str = "public";
pub(super) const SYSTEM_SCHEMA: &str = "system";
pub(super) const INFORMATION_SCHEMA: &str = "information_schema";
/// The endings of the names of a view's tables of states.
const BATCH: &str = "__batch";
const SPEED: &str = "__speed";
const EDGES: &str = "__edges";

/// A name as SQL resolves it: in lower case unless it is quoted.
pub(super) fn resolved(name: &Ident) -> String {
    IdentNormalizer::default().normalize(name.clone())
}

/// Returns the view whose answer or states a table has.
pub(super) fn view_of_table<'a>(registry: &'a Registry, table: &str) -> Option<&'a LiveView> {
    let of_states = || [BATCH, SPEED, EDGES].iter().find_map(|end| table.strip_suffix(*end)).and_then(|view| registry.served(view));
    registry.served(table).or_else(of_states)
}

/// Returns the possible names of the view whose answer or states a table has.
pub(super) fn possible_views(table: &str) -> impl Iterator<Item = String> {
    ["", BATCH, SPEED, EDGES].into_iter().filter_map(|end| table.strip_suffix(end).map(str::to_owned))
}

pub(super) fn batch_name(view: &str) -> String {
    format!("{view}{BATCH}")
}

pub(super) fn speed_name(view: &str) -> String {
    format!("{view}{SPEED}")
}

pub(super) fn edges_name(view: &str) -> String {
    format!("{view}{EDGES}")
}
