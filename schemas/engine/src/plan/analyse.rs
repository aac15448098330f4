//! Builds a view's [`ViewPlan`] from its text: parse, refuse, analyse, take the Aggregate apart, lower.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::ViewTable;
use datafusion::datasource::empty::EmptyTable;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SessionContext;

use crate::events::user_schema;
use crate::functions::Functions;
use crate::plan::computable::{check_events, check_expressions, unstable_function};
use crate::plan::hidden::{node_name, streams_of};
use crate::plan::refuse;
use crate::plan::refuse::{SelectShape, at_error, at_select, at_span};
use crate::plan::unions::check_union_types;
use crate::plan::uuids::Respelled;
use crate::plan::{ColumnNames, TypedTextColumns, ViewPlan, columns, links, lower, planning_session, sql_of, uuids, within};
use definitions::{Definitions, Diagnostics, StreamDefinition, ViewDefinition};
use types::{Error, Result};

mod logical_plan;
mod refusal;
mod unknown_names;
mod wrong_expression;

use logical_plan::{analysed, logical, parse};
pub(crate) use unknown_names::with_other_unknown_names;
pub(crate) use wrong_expression::with_position;

/// The result of planning a definition's SELECT.
#[derive(Debug, Clone)]
pub enum Planned {
    /// The view aggregates: its states are kept.
    Stateful(Arc<ViewPlan>),
    /// The view has no aggregate: it is inlined where it is used.
    Staging,
}

/// Plans the views of one project.
pub struct Planner {
    functions: Functions,
    streams: Vec<Arc<StreamDefinition>>,
    views: BTreeMap<Arc<str>, Arc<ViewDefinition>>,
    is_strict: bool,
}

impl Planner {
    /// Creates a planner for the views of a project, with these functions.
    pub fn new(definitions: &Definitions, functions: Functions) -> Self {
        Self {
            functions,
            streams: definitions.streams.iter().cloned().map(Arc::new).collect(),
            views: definitions.views.iter().map(|view| (view.name.clone(), Arc::new(view.clone()))).collect(),
            is_strict: false,
        }
    }

    /// Also refuses expressions that fail on every event, clauses of calls that would be ignored, and unions of columns
    /// that would be converted. Stored definitions are planned without this, because earlier releases did not check it.
    pub fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// Plans every view, and returns all mistakes in all of them.
    pub async fn plan_all(&self) -> (Vec<Arc<ViewPlan>>, Diagnostics) {
        let mut plans = Vec::new();
        let mut found = Diagnostics::default();
        for view in self.views.values() {
            match self.plan(view).await {
                Ok(Planned::Stateful(plan)) => plans.push(plan),
                Ok(Planned::Staging) => {}
                Err(diagnostics) => found.extend(diagnostics.0),
            }
        }
        (plans, found)
    }

    /// Plans one view.
    pub async fn plan(&self, view: &ViewDefinition) -> Result<Planned, Diagnostics> {
        let (session, respelled) = self.session(view).await?;
        let query = parse(view)?;
        let shape = refuse::check(&query, view, &self.functions)?;
        if self.is_strict {
            refuse::check_calls(&query, view)?;
        }
        let logical = match logical(&session, &query).await {
            Ok(logical) => logical,
            Err(error) => return Err(self.refused(view, &session, &query, error).await),
        };
        links::check_key_types(&logical).map_err(|found| at_span(view, found.span, &found.error))?;
        if self.is_strict {
            check_union_types(&logical).map_err(|error| at_select(view, &error))?;
        }
        let plan = match analysed(&session, logical) {
            Ok(plan) => plan,
            Err(error) => return Err(self.refused(view, &session, &query, error).await),
        };
        if self.is_strict {
            check_expressions(&plan).and_then(|()| check_keys(&plan)).map_err(|error| at_select(view, &error))?;
        }
        if shape == SelectShape::Staging {
            return self.staging(view, &plan);
        }
        let mut plan = self.plan_with_states(view, &session, &plan).map_err(|error| at_select(view, &error))?;
        if self.is_strict {
            check_events(&plan.prepare, &session).map_err(|error| at_select(view, &error))?;
        }
        if view.max_state_bytes.is_some() && plan.states.iter().all(|state| state.limit_bytes.is_none()) {
            let error = Error::input(
                "max_state_bytes bounds states that collect values (DISTINCT, array_agg, string_agg, median, percentile_cont) or keep \
                 events (sequence_match and the like), and this view has none: expected no max_state_bytes",
            );
            return Err(at_select(view, &error));
        }
        if respelled.happened() {
            plan.add_to_stamps(uuids::STAMP);
        }
        Ok(Planned::Stateful(Arc::new(plan)))
    }

    fn staging(&self, view: &ViewDefinition, plan: &LogicalPlan) -> Result<Planned, Diagnostics> {
        if !view.windows.is_empty() || view.schedule.is_some() || view.memory_limit.is_some() || view.timeout.is_some() {
            let error = Error::input(
                "a view without an aggregate is inlined where it is used and keeps no state: expected no WITH \
                 (windows, every, schedule, after, memory_limit, timeout)",
            );
            return Err(at_select(view, &error));
        }
        refuse_expressions(plan).map_err(|error| at_select(view, &error))?;
        crate::plan::hidden::carry(plan, &self.streams).map_err(|error| at_select(view, &error))?;
        Ok(Planned::Staging)
    }

