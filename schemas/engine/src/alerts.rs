//! Alerts: which rows of a view satisfy a condition, and when that can change without an event.
//!
//! ```text
//! row of a key at t -- WHERE --> holds or not -- SELECT --> record
//!                         +----> the next time at which the same row holds or not
//! windows -- tiles of the key --> the next time at which the row may be another one
//! ```
//!
//! A row counts what lies before the end of the hop of its time: events that are read already and later do not count
//! yet ([`RowTime::up_to`](types::tiles::RowTime::up_to)), and a row exists once one of its events is not later than
//! the end of the finest of these hops. Between two events of a key, its row changes only where one of its tiles comes
//! into a window or goes out of it ([`Pieces::changes`](crate::states::Pieces::changes)). A condition over the same row
//! changes only where it asks for the time: such a condition is made of comparisons of which each changes at most once
//! as time passes (`monotone`), so that the time is found by bisection, exact to the microsecond
//! ([`AlertPlan::next_change`]). A condition that is not made of such comparisons is rejected, because the time at
//! which it becomes true could not be computed.
//!
//! A value of all time includes every event that is read, also at a time before some of them.
//! [`AlertPlan::values_since`] says since when it has been what it is. A row of a linked view is made of edges of many
//! keys: a walk says when one of them comes or goes, and since when they are known
//! ([`EdgeTimes`](crate::walk::EdgeTimes)).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Span;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::prelude::SessionContext;
use definitions::{AlertDefinition, Diagnostics};
use types::sql_types::timestamp_type;
use types::tiles::{Level, Micros, TimeRange};
use types::{Error, Result};

use crate::checked::physical;
use crate::functions::Functions;
use crate::parameters::UsedParameters;
use crate::plan::{
    ColumnKind, SelectError, SelectPlace, TypedTextColumns, ViewPlan, asks_for_time, check_expressions, node_name, planning_session,
    simplify_or_keep, unstable_function,
};
use crate::sinks::{AS_OF, SelectOwner, Sources, analysed, check_names, check_system_names};

mod evaluate;
mod first_changes;
mod monotone;
mod never;
mod settled;
mod watch;

pub use evaluate::{AlertRecords, ConditionResults, FailedRow};
use settled::SettledTime;
pub use watch::{KeyWatch, OpenState, Transition};

/// How the rows of one alert are found. It follows from the alert's SELECT and its view.
#[derive(Debug, Clone)]
pub struct AlertPlan {
    pub view: Arc<ViewPlan>,
    /// The view's columns that the alert reads: indices into [`ViewPlan::columns`].
    pub wanted: Vec<usize>,
    /// The record's columns.
    pub output: SchemaRef,
    /// The parameters whose values it was planned with.
    pub parameters: UsedParameters,
    /// Why no row satisfies the condition at any time, with these values of the parameters, if that is known.
    pub why_never: Option<String>,
    /// The view's columns, then [`AS_OF`].
    row: SchemaRef,
    condition: Arc<dyn PhysicalExpr>,
    columns: Vec<Arc<dyn PhysicalExpr>>,
    /// The comparisons of the condition that ask for the time. Each changes at most once.
    comparisons: Vec<Arc<dyn PhysicalExpr>>,
    /// The ranges on which the wanted columns, and the existence of a row, depend.
    ranges: Vec<TimeRange>,
    /// When the values that the condition reads became what they are.
    settled: SettledTime,
}

impl AlertPlan {
    /// Plans an alert over one of the views. Errors: what cannot be watched, with its place in the file.
    pub async fn new(alert: &AlertDefinition, functions: &Functions, sources: Sources<'_>) -> Result<AlertPlan, Diagnostics> {
        let at_select = |error: Error| at(alert, None, &error);
        let refused = |SelectError { error, span }: SelectError| {
            at(alert, span, &SelectOwner::Alert.refused(error.with_text_hint(&alert.select), sources))
        };
        let session = session(functions, sources.views).map_err(at_select)?;
        let planned = analysed(&session, &alert.select, "an alert", sources).await;
        let (plan, parameters) = planned.map_err(|errors| Diagnostics(errors.into_iter().flat_map(refused).collect()))?;
        if sources.is_strict {
            check_expressions(&plan).and_then(|()| check_system_names(&plan)).map_err(at_select)?;
        }
        Ok(AlertPlan { parameters, ..Self::from_logical_plan(&plan, sources.views).map_err(at_select)? })
    }

