//! Checks a view's SELECT clause by clause and refuses what cannot be kept exactly, with the reason and the nearest
//! form that can. It works on the syntax tree of the text, so that all refusals are listed at once, each with its line
//! and column.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::common::Span;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, Visitor,
};

use crate::functions::Functions;
use crate::parameters::{FUNCTION, is_parameter};
use crate::plan::brackets::{LACKS_BRACKETS, takes_what_follows};
use crate::plan::ignored::{DISTINCT_IN_BIT_XOR, ignored_clause, ignored_in_call};
use crate::plan::positions::numbered_keys;
use crate::plan::select_place::{SelectError, SelectPlace};
use definitions::syntax::SyntaxNode;
use definitions::{Diagnostic, Diagnostics, ViewDefinition};
use types::Error;

/// Whether a SELECT keeps states or is inlined where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SelectShape {
    /// It groups or aggregates.
    Stateful,
    Staging,
}

/// Returns the shape of `query`, or a list of everything in it that cannot be kept exactly.
pub(super) fn check(query: &Query, view: &ViewDefinition, functions: &Functions) -> Result<SelectShape, Diagnostics> {
    let mut check = Check { view, functions, found: Diagnostics::default() };
    let shape = check.top(query);
    if let Some(clause) = ignored_clause(query) {
        check.refuse(query, format!("{clause} is not kept"), "SELECT .. FROM .. WHERE .. GROUP BY ..");
    }
    let _ = query.visit(&mut Expressions { check: &mut check });
    if check.found.has_errors() { Err(check.found) } else { Ok(shape) }
}

/// Refuses clauses of calls that DataFusion would ignore, expressions that lack brackets, and keys that would be read
/// as positions. Stored definitions are not checked, because earlier releases did not check them.
pub(super) fn check_calls(query: &Query, view: &ViewDefinition) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    if let SetExpr::Select(select) = &*query.body {
        for key in numbered_keys(select).iter().filter(|key| !key.is_own_position()) {
            let start = key.name.span.start;
            let (line, column) = select_place(view).at(start.line, start.column);
            let (name, number) = (&key.name, key.number);
            let message = format!("GROUP BY {name} would be read as the position of a column: it is an alias of the number {number}");
            found.push(diagnostic(view, line, column, &message).help(format!("CAST({number} AS BIGINT) AS {name}; or another column")));
        }
    }
    let _ = query.visit_expressions(|expr| {
        if let Expr::Function(call) = expr
            && let Some(ignored) = ignored_in_call(call)
        {
            let (line, column) = expr.start();
            let (line, column) = select_place(view).at(line, column);
            let message = format!("{ignored} is not kept: {}()", call.name);
            let help = match ignored {
                DISTINCT_IN_BIT_XOR => "bit_xor(x) of all values; or the values themselves, array_agg(DISTINCT x ORDER BY x)",
                _ => "the clause in the aggregate, as in coalesce(sum(x) FILTER (WHERE ..), 0); one list of arguments, as in last_n(x, 3)",
            };
            found.push(diagnostic(view, line, column, &message).help(help));
        }
        if takes_what_follows(expr) {
            let (line, column) = expr.start();
            let (line, column) = select_place(view).at(line, column);
            found.push(diagnostic(view, line, column, LACKS_BRACKETS));
        }
        ControlFlow::Continue(())
    });
    if found.has_errors() { Err(found) } else { Ok(()) }
}

/// Returns the names that a query selects from, except the names of its own CTEs.
pub(super) fn relations(query: &Query) -> Vec<String> {
    struct Relations(Vec<String>);
    impl Visitor for Relations {
        type Break = ();
        fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
            if let [ast::ObjectNamePart::Identifier(name)] = relation.0.as_slice() {
                self.0.push(if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() });
            }
            ControlFlow::Continue(())
        }
    }
    let mut relations = Relations(Vec::new());
    let _ = query.visit(&mut relations);
    let ctes: Vec<String> = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.value.to_lowercase()).collect();
    relations.0.retain(|name| !ctes.contains(name));
    relations.0
}