    fn plan_with_states(&self, view: &ViewDefinition, session: &SessionContext, plan: &LogicalPlan) -> Result<ViewPlan> {
        let LogicalPlan::Projection(top) = plan else {
            return Err(Error::input(format!(
                "{} is not supported above the aggregates: expected SELECT .. FROM .. WHERE .. GROUP BY",
                node_name(plan)
            )));
        };
        let LogicalPlan::Aggregate(aggregate) = &*top.input else {
            return Err(Error::input(format!(
                "{} is not supported between SELECT and the aggregates: expected SELECT .. FROM .. WHERE .. GROUP BY",
                node_name(&top.input)
            )));
        };
        refuse_expressions(&top.input)?;
        if columns::is_linked(aggregate) {
            return links::plan(view, session, top, aggregate, &self.streams);
        }
        if links::has_join(&aggregate.input) {
            return Err(Error::internal("the view's text let a join through below its own FROM"));
        }
        if view.max_degree.is_some() {
            return Err(Error::input("max_degree bounds the walk of a view over a JOIN, and this view has none: expected no max_degree"));
        }
        let streams = streams_of(&aggregate.input, &self.streams)?;
        let columns = columns::fan_out(view, top, aggregate, &self.streams)?;
        lower::lower(view, session, aggregate, columns, streams, &self.streams)
    }

    /// Returns a session in which the streams are (empty) tables, and the staging views that `view` names are
    /// registered.
    async fn session(&self, view: &ViewDefinition) -> Result<(SessionContext, Respelled), Diagnostics> {
        let session = planning_session(&self.functions).map_err(|error| at_select(view, &error))?;
        for stream in &self.streams {
            let table = Arc::new(EmptyTable::new(user_schema(stream)));
            session.register_table(&*stream.name, table).map_err(|error| at_error(view, error))?;
        }
        let respelled = TypedTextColumns::of_streams(self.streams.iter().map(|stream| &**stream)).register(&session);
        let mut open = vec![view.name.clone()];
        self.register_named(view, &session, &mut open).await?;
        Ok((session, respelled))
    }

    /// Registers the staging views that `view` names, deepest first. `open` are the views being resolved: a name that
    /// recurs is a cycle.
    async fn register_named(&self, view: &ViewDefinition, session: &SessionContext, open: &mut Vec<Arc<str>>) -> Result<(), Diagnostics> {
        let query = parse(view)?;
        for name in refuse::relations(&query) {
            let Some(named) = self.views.get(name.as_str()) else { continue };
            if open.contains(&named.name) {
                let error =
                    Error::input(format!("the view refers to itself through {}: expected views that build on streams", open.join(" -> ")));
                return Err(at_select(view, &error));
            }
            if session.table_exist(&*named.name).unwrap_or(false) {
                continue;
            }
            open.push(named.name.clone());
            Box::pin(self.register_named(named, session, open)).await?;
            open.pop();
            let query = parse(named)?;
            if refuse::check(&query, named, &self.functions)? == SelectShape::Stateful {
                let error = Error::input(format!(
                    "the view \"{name}\" aggregates, and an aggregate over an aggregate is not kept exactly: expected \
                     a stream or a view without aggregate; \
                     join or filter the two views' answers in a query instead"
                ));
                return Err(at_select(view, &error));
            }
            let plan = match logical(session, &query).await.and_then(|plan| analysed(session, plan)) {
                Ok(plan) => plan,
                Err(error) => return Err(self.refused(named, session, &query, error).await),
            };
            let table = Arc::new(ViewTable::new(plan, Some(named.select.clone())));
            session.register_table(&*named.name, table).map_err(|error| at_error(view, error))?;
        }
        Ok(())
    }
}

/// Refuses a key that GROUP BY names twice. DataFusion counts it once: each column after the keys would have the values
/// of its neighbour. Stored definitions are not checked for it.
fn check_keys(plan: &LogicalPlan) -> Result<()> {
    let mut repeated = None;
    let _ = plan.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let keys = &aggregate.group_expr;
            repeated = keys.iter().enumerate().find(|(at, key)| keys[..*at].contains(key)).map(|(_, key)| key.clone());
        }
        Ok(if repeated.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    let Some(key) = repeated else { return Ok(()) };
    let key = sql_of(&key, ColumnNames::Bare);
    Err(Error::input(format!("GROUP BY names {key} twice: expected each key once (a number in GROUP BY is the position of a column)")))
}

/// Refuses what cannot be seen in the text alone: functions whose result changes from call to call, and aggregates that
/// read their own order.
fn refuse_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut problem = None;
    plan.apply(|node| {
        for expr in node.expressions() {
            expr.apply(|expr| {
                problem = problem.take().or_else(|| unstable(expr));
                Ok(if problem.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
        }
        let misplaced = match node {
            LogicalPlan::Aggregate(node) => node.group_expr.iter().any(marker) || node.aggr_expr.iter().any(time_marker),
            _ => node.expressions().iter().any(marker),
        };
        if misplaced && problem.is_none() {
            problem = Some(
                "within() or as_of() is used in WHERE, GROUP BY or below the aggregates: expected within() in an aggregate's FILTER or \
                 WITH (windows = ..), and as_of() above the aggregates"
                    .to_owned(),
            );
        }
        Ok(if problem.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    problem.map_or(Ok(()), |problem| Err(Error::input(problem)))
}

fn marker(expr: &Expr) -> bool {
    within::mentions(expr) || time_marker(expr)
}

fn time_marker(expr: &Expr) -> bool {
    within::mentions_function(expr, "as_of")
}

fn unstable(expr: &Expr) -> Option<String> {
    let name = unstable_function(expr).filter(|_| !asks_for_time(expr))?;
    Some(format!(
        "{name}() answers differently from call to call, so the layers could not agree: expected a function of the event alone, or as_of() above the aggregates"
    ))
}

/// Whether an expression is `as_of()`.
pub(crate) fn asks_for_time(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == "as_of")
}
