//! Sinks: a record for each event, made of the event and the rows of views that belong to it.
//!
//! ```text
//! event -- keys --> rows of views --+
//! event ----------------------------+-- one joined row -- WHERE, SELECT --> record
//! ```
//!
//! DataFusion's analyser plans the SELECT as a join of tables. The join itself is ours: a view's row is read by its key
//! as the event sees it, so that only the steps above the join are evaluated.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Span;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use definitions::{Diagnostics, SinkDefinition, StreamDefinition};
use types::sql_dialect::{SqlDialect, parse_statement};
use types::sql_errors::constants_as_sql;
use types::sql_types::timestamp_type;
use types::{Error, Result};

use crate::checked::physical;
use crate::events::user_schema;
use crate::functions::Functions;
use crate::parameters::{Parameters, UsedParameters, put_in};
use crate::plan::{
    LACKS_BRACKETS, SelectError, SelectPlace, TypedTextColumns, ViewPlan, asks_for_time, check_expressions, check_on_types, ignored_clause,
    ignored_in_calls, lacks_brackets, node_name, planning_session, simplify_or_keep, with_other_unknown_names, with_position,
};
use crate::steps::Step;

mod evaluate;
mod expressions;
mod joins;
mod select_owner;

pub use evaluate::{Failed, OutputRecords};
pub(crate) use select_owner::SelectOwner;

use expressions::check_expression;

/// Where an event's answers are: the position of the read view, as text.
pub const POSITION: &str = "_position";
/// The time for which an event's rows are read.
pub const AS_OF: &str = "_as_of";

/// How the records of one sink are made. It follows from the sink's SELECT, its stream and its views.
#[derive(Debug, Clone)]
pub struct SinkPlan {
    pub stream: Arc<StreamDefinition>,
    /// In the order of the FROM.
    pub joins: Vec<JoinedView>,
    /// The record's columns.
    pub output: SchemaRef,
    /// The column that is the record's key: an index into `output`.
    pub key: Option<usize>,
    /// The parameters whose values it was planned with.
    pub parameters: UsedParameters,
    /// A joined row: the stream's columns, [`POSITION`], [`AS_OF`], then all columns of each view.
    row: SchemaRef,
    steps: Vec<Step>,
}

/// A view that is joined by all of its keys.
#[derive(Debug, Clone)]
pub struct JoinedView {
    pub plan: Arc<ViewPlan>,
    /// The columns that the sink uses: indices into [`ViewPlan::columns`].
    pub wanted: Vec<usize>,
    /// For each of [`ViewPlan::answer_keys`], an expression over the event's columns.
    keys: Vec<Arc<dyn PhysicalExpr>>,
}

/// The streams, the served views and the parameters of a project: what sinks and alerts read.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    pub streams: &'a [Arc<StreamDefinition>],
    pub views: &'a [Arc<ViewPlan>],
    /// The views without an aggregate. They have no rows to read.
    pub staging: &'a BTreeSet<Arc<str>>,
    pub parameters: &'a Parameters,
    /// Whether what fails on every row is refused. What is stored was not always checked for that: it is planned
    /// without.
    pub is_strict: bool,
}

impl SinkPlan {
    /// Plans a sink. Errors: what cannot be put out for each event, with its place in the file.
    pub async fn new(sink: &SinkDefinition, functions: &Functions, sources: Sources<'_>) -> Result<SinkPlan, Diagnostics> {
        let at_select = |error: Error| at(sink, None, &error);
        let refused = |SelectError { error, span }: SelectError| {
            at(sink, span, &SelectOwner::Sink.refused(error.with_text_hint(&sink.select), sources))
        };
        let session = session(functions, sources).map_err(at_select)?;
        let planned = analysed(&session, &sink.select, "a sink", sources).await;
        let (plan, parameters) = planned.map_err(|errors| Diagnostics(errors.into_iter().flat_map(refused).collect()))?;
        if sources.is_strict {
            check_expressions(&plan).and_then(|()| check_system_names(&plan)).map_err(at_select)?;
        }
        Ok(SinkPlan { parameters, ..Self::from_logical_plan(sink, &plan, sources).map_err(at_select)? })
    }