/// Where a view's SELECT begins in its file.
pub(super) fn select_place(view: &ViewDefinition) -> SelectPlace {
    SelectPlace { line: view.select_line, column: view.select_column }
}

/// Returns diagnostics with a single error.
pub(super) fn one(view: &ViewDefinition, line: usize, column: usize, message: &str) -> Diagnostics {
    Diagnostics(vec![diagnostic(view, line, column, message)])
}

/// Returns diagnostics for an error about the whole SELECT.
pub(super) fn at_select(view: &ViewDefinition, error: &Error) -> Diagnostics {
    one(view, view.select_line, view.select_column, error.message())
}

/// Returns DataFusion's error as diagnostics, at its position if it has one.
pub(super) fn at_error(view: &ViewDefinition, error: DataFusionError) -> Diagnostics {
    let SelectError { error, span } = error.into();
    at_span(view, span, &error)
}

/// The same for an error with a position, or without one.
pub(super) fn at_span(view: &ViewDefinition, span: Option<Span>, error: &Error) -> Diagnostics {
    let (line, column) = select_place(view).at_span(span);
    one(view, line, column, error.message())
}

fn diagnostic(view: &ViewDefinition, line: usize, column: usize, message: &str) -> Diagnostic {
    Diagnostic::error(line, column, format!("view \"{}\": {message}", view.name)).in_file(view.origin.file.as_deref())
}

struct Check<'a> {
    view: &'a ViewDefinition,
    functions: &'a Functions,
    found: Diagnostics,
}

