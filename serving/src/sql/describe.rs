//! Describes the columns and parameters of a query without running it, and lists the tables.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use engine::plan::TextType;
use types::{Error, Result};

use super::names::{DEFAULT_CATALOG, DEFAULT_SCHEMA, SYSTEM_SCHEMA, view_of_table};
use super::planning::{PlanRequest, plan};
use super::query_time::plan_in_time;
use super::search_path::SearchPath;
use super::{QueryText, SessionSettings, TableReader, params, tables};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::ReadView;
use crate::value_errors::OnValueError;

/// A query's columns and parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    pub schema: SchemaRef,
    /// The [`TextType`] of each column.
    pub text_types: Vec<TextType>,
    /// The types of `$1`, `$2`, ..
    pub params: Vec<DataType>,
    /// The [`TextType`] that each parameter is compared with or cast to.
    pub param_text_types: Vec<TextType>,
}

/// A table that queries can name.
#[derive(Debug, Clone)]
pub struct TableDescription {
    pub schema: &'static str,
    pub name: String,
    pub columns: SchemaRef,
    /// The [`TextType`] of each column.
    pub text_types: Vec<TextType>,
    /// False for a stream and a system table.
    pub is_view: bool,
}

pub(crate) async fn describe(
    runtime: &QueryRuntime,
    reader: TableReader<'_>,
    read_view: ReadView,
    sql: &str,
    given: &[Option<DataType>],
    search_path: SearchPath,
) -> Result<Described> {
    // Owned, because planning may outlive its caller.
    let (of_query, of_principal, log) = (runtime.clone(), reader.principal.clone(), reader.log.cloned());
    let (sql, given) = (sql.to_owned(), given.to_vec());
    let planning = async move {
        let reader = TableReader { principal: &of_principal, log: log.as_ref() };
        planned(&of_query, reader, read_view, &sql, &given, search_path).await
    };
    plan_in_time(runtime, reader.principal, planning).await
}

/// Plans a query for its columns and parameters.
async fn planned(
    runtime: &QueryRuntime,
    reader: TableReader<'_>,
    read_view: ReadView,
    sql: &str,
    given: &[Option<DataType>],
    search_path: SearchPath,
) -> Result<Described> {
    // No type depends on the other settings.
    let settings = SessionSettings { search_path, ..SessionSettings::default() };
    let text = QueryText { sql, settings, on_value_error: OnValueError::Fail };
    let planned = plan(PlanRequest { runtime, reader, text, types: given }, Arc::new(read_view)).await?;
    let types = params::types(&planned.plan, given)?;
    let of_names = planned.columns.parameters(&planned.plan)?;
    let of_number = |number: usize| of_names.get(&format!("${number}")).copied().unwrap_or_default();
    let param_text_types = (1..=types.len()).map(of_number).collect();
    // What the analysis makes of expressions depends on the parameters' types, and on no value.
    let nulls = params::nulls(&types, given)?;
    let state = planned.state;
    let bound = params::bind(planned.plan, super::Params::Typed(nulls))?;
    let analyzed = state.analyzer().execute_and_check(bound, state.config_options(), |_, _| {})?;
    let schema = Arc::new(analyzed.schema().as_arrow().clone());
    Ok(Described { schema, text_types: planned.text_types, params: types, param_text_types })
}

/// The tables of a read view. A view that cannot be answered now is left out.
pub(crate) async fn all_tables(runtime: &QueryRuntime, reader: TableReader<'_>, read_view: ReadView) -> Result<Vec<TableDescription>> {
    let session = runtime.session()?;
    let context = QueryContext::new(read_view, None, &[] as &[&str])?;
    let typed_texts = tables::register(&session, runtime, &context, reader)?;
    let catalog = session.catalog(DEFAULT_CATALOG).ok_or_else(|| Error::internal("the session has no catalog"))?;
    let mut found = Vec::new();
    for schema in [DEFAULT_SCHEMA, SYSTEM_SCHEMA] {
        let Some(provider) = catalog.schema(schema) else { continue };
        let mut names = provider.table_names();
        names.sort();
        for name in names {
            let Some(table) = provider.table(&name).await? else { continue };
            let (columns, is_public) = (table.schema(), schema == DEFAULT_SCHEMA);
            let is_view = is_public && view_of_table(&context.read_view.loaded.registry, &name).is_some();
            let text_types = match is_public {
                true => typed_texts.in_table(&name, &columns),
                false => vec![TextType::Any; columns.fields().len()],
            };
            found.push(TableDescription { schema, name, columns, text_types, is_view });
        }
    }
    Ok(found)
}
