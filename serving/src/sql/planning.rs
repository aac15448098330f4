//! How DataFusion plans a query of any form over one read view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::DataType;
use committed::registry::LiveStream;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use engine::functions::{interval_functions, to_char, typed_texts};
use engine::plan::{
    BytesInHexadecimal, DecimalsOfDoubles, EpochsOfYears, IntegersDoNotWrap, LocalTimesInNamedZones, ScalarSubqueriesMayBeNull, TextType,
    TypedTextColumns, check_supported, compute_in_zone, keep_numbered_keys,
};
use types::{Error, ErrorKind, Reason, Result};

use super::column_names::AliasedColumns;
use super::compared_subqueries::ComparedSubqueriesHaveNames;
use super::exists::ExistsInColumns;
use super::in_subqueries::NullsAmongSubqueries;
use super::lifted_subqueries::SubqueriesAreColumns;
use super::like_escape::like_pattern;
use super::operand_types::OperandTypes;
use super::pg_typeof::pg_typeof;
use super::search_path::SearchPath;
use super::statement::ParsedQuery;
use super::{
    QueryText, SessionSettings, TableReader, any_of_arrays, cast_names, casts, column_names, copies, fetch_clause, function_names, params,
    rights, series, sorted_positions, statement, subquery_names, tables, unnested_columns, using_columns, wildcards,
};
use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::read_view::{ReadView, only_served_version_answers};

/// How often a query is planned again because several columns have one name: the planner reports one name at a time.
const MOST_CLASHING_NAMES: usize = 16;

/// A query, planned over one read view.
pub(super) struct PlannedQuery {
    pub(super) session: SessionContext,
    /// The state of the session, with the tables of the query. Making it copies the names of all functions, so there is
    /// one for each query.
    pub(super) state: SessionState,
    pub(super) context: QueryContext,
    pub(super) plan: LogicalPlan,
    /// The [`TextType`] of each column of the answer.
    pub(super) text_types: Vec<TextType>,
    pub(super) columns: TypedTextColumns,
}

/// A query to be planned, and for whom.
#[derive(Clone, Copy)]
pub(super) struct PlanRequest<'a> {
    pub(super) runtime: &'a QueryRuntime,
    pub(super) reader: TableReader<'a>,
    pub(super) text: QueryText<'a>,
    /// The types of parameters that the planner may be unable to find.
    pub(super) types: &'a [Option<DataType>],
}

/// Parses the text of a query and resolves its tables by the search path.
pub(super) fn read(sql: &str, search_path: SearchPath, read_view: &ReadView) -> Result<ParsedQuery> {
    let mut asked = statement::read(sql)?;
    function_names::rewrite(&mut asked.statement)?;
    search_path.name_system_schema(&mut asked.statement, |table| tables::is_table(read_view, table));
    Ok(asked)
}

/// Plans a query.
///
/// Errors: `Input` for a mistake; `Unavailable` for a column or a table that the served version of a view may have,
/// while the previous version answers in its place.
pub(super) async fn plan(request: PlanRequest<'_>, read_view: Arc<ReadView>) -> Result<PlannedQuery> {
    let served = (!read_view.versions.is_empty()).then(|| Arc::new(ReadView::clone(&read_view).with_served_versions()));
    let (mistake, served) = match (Box::pin(plan_over(request, read_view)).await, served) {
        (Err(mistake), Some(served)) if matches!(mistake.reason(), Some(Reason::UnknownColumn | Reason::UnknownTable)) => (mistake, served),
        (planned, _) => return planned,
    };
    match Box::pin(plan_over(request, served)).await {
        Err(error) if error.kind() == ErrorKind::Input => Err(error),
        _ => Err(only_served_version_answers(&mistake)),
    }
}

