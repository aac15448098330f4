//! The aggregate calls in a column's expression: which windows they name, and their rewriting to plain FILTERs.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, ObjectNamePart,
    OrderByExpr, VisitMut, VisitorMut, visit_expressions,
};
use schemas::tiles::{Level, Micros};
use schemas::{Error, Result};

use super::carry::HIDDEN;
use super::span::{Span, timestamp};
use super::{parse_expr, resolved};

/// Aggregates that always read their input in order.
const ALWAYS_ORDERED: [&str; 1] = ["last_n"];

/// The aggregate functions that an expression calls, in the order met.
pub(super) fn aggregates_in(expr: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let _: ControlFlow<()> = visit_expressions(expr, |expr| {
        if let Some(name) = aggregate_name(expr, is_aggregate) {
            found.push(name);
        }
        ControlFlow::Continue(())
    });
    found
}

pub(super) fn mentions(expr: &Expr, function: &str) -> bool {
    visit_expressions(expr, |expr| match expr {
        Expr::Function(call) if name_of(call) == function => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// True for `count(..)` alone.
pub(super) fn is_bare_count(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_bare_count(inner),
        Expr::Function(call) => call.over.is_none() && name_of(call) == "count",
        _ => false,
    }
}

/// For each call of `function`, how many different values it is given, as SQL.
pub(super) fn distinct_counts(expr: &Expr, function: &str) -> Vec<String> {
    let mut counts = Vec::new();
    let _: ControlFlow<()> = visit_expressions(expr, |expr| {
        if let Expr::Function(call) = expr
            && name_of(call) == function
            && let FunctionArguments::List(list) = &call.args
            && let Some(value) = list.args.first()
        {
            let filter = call.filter.as_ref().map(|filter| format!(" FILTER (WHERE {filter})")).unwrap_or_default();
            counts.push(format!("count(DISTINCT {value}){filter}"));
        }
        ControlFlow::Continue(())
    });
    counts
}

/// Rewrites an expression for one moment: each aggregate that names no window of its own counts over `otherwise`. Answers the
/// spans of its aggregates.
pub(super) fn rewrite(
    expr: &mut Expr,
    otherwise: Span,
    precision: Option<Level>,
    is_aggregate: &dyn Fn(&str) -> bool,
    t: Micros,
) -> Result<Vec<Span>> {
    let mut rewriter = Rewriter { otherwise, precision, is_aggregate, t, spans: Vec::new() };
    match expr.visit(&mut rewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(rewriter.spans),
    }
}

struct Rewriter<'a> {
    otherwise: Span,
    precision: Option<Level>,
    is_aggregate: &'a dyn Fn(&str) -> bool,
    t: Micros,
    spans: Vec<Span>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let rewritten = match expr {
            Expr::Function(call) if name_of(call) == "as_of" => parse_expr(&timestamp(self.t)).map(|value| *expr = value),
            _ if aggregate_name(expr, self.is_aggregate).is_some() => match expr {
                Expr::Function(call) => self.aggregate(call),
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        rewritten.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

impl Rewriter<'_> {
    fn aggregate(&mut self, call: &mut Function) -> Result<()> {
        complete_order(call)?;
        let own = match call.filter.as_deref_mut() {
            Some(filter) => self.replace_within(filter)?,
            None => None,
        };
        self.spans.push(own.unwrap_or(self.otherwise));
        let edge = if own.is_some() { None } else { self.otherwise.condition(HIDDEN[0], self.t) };
        if let Some(edge) = edge {
            let filter = match &call.filter {
                Some(filter) => format!("({filter}) AND {edge}"),
                None => edge,
            };
            call.filter = Some(Box::new(parse_expr(&filter)?));
        }
        Ok(())
    }

    /// Puts comparisons in the place of `within`, and answers the span it named.
    fn replace_within(&self, filter: &mut Expr) -> Result<Option<Span>> {
        let mut named = None;
        let done = datafusion::sql::sqlparser::ast::visit_expressions_mut(filter, |expr| {
            let replaced = match expr {
                Expr::Function(call) if name_of(call) == "within" => self.comparison(call).map(|(span, condition)| {
                    named = Some(span);
                    *expr = condition;
                }),
                _ => Ok(()),
            };
            replaced.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        });
        match done {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(named),
        }
    }

    fn comparison(&self, call: &Function) -> Result<(Span, Expr)> {
        let span = Span::of_within(call, self.precision)?;
        let time = match &call.args {
            FunctionArguments::List(list) => match list.args.first() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(time))) => time.to_string(),
                _ => {
                    return Err(Error::input(format!(
                        "{call} is not about the event time: expected within(event time, 'window'[, 'until'])"
                    )));
                }
            },
            _ => return Err(Error::input(format!("{call} has no arguments: expected within(event time, 'window'[, 'until'])"))),
        };
        let condition = span.condition(&time, self.t).unwrap_or_else(|| "true".to_owned());
        Ok((span, parse_expr(&condition)?))
    }
}

/// Ties have one answer: the event's place ends the ORDER BY of whatever reads its input in order.
fn complete_order(call: &mut Function) -> Result<()> {
    let always = ALWAYS_ORDERED.contains(&name_of(call).as_str());
    let FunctionArguments::List(list) = &mut call.args else { return Ok(()) };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Ok(());
    }
    let place = || {
        HIDDEN
            .iter()
            .map(|name| Ok(OrderByExpr { expr: parse_expr(name)?, options: Default::default(), with_fill: None }))
            .collect::<Result<Vec<_>>>()
    };
    let order = list.clauses.iter_mut().find_map(|clause| match clause {
        FunctionArgumentClause::OrderBy(order) => Some(order),
        _ => None,
    });
    match order {
        Some(order) => order.extend(place()?),
        None if always => list.clauses.push(FunctionArgumentClause::OrderBy(place()?)),
        None => {}
    }
    Ok(())
}

fn aggregate_name(expr: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> Option<String> {
    match expr {
        Expr::Function(call) if call.over.is_none() => Some(name_of(call)).filter(|name| is_aggregate(name)),
        _ => None,
    }
}

fn name_of(call: &Function) -> String {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => resolved(name),
        _ => call.name.to_string().to_lowercase(),
    }
}