    /// The names of the record's columns, for messages.
    pub fn column_names(&self) -> String {
        column_names(&self.output)
    }

    fn from_logical_plan(sink: &SinkDefinition, plan: &LogicalPlan, sources: Sources<'_>) -> Result<SinkPlan> {
        let mut steps = Vec::new();
        let joined = collect_steps(plan, &mut steps)?;
        let (stream, joins) = joins::joined(joined, sources)?;
        let row: SchemaRef = Arc::new(joined.schema().as_arrow().clone());
        let output: SchemaRef = Arc::new(plan.schema().as_arrow().clone());
        check_names(&output)?;
        let key = match &sink.key {
            None => None,
            Some(key) => Some(output.index_of(key).map_err(|_| {
                let columns = column_names(&output);
                Error::input(format!("key names the column '{key}', which the SELECT does not have: expected one of {columns}"))
            })?),
        };
        let mut plan = SinkPlan { stream, joins, output, key, parameters: UsedParameters::new(), row, steps };
        plan.find_wanted();
        Ok(plan)
    }

    /// The number of columns that come before those of the views.
    fn event_columns(&self) -> usize {
        self.stream.columns.len() + 2
    }

    /// Finds which columns of the views the steps next to the join read.
    fn find_wanted(&mut self) {
        let mut used = BTreeSet::new();
        for step in &self.steps {
            for expr in step.exprs() {
                used.extend(datafusion::physical_expr::utils::collect_columns(expr).iter().map(|column| column.index()));
            }
            if let Step::Project(..) = step {
                break;
            }
        }
        let mut from = self.event_columns();
        for join in &mut self.joins {
            let columns = join.plan.columns.len();
            join.wanted = (0..columns).filter(|column| used.contains(&(from + column))).collect();
            from += columns;
        }
    }
}

fn column_names(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

/// The stream's table in a sink: its own columns, and what an event is answered from.
fn event_schema(stream: &StreamDefinition) -> SchemaRef {
    let own = user_schema(stream);
    let answers = [Field::new(POSITION, DataType::Utf8, false), Field::new(AS_OF, timestamp_type(), false)];
    Arc::new(Schema::new(own.fields().iter().cloned().chain(answers.map(Arc::new)).collect::<Vec<_>>()))
}

/// A session in which streams and views are (empty) tables.
fn session(functions: &Functions, sources: Sources<'_>) -> Result<SessionContext> {
    let session = planning_session(functions)?;
    let mut typed_texts = TypedTextColumns::of_streams(sources.streams.iter().map(|stream| &**stream));
    for stream in sources.streams {
        session.register_table(&*stream.name, Arc::new(EmptyTable::new(event_schema(stream))))?;
    }
    for view in sources.views {
        session.register_table(&*view.view, Arc::new(EmptyTable::new(view.output_schema())))?;
        typed_texts.add_view(&view.view, view);
    }
    typed_texts.register(&session);
    Ok(session)
}

/// Returns the name of the first table of a SELECT, which is a sink's stream. `None` where the text has to be planned
/// to know it.
pub fn stream_of(select: &str) -> Option<String> {
    let statements = Parser::parse_sql(&SqlDialect, select).ok()?;
    let [ast::Statement::Query(query)] = statements.as_slice() else { return None };
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let ast::TableFactor::Table { name, .. } = &select.from.first().filter(|_| query.with.is_none())?.relation else { return None };
    let name = name.0.last()?.as_ident()?;
    Some(if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() })
}

