//! The tables of a query: every view, its states, every stream, and `system.*`, all on one stand.

use std::collections::BTreeSet;
use std::sync::Arc;

use committed::registry::{LiveView, Registry};
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use types::{Error, Result};

use crate::ask::Question;
use crate::node::Node;
use crate::sql::events::EventsTable;
use crate::sql::joined::JoinedTable;
use crate::sql::states::{Layer, StatesTable};
use crate::sql::system::SystemTable;
use crate::sql::view::ViewTable;
use crate::stand::Stand;

pub(super) const DEFAULT_CATALOG: &str = "datafusion";
pub(super) const DEFAULT_SCHEMA: &str = "public";
pub(super) const SYSTEM_SCHEMA: &str = "system";
const INFORMATION_SCHEMA: &str = "information_schema";
/// How the names of a view's states end.
const BATCH: &str = "__batch";
const SPEED: &str = "__speed";
const EDGES: &str = "__edges";

/// The view that a table is of: it is the view's answer, or its states.
pub(super) fn view_of<'a>(registry: &'a Registry, table: &str) -> Option<&'a LiveView> {
    let of_states = || [BATCH, SPEED, EDGES].iter().find_map(|end| table.strip_suffix(*end)).and_then(|view| registry.served(view));
    registry.served(table).or_else(of_states)
}

/// The views whose answers are among a query's tables, each once. An error names the tables there are when it names another, and says why
/// where the view of one cannot be served now.
pub(super) fn views_named(stand: &Stand, session: &SessionState, statement: &Statement) -> Result<Vec<Arc<str>>> {
    let registry = &stand.loaded.registry;
    let mut views: Vec<Arc<str>> = Vec::new();
    for reference in session.resolve_table_references(statement)? {
        let name = reference.table();
        // `FROM range(1, 10)`: functions stand among the tables.
        if reference.schema().is_none() && session.table_functions().contains_key(name) {
            continue;
        }
        let schema = reference.schema().unwrap_or(DEFAULT_SCHEMA);
        let in_catalog = reference.catalog().is_none_or(|catalog| catalog == DEFAULT_CATALOG);
        let known = in_catalog
            && match schema {
                DEFAULT_SCHEMA => names(stand).contains(name),
                SYSTEM_SCHEMA => SystemTable::ALL.iter().any(|table| table.name() == name),
                INFORMATION_SCHEMA => true,
                _ => false,
            };
        if !known {
            return Err(Error::input(format!("there is no table \"{reference}\": expected one of {}", all_names(stand).join(", "))));
        }
        let Some(view) = view_of(registry, name).filter(|_| schema == DEFAULT_SCHEMA) else { continue };
        stand.view(&view.name)?;
        if *view.name == *name && !views.contains(&view.name) {
            views.push(view.name.clone());
        }
    }
    Ok(views)
}

pub(super) fn register(session: &SessionContext, node: &Node, question: &Question) -> Result<()> {
    let registry = &question.stand.loaded.registry;
    let queries = node.queries();
    for name in registry.views.iter().map(|view| &view.name).collect::<BTreeSet<_>>() {
        // A version that could not be loaded has no table; the others do.
        let Ok(loaded) = question.stand.view(name) else { continue };
        let live = loaded.live.clone();
        let states = |layer: Layer| -> Result<()> {
            let table = StatesTable::new(question.clone(), &live.plan, layer);
            session.register_table(public(&layer.table(name)), Arc::new(table))?;
            Ok(())
        };
        if live.plan.links.is_some() {
            let joined = JoinedTable { queries: queries.clone(), question: question.clone(), live: live.clone() };
            session.register_table(public(&batch_name(name)), Arc::new(joined))?;
            states(Layer::All)?;
        } else {
            states(Layer::Batch)?;
        }
        states(Layer::Speed)?;
        let table = ViewTable { queries: queries.clone(), question: question.clone(), live };
        session.register_table(public(name), Arc::new(table))?;
    }
    for (name, stream) in &registry.streams {
        let table = EventsTable { queries: queries.clone(), question: question.clone(), definition: stream.definition.clone() };
        session.register_table(public(name), Arc::new(table))?;
    }
    let system = MemorySchemaProvider::new();
    for table in SystemTable::ALL {
        let provider: Arc<dyn TableProvider> = table.provider(node.clone(), question.clone())?;
        system.register_table(table.name().to_owned(), provider)?;
    }
    let catalog = session.catalog(DEFAULT_CATALOG).ok_or_else(|| Error::internal("the session has no catalog"))?;
    catalog.register_schema(SYSTEM_SCHEMA, Arc::new(system))?;
    Ok(())
}

/// A name as it is, not to be read as SQL.
fn public(name: &str) -> TableReference {
    TableReference::bare(name.to_owned())
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

fn names(stand: &Stand) -> BTreeSet<String> {
    let registry = &stand.loaded.registry;
    let views = registry.views.iter().flat_map(|view| {
        let edges = view.plan.links.as_ref().map(|_| edges_name(&view.name));
        [view.name.to_string(), batch_name(&view.name), speed_name(&view.name)].into_iter().chain(edges)
    });
    views.chain(registry.streams.keys().map(|name| name.to_string())).collect()
}

fn all_names(stand: &Stand) -> Vec<String> {
    names(stand).into_iter().chain(SystemTable::ALL.iter().map(|table| format!("{SYSTEM_SCHEMA}.{}", table.name()))).collect()
}