impl Check<'_> {
    fn refuse(&mut self, at: &dyn SpannedAt, message: impl Into<String>, help: &str) {
        let start = at.start();
        let (line, column) = select_place(self.view).at(start.0, start.1);
        self.found.push(diagnostic(self.view, line, column, &message.into()).help(help));
    }

    fn top(&mut self, query: &Query) -> SelectShape {
        if let Some(with) = &query.with {
            if with.recursive {
                self.refuse(with, "WITH RECURSIVE is not kept: its depth has no bound", "plain WITH");
            }
            for cte in &with.cte_tables {
                self.inner(&cte.query);
            }
        }
        self.no_order(query);
        match &*query.body {
            SetExpr::Select(select) => self.top_select(select),
            SetExpr::SetOperation { .. } => {
                self.inner_set(&query.body);
                SelectShape::Staging
            }
            SetExpr::Query(inner) => self.top(inner),
            other => {
                self.refuse(other, "a view is a SELECT", "SELECT .. FROM stream WHERE .. GROUP BY ..");
                SelectShape::Staging
            }
        }
    }

    fn top_select(&mut self, select: &Select) -> SelectShape {
        self.clauses(select);
        let grouped = match &select.group_by {
            GroupByExpr::All(_) => {
                self.refuse(select, "GROUP BY ALL hides the key of the view", "name the key columns in GROUP BY");
                true
            }
            GroupByExpr::Expressions(exprs, modifiers) => {
                if !modifiers.is_empty() || exprs.iter().any(|e| matches!(e, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_))) {
                    self.refuse(select, "ROLLUP, CUBE and GROUPING SETS make rows of several keys", "one view for each grouping");
                }
                !exprs.is_empty()
            }
        };
        if let Some(having) = &select.having {
            self.refuse(
                having,
                "HAVING is not kept: whether a row passes changes as time goes by",
                "keep all rows and filter in the query: SELECT .. FROM the view WHERE ..",
            );
        }
        let aggregates = select.projection.iter().any(|item| holds_aggregate(item, self.functions));
        if grouped || aggregates {
            self.top_from(select);
            self.aliases(select);
            return SelectShape::Stateful;
        }
        self.from(select);
        SelectShape::Staging
    }

    /// Checks a SELECT below the top: no aggregates, no order.
    fn inner(&mut self, query: &Query) {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.inner(&cte.query);
        }
        self.no_order(query);
        self.inner_set(&query.body);
    }

    fn inner_set(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => {
                self.clauses(select);
                self.from(select);
                let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
                if grouped || select.having.is_some() || select.projection.iter().any(|item| holds_aggregate(item, self.functions)) {
                    self.refuse(
                        &**select,
                        "an aggregate in a subquery, WITH or UNION ALL is not kept: a view aggregates once",
                        "aggregate once, at the top; or make two views and combine their answers in a query",
                    );
                }
            }
            SetExpr::Query(query) => self.inner(query),
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                self.inner_set(left);
                self.inner_set(right);
            }
            SetExpr::SetOperation { op, .. } => {
                self.refuse(body, format!("{op} compares all events with all others"), "UNION ALL");
            }
            other => self.refuse(other, "only SELECT and UNION ALL are supported here", "SELECT .. FROM a stream"),
        }
    }

    fn no_order(&mut self, query: &Query) {
        if let Some(order) = &query.order_by {
            self.refuse(
                order,
                "ORDER BY has no meaning in a view: its rows are a set",
                "order in the query: SELECT .. FROM the view ORDER BY ..",
            );
        }
        let help = "limit in the query: SELECT .. FROM the view ORDER BY .. LIMIT ..";
        match &query.limit_clause {
            Some(ast::LimitClause::LimitOffset { limit: None, offset: Some(offset), .. }) => {
                self.refuse(offset, "OFFSET is not kept: which rows stay changes with every event", help);
            }
            Some(limit) => self.refuse(limit, "LIMIT is not kept: which rows stay changes with every event", help),
            None if query.fetch.is_some() => self.refuse(query, "FETCH is not kept: which rows stay changes with every event", help),
            None => {}
        }
    }

    fn clauses(&mut self, select: &Select) {
        if select.distinct.is_some() {
            self.refuse(select, "SELECT DISTINCT is not kept", "GROUP BY the columns, or count(DISTINCT ..)");
        }
        if let Some(aggregate) = select.selection.as_ref().and_then(|condition| first_aggregate(condition, self.functions)) {
            self.refuse(
                &aggregate,
                "an aggregate in WHERE is not kept: WHERE is about one event",
                "FILTER (WHERE ..) for conditions over events; to filter by the aggregate, SELECT .. FROM the view WHERE ..",
            );
        }
        if let GroupByExpr::Expressions(keys, _) = &select.group_by
            && let Some(aggregate) = keys.iter().find_map(|key| first_aggregate(key, self.functions))
        {
            self.refuse(
                &aggregate,
                "an aggregate in GROUP BY is not kept: a key is a value of each event",
                "GROUP BY columns of the event; to group by the aggregate, SELECT .. FROM the view GROUP BY ..",
            );
        }
        let others = [
            (select.top.is_some(), "TOP"),
            (select.into.is_some(), "INTO"),
            (!select.lateral_views.is_empty(), "LATERAL VIEW"),
            (select.qualify.is_some(), "QUALIFY"),
            (!select.named_window.is_empty(), "WINDOW"),
            (!select.sort_by.is_empty(), "SORT BY"),
            (!select.cluster_by.is_empty(), "CLUSTER BY"),
        ];
        for (present, clause) in others {
            if present {
                self.refuse(select, format!("{clause} is not kept"), "SELECT .. FROM .. WHERE .. GROUP BY ..");
            }
        }
    }

    /// Checks the FROM of the view itself: one relation, or two that are joined.
    fn top_from(&mut self, select: &Select) {
        let joins = select.from.iter().flat_map(|from| &from.joins);
        for join in joins {
            self.join(join);
        }
        let relations: Vec<&TableFactor> = select
            .from
            .iter()
            .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)))
            .collect();
        match relations.as_slice() {
            [] => self.refuse(select, "a view reads a stream, found no FROM", "FROM a stream"),
            [_] | [_, _] => {}
            [_, _, third, ..] => self.refuse(
                *third,
                "three streams are joined: a walk along links has two hops",
                "a JOIN of two streams, and a second view for the third; join the views in a query",
            ),
        }
        relations.into_iter().for_each(|relation| self.relation(relation));
    }

    fn join(&mut self, join: &ast::Join) {
        use ast::JoinOperator as Operator;
        match &join.join_operator {
            Operator::Join(ast::JoinConstraint::Natural) | Operator::Inner(ast::JoinConstraint::Natural) => self.refuse(
                &join.relation,
                "NATURAL JOIN joins on every column of the same name, ids and times among them",
                "JOIN .. USING (key), or ON a.key = b.key",
            ),
            Operator::Join(_) | Operator::Inner(_) | Operator::CrossJoin(_) => {}
            _ => self.refuse(
                &join.relation,
                "an outer (or other than inner) JOIN is not kept: an event without partner would have to leave when its partner comes",
                "JOIN (inner); or a view of each stream, joined in a query",
            ),
        }
    }

    fn from(&mut self, select: &Select) {
        match select.from.as_slice() {
            [] => self.refuse(select, "a view reads a stream, found no FROM", "FROM a stream"),
            [one] => {
                for join in &one.joins {
                    self.refuse(
                        &join.relation,
                        "a JOIN below the view's own FROM is not kept",
                        "the JOIN in the SELECT that aggregates, over streams or views without aggregate",
                    );
                }
                self.relation(&one.relation);
            }
            [_, second, ..] => {
                self.refuse(
                    &second.relation,
                    "FROM names several streams, which is a JOIN, below the view's own FROM",
                    "the JOIN in the SELECT that aggregates, or UNION ALL of the streams",
                );
            }
        }
    }

    fn relation(&mut self, relation: &TableFactor) {
        match relation {
            TableFactor::Table { .. } => {}
            TableFactor::Derived { subquery, lateral: false, .. } => self.inner(subquery),
            TableFactor::UNNEST { .. } => self.several_rows(relation, "unnest"),
            other => self.refuse(other, "only streams, views without aggregate and subqueries are supported in FROM", "FROM a stream"),
        }
    }

    fn several_rows(&mut self, at: &dyn SpannedAt, function: &str) {
        self.refuse(
            at,
            format!("{function}() makes several rows of one event, and a view counts each event once"),
            "array functions, as in count(*) FILTER (WHERE array_has(tags, 'gift')); or one event for each element",
        );
    }

    fn aliases(&mut self, select: &Select) {
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { .. } => {}
                SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {}
                SelectItem::UnnamedExpr(expr) => self.refuse(expr, format!("\"{expr}\" has no name"), "an alias: .. AS name"),
                other => self.refuse(other, "* does not name the view's columns", "the key columns by name"),
            }
        }
    }
}

