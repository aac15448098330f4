//! The tables of a query: every view, its states, every stream, and `system.*`, all on one read view.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::Principal;
use committed::names::{APPLY, DefinedName, how_to_read};
use committed::registry::LiveView;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use engine::plan::{Answering, TypedTextColumns};
use types::suggest::expected;
use types::{Error, Reason, Result};

use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;
use crate::sql::TableReader;
use crate::sql::events::EventsTable;
use crate::sql::joined::JoinedTable;
use crate::sql::names::{DEFAULT_CATALOG, DEFAULT_SCHEMA, INFORMATION_SCHEMA, SYSTEM_SCHEMA, batch_name, view_of_table};
use crate::sql::rights::{allow_table, may_read, may_read_system};
use crate::sql::search_path::SearchPath;
use crate::sql::states::{LayerSelection, StatesTable};
use crate::sql::system::SystemTable;
use crate::sql::table::into_table_provider;
use crate::sql::view::ViewTable;

/// The tables of a query that determine which data it reads.
#[derive(Debug, Default)]
pub(super) struct NamedTables {
    /// The views whose answers the query reads, each once.
    pub(super) views: Vec<Arc<str>>,
    /// Whether the query reads the events of a stream, which come from the archive.
    pub(super) has_streams: bool,
}

/// Finds the tables that a query names, by its search path. The error for an unknown table lists the existing ones; the
/// error for a view that cannot be served now says why. A table that the principal may not read is `Forbidden`, whether
/// or not it is there.
pub(super) fn tables_named(
    read_view: &ReadView,
    session: &SessionState,
    (statement, search_path): (&Statement, SearchPath),
    principal: &Principal,
) -> Result<NamedTables> {
    let registry = &read_view.loaded.registry;
    let mut named = NamedTables::default();
    for reference in session.resolve_table_references(statement)? {
        let name = reference.table();
        // `FROM range(1, 10)`: functions are among the tables. A view or stream may have the name of one.
        if reference.schema().is_none() && session.table_functions().contains_key(name) && !is_table(read_view, name) {
            continue;
        }
        let schema = reference.schema().unwrap_or(DEFAULT_SCHEMA);
        let in_catalog = reference.catalog().is_none_or(|catalog| catalog == DEFAULT_CATALOG);
        let known = in_catalog
            && match schema {
                DEFAULT_SCHEMA => is_table(read_view, name),
                SYSTEM_SCHEMA => SystemTable::ALL.iter().any(|table| table.name() == name),
                INFORMATION_SCHEMA => true,
                _ => false,
            };
        if in_catalog && schema == DEFAULT_SCHEMA && !may_read(principal, registry, name) {
            return Err(not_readable(read_view, principal, &reference));
        }
        if !known {
            return Err(no_table(read_view, principal, &reference));
        }
        allow_table(principal, registry, &reference)?;
        if schema != DEFAULT_SCHEMA {
            continue;
        }
        if reference.schema().is_none() && !search_path.finds_public(name) {
            return Err(not_in_search_path(name));
        }
        let Some(view) = view_of_table(registry, name) else {
            named.has_streams |= registry.streams.contains_key(name);
            continue;
        };
        read_view.view(&view.name)?;
        if *view.name == *name && !named.views.contains(&view.name) {
            named.views.push(view.name.clone());
        }
    }
    Ok(named)
}

/// A table with what is kept for a view, in addition to its answer.
enum KeptTable {
    States(LayerSelection),
    /// The materialised join of a linked view.
    Joined,
}

impl KeptTable {
    fn tables_of_view(view: &LiveView) -> &'static [KeptTable] {
        match &view.plan.answering {
            Answering::Grouped(_) => &[KeptTable::States(LayerSelection::Batch), KeptTable::States(LayerSelection::Speed)],
            Answering::Linked(_) => &[KeptTable::Joined, KeptTable::States(LayerSelection::All), KeptTable::States(LayerSelection::Speed)],
        }
    }

    fn name(&self, view: &str) -> String {
        match self {
            KeptTable::States(layer) => layer.table(view),
            KeptTable::Joined => batch_name(view),
        }
    }
}