/// The plan of the text after DataFusion's analyser (types are coerced, nothing is optimized), with the values of
/// parameters in their places, and which those are. `*` has no column of the system.
///
/// Errors: all names that nothing has, or another mistake.
pub(crate) async fn analysed(
    session: &SessionContext,
    select: &str,
    what: &str,
    sources: Sources<'_>,
) -> Result<(LogicalPlan, UsedParameters), Vec<SelectError>> {
    let one = |error: DataFusionError| vec![SelectError::from(error)];
    let ours = |message: String| vec![SelectError { error: Error::input(message), span: None }];
    let another = || ours(format!("{what} is a SELECT, found another statement"));
    let state = session.state();
    let Statement::Statement(mut statement) = parse_statement(select).map_err(one)? else { return Err(another()) };
    let ast::Statement::Query(query) = &mut *statement else { return Err(another()) };
    let in_calls = || ignored_in_calls(&**query).filter(|_| sources.is_strict);
    if let Some(clause) = ignored_clause(&**query).or_else(in_calls) {
        return Err(ours(format!("{clause} is not supported in {what}: expected SELECT .. FROM .. WHERE ..")));
    }
    if sources.is_strict && lacks_brackets(&**query) {
        return Err(ours(LACKS_BRACKETS.to_owned()));
    }
    let used = put_in(query, sources.parameters).map_err(|(error, span)| vec![SelectError { error, span }])?;
    let query = query.clone();
    let plan = match state.statement_to_plan(Statement::Statement(statement)).await {
        Ok(plan) => plan,
        Err(error) => return Err(mistakes(session, &query, error).await),
    };
    if sources.is_strict {
        check_on_types(&plan).map_err(|unlike| vec![unlike])?;
    }
    let plan = match state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}) {
        Ok(plan) => plan,
        Err(error) => return Err(mistakes(session, &query, error).await),
    };
    Ok((leave_out_unnamed(plan, select).map_err(one)?, used))
}

/// All names that nothing has, or another mistake, each at its place.
async fn mistakes(session: &SessionContext, query: &ast::Query, error: DataFusionError) -> Vec<SelectError> {
    let mut mistakes = Vec::new();
    for mistake in with_other_unknown_names(session, query, error.into()).await {
        mistakes.push(with_position(session, query, mistake).await);
    }
    mistakes
}

/// Leaves [`POSITION`] and [`AS_OF`] out of what `*` stands for: the output has them where the text names them.
fn leave_out_unnamed(plan: LogicalPlan, select: &str) -> Result<LogicalPlan, DataFusionError> {
    let unnamed: Vec<&str> = [POSITION, AS_OF].into_iter().filter(|name| !is_named(select, name)).collect();
    let is_left_out = |expr: &Expr| matches!(expr, Expr::Column(column) if unnamed.contains(&column.name.as_str()));
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().any(is_left_out) => {
            let kept = projection.expr.into_iter().filter(|expr| !is_left_out(expr)).collect();
            Ok(LogicalPlan::Projection(Projection::try_new(kept, projection.input)?))
        }
        plan => Ok(plan),
    }
}

/// Whether a text has this word outside of its constants and comments.
fn is_named(text: &str, name: &str) -> bool {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap_or_default();
    tokens.iter().any(|token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case(name)))
}

/// Collects the steps above the join (or, without one, above the stream), the first one first, and returns what is
/// below them.
fn collect_steps<'p>(node: &'p LogicalPlan, steps: &mut Vec<Step>) -> Result<&'p LogicalPlan> {
    match node {
        LogicalPlan::Projection(projection) => {
            let below = collect_steps(&projection.input, steps)?;
            let exprs = projection.expr.iter().map(|expr| expression(expr, &projection.input)).collect::<Result<Vec<_>>>()?;
            steps.push(Step::Project(exprs, Arc::new(projection.schema.as_arrow().clone())));
            Ok(below)
        }
        LogicalPlan::Filter(filter) => {
            let below = collect_steps(&filter.input, steps)?;
            steps.push(Step::Filter(expression(&filter.predicate, &filter.input)?));
            Ok(below)
        }
        LogicalPlan::SubqueryAlias(alias) if !matches!(&*alias.input, LogicalPlan::TableScan(_)) => collect_steps(&alias.input, steps),
        LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => Ok(node),
        LogicalPlan::Aggregate(_) => Err(SelectOwner::Sink.aggregates()),
        other => Err(Error::input(format!(
            "{} is not supported in a sink, which puts out one record for each event: expected SELECT .. FROM stream LEFT JOIN view ON .. \
             WHERE ..",
            node_name(other)
        ))),
    }
}