/// Refuses expressions wherever they occur.
struct Expressions<'a, 'b> {
    check: &'a mut Check<'b>,
}

impl Visitor for Expressions<'_, '_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                self.check.refuse(
                    expr,
                    "a subquery in an expression compares events of different times",
                    "columns of the event alone, or a second view",
                );
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                if is_parameter(function) {
                    self.check.refuse(
                        expr,
                        format!("{FUNCTION}() is not kept: the states of a view do not change when a parameter is set"),
                        "the value itself; or the parameter in a sink or an alert that reads the view",
                    );
                }
                if function.over.is_some() {
                    self.check.refuse(
                        expr,
                        format!("{name}() OVER (..) is not kept: its answer changes with every event"),
                        "an aggregate with GROUP BY and windows",
                    );
                }
                if ["now", "current_timestamp", "current_date", "current_time", "localtimestamp", "random", "uuid", "today"]
                    .contains(&name.as_str())
                {
                    self.check.refuse(
                        expr,
                        format!("{name}() answers differently from call to call, so the layers could not agree"),
                        "as_of() above the aggregates, within() in a FILTER",
                    );
                }
                if ["unnest", "unnest_outer"].contains(&name.as_str()) {
                    self.check.several_rows(expr, &name);
                }
                if is_aggregate_call(function, self.check.functions) {
                    self.no_time_inside(function, &name);
                }
                self.order_sensitive(expr, function, &name);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Expressions<'_, '_> {
    /// The state of an aggregate must depend on its events alone, because it is merged for any time.
    fn no_time_inside(&mut self, aggregate: &ast::Function, name: &str) {
        let mut time_calls = Vec::new();
        let _ = aggregate.visit_expressions(|expr| {
            if matches!(expr, Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("as_of")) {
                time_calls.push(expr.clone());
            }
            ControlFlow::Continue(())
        });
        for call in time_calls {
            self.check.refuse(
                &call,
                format!("as_of() inside {name}(): what an aggregate keeps of its events does not change with the time of the answer"),
                "as_of() above the aggregates, as in as_of() - max(ts); or a window of events: FILTER (WHERE within(ts, '7d'))",
            );
        }
    }

    fn order_sensitive(&mut self, expr: &Expr, function: &ast::Function, name: &str) {
        if name == "nth_value" {
            self.check.refuse(expr, "nth_value() needs its input sorted across layers", "array_agg(x ORDER BY ..)[n] or last_n(x, n)");
        }
        if name == "any_value" {
            self.check.refuse(expr, "any_value() may answer differently in each layer", "min(x), or first_value(x ORDER BY ..)");
        }
        if !["array_agg", "first_value", "last_value", "string_agg"].contains(&name) {
            return;
        }
        let ordered = match &function.args {
            ast::FunctionArguments::List(list) => {
                list.clauses.iter().any(|clause| matches!(clause, ast::FunctionArgumentClause::OrderBy(_)))
                    || !function.within_group.is_empty()
            }
            _ => false,
        };
        if !ordered {
            let distinct = matches!(&function.args, ast::FunctionArguments::List(list) if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct));
            let message = format!("{name}() without ORDER BY answers in the order events happen to arrive");
            let by = if distinct { format!("{name}(DISTINCT x ORDER BY x)") } else { format!("{name}(x ORDER BY the event time)") };
            self.check.refuse(expr, message, &by);
        }
    }
}