    fn from_logical_plan(plan: &LogicalPlan, views: &[Arc<ViewPlan>]) -> Result<AlertPlan> {
        let LogicalPlan::Projection(projection) = plan else { return Err(unsupported(plan)) };
        let LogicalPlan::Filter(filter) = &*projection.input else {
            return match view_name(&projection.input) {
                Ok(_) => Err(Error::input("it has no WHERE: expected the condition that a row begins to satisfy")),
                Err(error) => Err(error),
            };
        };
        let view = view_name(&filter.input)?;
        let view = views.iter().find(|known| *known.view == *view).cloned();
        let view = view.ok_or_else(|| Error::internal("an alert reads a view that is not planned"))?;
        let input = filter.input.schema();
        let expression = |expr: &Expr| {
            check_expression(expr)?;
            physical(&simplify_or_keep(timed(expr.clone(), &filter.input)?, input), input)
        };
        let condition = expression(&filter.predicate)?;
        let columns = projection.expr.iter().map(expression).collect::<Result<Vec<_>>>()?;
        let comparisons = monotone::comparisons(&filter.predicate, input)?;
        let comparisons = comparisons.iter().map(expression).collect::<Result<Vec<_>>>()?;
        let output: SchemaRef = Arc::new(projection.schema.as_arrow().clone());
        check_names(&output)?;
        let row: SchemaRef = Arc::new(input.as_arrow().clone());
        let by_time: BTreeSet<usize> = collect_columns(&condition).iter().map(|column| column.index()).collect();
        refuse_moving_columns(&view, &by_time)?;
        let settled = SettledTime::for_condition(&view, &by_time, !comparisons.is_empty());
        let mut used: BTreeSet<usize> = columns.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        used.extend(by_time.iter().chain(settled.columns()));
        let wanted: Vec<usize> = used.into_iter().filter(|column| *column < view.columns.len()).collect();
        let ranges = ranges(&view, &wanted);
        let parameters = UsedParameters::new();
        let why_never = never::why_never(&filter.predicate, &view);
        Ok(AlertPlan { view, wanted, output, parameters, why_never, row, condition, columns, comparisons, ranges, settled })
    }

    /// The ranges on which a row depends.
    pub fn ranges(&self) -> &[TimeRange] {
        &self.ranges
    }

    /// The tiles by which a row's windows end with its time; `None` if none does.
    pub fn hop(&self) -> Option<Level> {
        let ends = self.ranges.iter().filter(|range| range.until.is_none() && **range != TimeRange::ALL);
        ends.map(|range| range.hop).min()
    }

    /// The first time after `t` at which an edge of a range moves: until then rows of the same states are the same.
    pub fn next_edge(&self, t: Micros) -> Option<Micros> {
        self.ranges.iter().filter_map(|range| range.next_edge(t)).min()
    }
}

/// A session in which views are (empty) tables.
fn session(functions: &Functions, views: &[Arc<ViewPlan>]) -> Result<SessionContext> {
    let session = planning_session(functions)?;
    let mut typed_texts = TypedTextColumns::default();
    for view in views {
        let time = Arc::new(Field::new(AS_OF, timestamp_type(), false));
        let fields = view.output_schema().fields().iter().cloned().chain([time]).collect::<Vec<_>>();
        session.register_table(&*view.view, Arc::new(EmptyTable::new(Arc::new(Schema::new(fields)))))?;
        typed_texts.add_view(&view.view, view);
    }
    typed_texts.register(&session);
    Ok(session)
}