/// The same over those versions of views that answer in this read view.
async fn plan_over(request: PlanRequest<'_>, read_view: Arc<ReadView>) -> Result<PlannedQuery> {
    let PlanRequest { runtime, reader, text, types } = request;
    let search_path = text.settings.search_path;
    let asked = read(text.sql, search_path, &read_view)?;
    let mut session = runtime.session()?;
    let named = tables::tables_named(&read_view, &session.state_ref().read(), (&asked.statement, search_path), reader.principal)?;
    // The archive has a stream's events up to the last checkpoint: views beside them are read as of it too.
    let read_view = if named.has_streams { Arc::new(read_view.committed()) } else { read_view };
    let context = QueryContext::new(read_view, asked.as_of.or(text.settings.as_of), &named.views)?.on_value_error(text.on_value_error);
    let columns = tables::register(&session, runtime, &context, reader)?;
    session.register_expr_planner(Arc::new(OperandTypes))?;
    session.add_analyzer_rule(Arc::new(IntegersDoNotWrap));
    session.add_analyzer_rule(Arc::new(ScalarSubqueriesMayBeNull));
    session.add_analyzer_rule(Arc::new(ComparedSubqueriesHaveNames));
    session.add_analyzer_rule(Arc::new(SubqueriesAreColumns));
    session.add_analyzer_rule(Arc::new(NullsAmongSubqueries));
    session.add_analyzer_rule(Arc::new(ExistsInColumns));
    session.add_analyzer_rule(Arc::new(LocalTimesInNamedZones));
    session.add_analyzer_rule(Arc::new(EpochsOfYears));
    session.add_analyzer_rule(Arc::new(DecimalsOfDoubles));
    session.add_analyzer_rule(Arc::new(BytesInHexadecimal));
    if let Some(zone) = text.settings.time_zone {
        compute_in_zone(&mut session, zone)?;
    }
    let functions = [like_pattern(), to_char(), pg_typeof()];
    typed_texts().into_iter().chain(interval_functions()).chain(functions).for_each(|function| session.register_udf(function));

    let state = session.state();
    let casts = column_names::names_of_casts(&asked.statement);
    let planned = plan_statement(&state, text, asked.statement, types, &context.read_view).await;
    let (plan, aliased) = planned.map_err(|error| error.with_text_hint(text.sql))?;
    statement::allow(&plan)?;
    check_supported(&plan)?;
    rights::allow_plan(reader.principal, &context.read_view.loaded.registry, &plan)?;
    let text_types = columns.in_output(&plan);
    let plan = column_names::named(plan, &aliased, &casts)?;
    Ok(PlannedQuery { session, state, context, plan, text_types, columns })
}

/// Plans a statement. If the planner refuses several columns of one name, plans it again with aliases for them; if it
/// does not find a column, with the columns of functions in FROM named like the functions' aliases.
async fn plan_statement(
    state: &SessionState,
    text: QueryText<'_>,
    statement: Statement,
    types: &[Option<DataType>],
    read_view: &ReadView,
) -> Result<(LogicalPlan, AliasedColumns)> {
    let (QueryText { sql, settings, .. }, streams) = (text, &read_view.loaded.registry.streams);
    let rewritten = |statement| {
        let mut statement = rewritten(statement, streams, settings)?;
        copies::check_planned(&mut statement, state)?;
        Ok::<_, Error>(statement)
    };
    let mut refusal = match params::plan(state, sql, rewritten(statement)?, types).await {
        Ok(plan) => return Ok((plan, AliasedColumns::default())),
        Err(error) => error,
    };
    if refusal.reason() == Some(Reason::UnknownColumn) {
        let mut statement = rewritten(read(sql, settings.search_path, read_view)?.statement)?;
        if series::name_columns(&mut statement)
            && let Ok(plan) = params::plan(state, sql, statement, types).await
        {
            return Ok((plan, AliasedColumns::default()));
        }
    }
    // The planner names one column at a time.
    let mut clashing = BTreeSet::new();
    while clashing.len() < MOST_CLASHING_NAMES
        && let Some(name) = column_names::repeated_name(&refusal)
        && clashing.insert(name)
    {
        let mut statement = rewritten(read(sql, settings.search_path, read_view)?.statement)?;
        let aliased = column_names::alias_repeated_names(&mut statement, &clashing)?;
        if aliased.is_empty() {
            break;
        }
        match params::plan(state, sql, statement, types).await {
            Ok(plan) => return Ok((plan, aliased)),
            Err(error) => refusal = aliased.explained(error),
        }
    }
    Err(refusal)
}

/// Rewrites the statement to what the planner understands.
fn rewritten(mut statement: Statement, streams: &BTreeMap<Arc<str>, LiveStream>, settings: SessionSettings<'_>) -> Result<Statement> {
    unnested_columns::rewrite(&mut statement);
    wildcards::leave_out_system_columns(&mut statement, streams)?;
    using_columns::rewrite(&mut statement)?;
    cast_names::name_casts(&mut statement);
    any_of_arrays::rewrite(&mut statement)?;
    sorted_positions::as_expressions(&mut statement);
    series::read_steps(&mut statement);
    casts::rewrite(&mut statement)?;
    fetch_clause::as_limit(&mut statement);
    subquery_names::rewrite(&mut statement);
    if settings.time_zone.is_some() {
        casts::tell_utc_apart(&mut statement)?;
    }
    if let Some(statement) = params::inner_mut(&mut statement) {
        keep_numbered_keys(statement);
    }
    Ok(statement)
}