/// Whether an item contains an aggregate, judged by the names of functions. If so, the view keeps states; otherwise it
/// is inlined.
fn holds_aggregate(item: &SelectItem, functions: &Functions) -> bool {
    item.visit_expressions(|expr| match expr {
        Expr::Function(function) if is_aggregate_call(function, functions) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Returns the first aggregate of an expression. Nothing after a subquery is read, because subqueries are refused
/// anyway.
fn first_aggregate(expr: &Expr, functions: &Functions) -> Option<Expr> {
    let mut found = None;
    let _ = expr.visit_expressions(|expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        Expr::Function(function) if function.over.is_none() && is_aggregate(&function.name.to_string().to_lowercase(), functions) => {
            found = Some(expr.clone());
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found
}

fn is_aggregate_call(function: &ast::Function, functions: &Functions) -> bool {
    let is_named = || is_aggregate(&function.name.to_string().to_lowercase(), functions);
    function.over.is_none() && (function.filter.is_some() || is_named())
}

fn is_aggregate(name: &str, functions: &Functions) -> bool {
    static BUILT_IN: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let all = datafusion::functions_aggregate::all_default_aggregate_functions();
        all.iter().flat_map(|function| function.aliases().iter().cloned().chain([function.name().to_owned()])).collect()
    });
    BUILT_IN.contains(name) || functions.aggregates().any(|function| function.name() == name)
}

/// The position where a piece of syntax begins: line and column, counted from 1; 0 if the parser does not know it.
trait SpannedAt {
    fn start(&self) -> (u64, u64);
}

impl<T: Spanned> SpannedAt for T {
    fn start(&self) -> (u64, u64) {
        let span = self.span();
        (span.start.line, span.start.column)
    }
}