/// The name of the view that a node scans, under an alias or not.
fn view_name(node: &LogicalPlan) -> Result<&str> {
    match node {
        LogicalPlan::TableScan(scan) => Ok(scan.table_name.table()),
        LogicalPlan::SubqueryAlias(alias) => view_name(&alias.input),
        other => Err(unsupported(other)),
    }
}

fn unsupported(node: &LogicalPlan) -> Error {
    if let LogicalPlan::Aggregate(_) = node {
        return SelectOwner::Alert.aggregates();
    }
    Error::input(format!(
        "{} is not supported in an alert, which watches the rows of one view: expected SELECT .. FROM view WHERE ..",
        node_name(node)
    ))
}

/// The expression, where the time's column replaces `as_of()`.
fn timed(expr: Expr, input: &LogicalPlan) -> Result<Expr> {
    let schema = input.schema();
    let found = schema.iter().find(|(_, field)| field.name() == AS_OF);
    let (qualifier, field) = found.ok_or_else(|| Error::internal("the rows of an alert have no time"))?;
    let column = Expr::Column(datafusion::common::Column::new(qualifier.cloned(), field.name()));
    let timed = expr.transform_up(|expr| match asks_for_time(&expr) {
        true => Ok(Transformed::yes(column.clone())),
        false => Ok(Transformed::no(expr)),
    })?;
    Ok(timed.data)
}

fn check_expression(expr: &Expr) -> Result<()> {
    let mut problem = None;
    expr.apply(|expr| {
        problem = match expr {
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) => {
                Some("a subquery is not supported in an alert: expected columns of its view".to_owned())
            }
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Some(SelectOwner::Alert.aggregates().message().to_owned()),
            Expr::Column(column) if column.name == AS_OF => Some(format!("'{AS_OF}' is no column of the view: expected as_of()")),
            _ if asks_for_time(expr) => None,
            _ => unstable_function(expr)
                .map(|name| format!("{name}() answers differently from call to call: expected as_of() for the time of the row")),
        };
        Ok(if problem.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    problem.map_or(Ok(()), |problem| Err(Error::input(problem)))
}

/// A column whose value changes by itself cannot be compared: its next value is not known from this one.
fn refuse_moving_columns(view: &ViewPlan, used: &BTreeSet<usize>) -> Result<()> {
    match used.iter().find(|column| view.reads_time(&[**column])) {
        None => Ok(()),
        Some(column) => Err(Error::input(format!(
            "the condition uses the column '{}', which is computed from as_of() in the view \"{}\": expected as_of() in the alert's WHERE \
             beside the columns that it is computed from",
            view.columns[*column].field.name(),
            view.view
        ))),
    }
}

/// The ranges on which these columns depend, and that on which the existence of a row depends.
fn ranges(view: &ViewPlan, wanted: &[usize]) -> Vec<TimeRange> {
    let values = |column: &usize| match &view.columns[*column].kind {
        ColumnKind::Key(_) => None,
        ColumnKind::Value(value) => Some(value),
    };
    let of_columns = wanted.iter().filter_map(values).flat_map(|value| &value.ranges);
    let used: BTreeSet<TimeRange> = match view.links() {
        None => {
            let used = of_columns.map(|range| range.in_view()).chain([view.existence]);
            used.filter_map(|range| view.ranges.get(range.0).copied()).collect()
        }
        Some(links) => {
            let used = of_columns.map(|range| range.in_links()).chain([links.existence]);
            used.map(|range| links.range(range)).flat_map(|pair| [pair.near, pair.far]).collect()
        }
    };
    used.into_iter().collect()
}

/// An error at its place in the file, or at the beginning of the SELECT.
fn at(alert: &AlertDefinition, span: Option<Span>, error: &Error) -> Diagnostics {
    let select = SelectPlace { line: alert.select_line, column: alert.select_column };
    SelectOwner::Alert.diagnostics(&alert.name, &alert.origin, select.at_span(span), error)
}

#[cfg(test)]
mod tests;