fn expression(expr: &Expr, input: &LogicalPlan) -> Result<Arc<dyn PhysicalExpr>> {
    check_expression(expr)?;
    // Between two steps the time is a column of the joined row no more, unless the step before kept it.
    let timed = expr.clone().transform_up(|expr| match asks_for_time(&expr) {
        true => Ok(Transformed::yes(time_column(input)?)),
        false => Ok(Transformed::no(expr)),
    })?;
    physical(&simplify_or_keep(timed.data, input.schema()), input.schema())
}

fn time_column(input: &LogicalPlan) -> datafusion::error::Result<Expr> {
    let schema = input.schema();
    let found = schema.iter().find(|(_, field)| field.name() == AS_OF);
    let (qualifier, field) = found.ok_or_else(|| {
        let message = "as_of() is used above a SELECT of the FROM: expected it beside the view's columns, or _as_of selected below";
        DataFusionError::from(Error::input(message))
    })?;
    Ok(Expr::Column(datafusion::common::Column::new(qualifier.cloned(), field.name())))
}

/// A record's members need names of their own.
pub(crate) fn check_names(output: &Schema) -> Result<()> {
    let mut seen = BTreeSet::new();
    for field in output.fields() {
        let name = field.name();
        if !seen.insert(name) {
            return Err(Error::input(format!("two columns are named '{name}': expected another alias for one of them")));
        }
        let is_ours = name == POSITION || name == AS_OF;
        if name.starts_with('_') && !is_ours {
            return Err(Error::input(format!("the column '{name}' begins with '_', which is reserved: expected another alias")));
        }
        if name.contains(['(', ' ', '.']) {
            let written = constants_as_sql(name);
            return Err(Error::input(format!("the column \"{written}\" has no alias: expected <expression> AS <name>")));
        }
    }
    Ok(())
}

/// Refuses [`POSITION`] and [`AS_OF`] as the names of columns that have another value.
pub(crate) fn check_system_names(plan: &LogicalPlan) -> Result<()> {
    for (index, field) in plan.schema().fields().iter().enumerate() {
        let name = field.name().as_str();
        if [POSITION, AS_OF].contains(&name) && name_in_table(plan, index) != Some(name) {
            return Err(Error::input(format!(
                "the column '{name}' is an alias of another value than the system's: expected another alias"
            )));
        }
    }
    Ok(())
}

/// The name that a node's column has in the table that it comes from. `None` if it is computed.
fn name_in_table(node: &LogicalPlan, index: usize) -> Option<&str> {
    match node {
        LogicalPlan::Projection(projection) => match without_alias(projection.expr.get(index)?) {
            Expr::Column(column) => name_in_table(&projection.input, projection.input.schema().maybe_index_of_column(column)?),
            expr if asks_for_time(expr) => Some(AS_OF),
            _ => None,
        },
        LogicalPlan::Filter(filter) => name_in_table(&filter.input, index),
        LogicalPlan::SubqueryAlias(alias) => name_in_table(&alias.input, index),
        table => table.schema().fields().get(index).map(|field| field.name().as_str()),
    }
}

fn without_alias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => without_alias(&alias.expr),
        expr => expr,
    }
}

/// An error at its place in the file, or at the beginning of the SELECT.
fn at(sink: &SinkDefinition, span: Option<Span>, error: &Error) -> Diagnostics {
    let select = SelectPlace { line: sink.select_line, column: sink.select_column };
    SelectOwner::Sink.diagnostics(&sink.name, &sink.origin, select.at_span(span), error)
}

#[cfg(test)]
mod tests;