/// Registers only the tables that the principal may read, so that no other can be reached, however it is named. Returns
/// which columns hold UUIDs or JSON.
pub(super) fn register(
    session: &SessionContext,
    runtime: &QueryRuntime,
    context: &QueryContext,
    TableReader { principal, log }: TableReader<'_>,
) -> Result<TypedTextColumns> {
    let registry = &context.read_view.loaded.registry;
    let mut typed_texts = TypedTextColumns::default();
    let readable = |name: &str| may_read(principal, registry, name);
    for name in registry.views.iter().map(|view| &view.name).filter(|name| readable(name)).collect::<BTreeSet<_>>() {
        // A version that could not be loaded has no table; the others do.
        let Ok(loaded) = context.read_view.view(name) else { continue };
        let live = loaded.live.clone();
        for kept in KeptTable::tables_of_view(&live) {
            let table = match kept {
                KeptTable::Joined => {
                    into_table_provider(JoinedTable { runtime: runtime.clone(), context: context.clone(), live: live.clone() })
                }
                KeptTable::States(layer) => into_table_provider(StatesTable::new(context.clone(), &live.plan, *layer)),
            };
            session.register_table(public(&kept.name(name)), table)?;
            typed_texts.add_view(&kept.name(name), &live.plan);
        }
        typed_texts.add_view(name, &live.plan);
        let table = ViewTable { runtime: runtime.clone(), context: context.clone(), live };
        session.register_table(public(name), into_table_provider(table))?;
    }
    for (name, stream) in registry.streams.iter().filter(|(name, _)| readable(name)) {
        let table = EventsTable { runtime: runtime.clone(), context: context.clone(), definition: stream.definition.clone() };
        session.register_table(public(name), into_table_provider(table))?;
        typed_texts.add_stream(&stream.definition);
    }
    typed_texts.clone().register(session);
    if !may_read_system(principal) {
        return Ok(typed_texts);
    }
    let system = MemorySchemaProvider::new();
    for table in SystemTable::ALL {
        let rows = table.provider((runtime.catalog(), log.cloned()), context.clone(), runtime.hot().clone())?;
        system.register_table(table.name().to_owned(), rows)?;
    }
    let catalog = session.catalog(DEFAULT_CATALOG).ok_or_else(|| Error::internal("the session has no catalog"))?;
    catalog.register_schema(SYSTEM_SCHEMA, Arc::new(system))?;
    Ok(typed_texts)
}

/// Returns a table name that is taken literally, not parsed as SQL.
fn public(name: &str) -> TableReference {
    TableReference::bare(name.to_owned())
}

pub(super) fn is_table(read_view: &ReadView, name: &str) -> bool {
    let registry = &read_view.loaded.registry;
    let is_kept =
        |view: &LiveView| name.starts_with(&*view.name) && KeptTable::tables_of_view(view).iter().any(|kept| kept.name(&view.name) == name);
    registry.streams.contains_key(name) || registry.views.iter().any(|view| *view.name == *name || is_kept(view))
}

fn names(read_view: &ReadView) -> BTreeSet<String> {
    let registry = &read_view.loaded.registry;
    let views = registry.views.iter().flat_map(|view| {
        let kept = KeptTable::tables_of_view(view).iter().map(|kept| kept.name(&view.name));
        kept.chain([view.name.to_string()])
    });
    views.chain(registry.streams.keys().map(|name| name.to_string())).collect()
}

/// The error for an unknown table. It mentions a sink, an alert or a parameter with that name if the principal may know
/// of it.
fn no_table(read_view: &ReadView, principal: &Principal, reference: &TableReference) -> Error {
    let known = all_names(read_view, principal);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let expected = expected(&reference.to_string(), &known, "none may be read");
    let is_named = |(_, name): &DefinedName<'_>| reference.schema().is_none() && *name == reference.table();
    let other = read_view.loaded.registry.other_names().filter(|_| may_read_system(principal)).find(is_named);
    match other {
        Some((kind, name)) => Error::input(format!("there is no table \"{name}\", because it is {}: {expected}", kind.with_article()))
            .with_reason(Reason::UnknownTable)
            .with("help", how_to_read(kind, name)),
        None => {
            let error = Error::input(format!("there is no table \"{reference}\": {expected}")).with_reason(Reason::UnknownTable);
            let is_empty = may_read_system(principal) && names(read_view).is_empty();
            if is_empty { error.with("help", APPLY) } else { error }
        }
    }
}

/// The error for a table that a principal may not read. It is the same for one that is not there, whose name a limited
/// principal may have mistyped.
fn not_readable(read_view: &ReadView, principal: &Principal, reference: &TableReference) -> Error {
    let readable = all_names(read_view, principal);
    let readable: Vec<&str> = readable.iter().map(String::as_str).collect();
    let expected = expected(&reference.to_string(), &readable, "expected a role that reads it");
    let message = format!("\"{}\" may not read the table \"{reference}\": {expected}", principal.name);
    Error::forbidden(message).with("principal", &principal.name).with("roles", principal.roles())
}

fn not_in_search_path(name: &str) -> Error {
    Error::input(format!("there is no table \"{name}\" in the schemas of search_path"))
        .with_reason(Reason::UnknownTable)
        .with("help", format!("\"{name}\" is in the schema {DEFAULT_SCHEMA}: name it, or SET search_path = {DEFAULT_SCHEMA}"))
}

fn all_names(read_view: &ReadView, principal: &Principal) -> Vec<String> {
    let registry = &read_view.loaded.registry;
    let readable = names(read_view).into_iter().filter(|name| may_read(principal, registry, name));
    let system = SystemTable::ALL.iter().filter(|_| may_read_system(principal));
    readable.chain(system.map(|table| format!("{SYSTEM_SCHEMA}.{}", table.name()))).collect()
}
