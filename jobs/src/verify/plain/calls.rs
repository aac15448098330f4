//! The aggregate calls in a column's expression: finds the windows they name and rewrites them to plain FILTERs.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, OrderByExpr, Select, VisitorMut,
};
use definitions::syntax::SyntaxNode;
use types::tiles::{Level, Micros};
use types::{Error, Result};

use super::names::resolved;
use super::parsed::parse_expr;
use super::sides::{HIDDEN, Reach, Sides};
use super::span::{RelativeSpan, timestamp};

/// Aggregates that always read their input in order.
const ALWAYS_ORDERED: [&str; 4] = ["last_n", "sequence_match", "sequence_count", "window_funnel"];

/// Returns the aggregate functions that an expression calls, in order of appearance.
pub(super) fn aggregates_in(expr: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let _ = expr.visit_expressions(|expr| {
        if let Some(name) = aggregate_name(expr, is_aggregate) {
            found.push(name);
        }
        ControlFlow::Continue(())
    });
    found
}

pub(super) fn mentions(expr: &Expr, function: &str) -> bool {
    expr.visit_expressions(|expr| match expr {
        Expr::Function(call) if name_of(call) == function => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Returns true if the expression is only one aggregate, which has a value of its own over nothing.
pub(super) fn is_bare(expr: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    match expr {
        Expr::Nested(inner) => is_bare(inner, is_aggregate),
        _ => aggregate_name(expr, is_aggregate).is_some(),
    }
}

/// Returns true if an aggregate's value depends on how often a value occurs, not only on which values occur.
pub(super) fn counts_repeated(expr: &Expr, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    let repeated = |call: &Function| match &call.args {
        FunctionArguments::List(list) => {
            list.duplicate_treatment != Some(DuplicateTreatment::Distinct) && name_of(call) != "approx_distinct"
        }
        _ => true,
    };
    expr.visit_expressions(|expr| match expr {
        Expr::Function(call) if aggregate_name(expr, is_aggregate).is_some() && repeated(call) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Returns the expressions whose different values are counted, and those that must differ from the other side.
pub(super) fn end_points(select: &Select, sides: &Sides) -> Vec<Expr> {
    let mut found = Vec::new();
    let _ = select.visit_expressions(|expr| {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::NotEq, right } if sides.named_in(expr).len() > 1 => {
                found.extend([(**left).clone(), (**right).clone()]);
            }
            Expr::Function(call) => {
                if let FunctionArguments::List(list) = &call.args
                    && (list.duplicate_treatment == Some(DuplicateTreatment::Distinct) || name_of(call) == "approx_distinct")
                    && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first()
                {
                    found.push(value.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    found
}

/// Returns true if the expression is only a count or a sum, of values or of different ones: these are what is
/// estimated.
pub(super) fn is_total(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_total(inner),
        Expr::Function(call) if call.over.is_none() => match (name_of(call).as_str(), &call.args) {
            ("count" | "approx_distinct", _) => true,
            ("sum", FunctionArguments::List(list)) => list.duplicate_treatment != Some(DuplicateTreatment::Distinct),
            _ => false,
        },
        _ => false,
    }
}

/// Returns SQL for the number of different values that each call of `function` is given.
pub(super) fn distinct_counts(expr: &Expr, function: &str) -> Vec<String> {
    let mut counts = Vec::new();
    let _ = expr.visit_expressions(|expr| {
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

/// The functions over a t-digest.
const MEDIAN: &str = "approx_median";
const PERCENTILES: [&str; 2] = ["approx_percentile_cont", "approx_percentile_cont_with_weight"];

/// Where an expression is one call of a function over a t-digest: SQL for the same at percentiles that are `apart`
/// below and above its own.
pub(super) fn near_percentiles(expr: &Expr, apart: f64) -> Option<[String; 2]> {
    let Expr::Function(call) = expr else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let name = name_of(call);
    // `f(value, percentile)` or `f(percentile) WITHIN GROUP (ORDER BY value)`, the one with a weight before the
    // percentile.
    let place = match name.as_str() {
        MEDIAN => list.args.len(),
        _ if PERCENTILES.contains(&name.as_str()) => usize::from(call.within_group.is_empty()) + usize::from(name == PERCENTILES[1]),
        _ => return None,
    };
    let percentile: f64 = match list.args.get(place) {
        Some(argument) => argument.to_string().parse().ok()?,
        None => 0.5,
    };
    let at = |percentile: f64| {
        let mut call = call.clone();
        let FunctionArguments::List(list) = &mut call.args else { return None };
        let text = FunctionArg::Unnamed(FunctionArgExpr::Expr(parse_expr(&format!("{:.6}", percentile.clamp(0.0, 1.0))).ok()?));
        match list.args.get_mut(place) {
            Some(argument) => *argument = text,
            None => list.args.push(text),
        }
        if name == MEDIAN {
            call.name = ObjectName::from(vec![Ident::new(PERCENTILES[0])]);
        }
        Some(format!("CAST({call} AS DOUBLE)"))
    };
    Some([at(percentile - apart)?, at(percentile + apart)?])
}

/// How to rewrite the calls of one column.
#[derive(Clone, Copy)]
pub(super) struct Rewriting<'a> {
    pub(super) sides: &'a Sides,
    /// The reach of an aggregate that names no window of its own.
    pub(super) otherwise: &'a Reach,
    pub(super) precision: Option<Level>,
    pub(super) is_aggregate: &'a dyn Fn(&str) -> bool,
    pub(super) t: Micros,
}

impl Rewriting<'_> {
    /// Rewrites an expression for one moment; returns the reaches of its aggregates.
    pub(super) fn rewrite(self, expr: &mut Expr) -> Result<Vec<Reach>> {
        let mut rewriter = Rewriter { rewriting: self, reaches: Vec::new(), outcome: Ok(()) };
        let _ = expr.visit_mut(&mut rewriter);
        rewriter.outcome.map(|()| rewriter.reaches)
    }
}

struct Rewriter<'a> {
    rewriting: Rewriting<'a>,
    reaches: Vec<Reach>,
    outcome: Result<()>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.outcome = match expr {
            Expr::Function(call) if name_of(call) == "as_of" => parse_expr(&timestamp(self.rewriting.t)).map(|value| *expr = value),
            _ if aggregate_name(expr, self.rewriting.is_aggregate).is_some() => match expr {
                Expr::Function(call) => self.aggregate(call),
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Rewriter<'_> {
    fn aggregate(&mut self, call: &mut Function) -> Result<()> {
        let Rewriting { sides, otherwise, t, .. } = self.rewriting;
        complete_order(call, sides)?;
        let own = match call.filter.as_deref_mut() {
            Some(filter) => self.replace_within(filter)?,
            None => None,
        };
        if let Some(filter) = call.filter.as_deref().cloned()
            && !sides.is_joined()
        {
            guard_inputs(call, &filter)?;
        }
        let edge = if own.is_some() { None } else { sides.condition(otherwise, t) };
        self.reaches.push(own.unwrap_or_else(|| otherwise.clone()));
        if let Some(edge) = edge {
            let filter = match &call.filter {
                Some(filter) => format!("({filter}) AND {edge}"),
                None => edge,
            };
            call.filter = Some(Box::new(parse_expr(&filter)?));
        }
        Ok(())
    }

    /// Replaces `within` by comparisons; returns the reach that was named. A side that was not named counts over all
    /// time.
    fn replace_within(&self, filter: &mut Expr) -> Result<Option<Reach>> {
        let mut named: Option<Reach> = None;
        filter.visit_expressions_mut(|expr| match expr {
            Expr::Function(call) if name_of(call) == "within" => self.comparison(call).map(|(side, span, condition)| {
                named.get_or_insert_with(|| self.rewriting.sides.reach(RelativeSpan::ALL)).0[side] = span;
                *expr = condition;
            }),
            _ => Ok(()),
        })?;
        Ok(named)
    }

    fn comparison(&self, call: &Function) -> Result<(usize, RelativeSpan, Expr)> {
        let Rewriting { sides, precision, t, .. } = self.rewriting;
        let span = RelativeSpan::from_within(call, precision)?;
        let time = match &call.args {
            FunctionArguments::List(list) => match list.args.first() {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(time))) => time,
                _ => {
                    return Err(Error::input(format!(
                        "{call} is not about the event time: expected within(event time, 'window'[, 'until'])"
                    )));
                }
            },
            _ => return Err(Error::input(format!("{call} has no arguments: expected within(event time, 'window'[, 'until'])"))),
        };
        let condition = span.condition(&time.to_string(), t).unwrap_or_else(|| "true".to_owned());
        Ok((sides.side_of_time(time)?, span, parse_expr(&condition)?))
    }
}

/// Evaluates the inputs of an aggregate only where its FILTER holds. DataFusion evaluates them for all rows, and
/// `sum(x / y) FILTER (WHERE y <> 0)` would fail.
fn guard_inputs(call: &mut Function, filter: &Expr) -> Result<()> {
    let guard = |input: &mut Expr| -> Result<()> {
        let reads = input.visit_expressions(|expr| match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        if reads.is_break() && !matches!(input, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            *input = parse_expr(&format!("CASE WHEN {filter} THEN {input} END"))?;
        }
        Ok(())
    };
    if let FunctionArguments::List(list) = &mut call.args {
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(input)) = argument {
                guard(input)?;
            }
        }
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(order) = clause {
                order.iter_mut().try_for_each(|item| guard(&mut item.expr))?;
            }
        }
    }
    call.within_group.iter_mut().try_for_each(|item| guard(&mut item.expr))
}

/// Breaks ties: the event's place is added at the end of the ORDER BY of aggregates that read their input in order.
fn complete_order(call: &mut Function, sides: &Sides) -> Result<()> {
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
    if sides.is_joined() && (order.is_some() || always) {
        return Err(Error::input(format!("the rows of a join have no order of their own: expected DISTINCT, found {call}")));
    }
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

pub(super) fn name_of(call: &Function) -> String {
    match call.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => resolved(name),
        _ => call.name.to_string().to_lowercase(),
    }
}
