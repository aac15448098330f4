//! Rewrites the view's own SELECT: its columns fanned out over the windows, NULL where a window is empty, and only keys
//! that have an event in the longest window.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};
use definitions::ViewDefinition;
use engine::functions::TOP_K;
use types::tiles::Micros;
use types::{Error, Result};

use super::limits::Recurring;
use super::names::{quoted, resolved};
use super::parsed::{parse_expr, parse_item};
use super::sides::{Reach, Sides};
use super::span::{RelativeSpan, longest, timestamp};
use super::{Moment, calls, join, limits};

/// A t-digest finds a value whose rank is this close to the one asked for, as a share of all values, however the digest
/// was merged.
const PERCENTILES_APART: f64 = 0.05;

/// The name of an additional BOOLEAN column: false only for rows of which no value is past a limit.
pub(in crate::verify) const MAY_BE_PAST: &str = "__may_be_past";

/// A column of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainColumn {
    pub name: String,
    /// It has no aggregate: it is (a part of) the row's key.
    pub is_key: bool,
    /// The aggregate functions it calls.
    pub functions: Vec<String>,
    /// It is only a count or a sum: in a linked view, a sample estimates it.
    pub is_total: bool,
    /// Its expression in the view.
    pub sql: String,
    /// The name of an additional column with the greatest number of different values that a `top_k` of this column
    /// counts. Past its capacity `top_k` estimates.
    pub distinct: Option<String>,
    /// The names of additional columns: where it is a percentile over a t-digest, percentiles a little below and above
    /// it.
    pub near: Option<[String; 2]>,
}

pub(super) struct Rewritten {
    pub(super) columns: Vec<PlainColumn>,
    /// Columns whose values can be past a limit, with the condition that says so.
    pub(super) past: Vec<(String, String)>,
    /// Where none of these conditions holds, no value is past a limit.
    pub(super) may_be_past: Vec<String>,
    /// How far back states are kept.
    kept: Reach,
    /// How far back an event gives its key a row.
    pub(super) existence: Reach,
}

/// Rewrites the SELECT in place.
pub(super) fn rewrite(
    select: &mut Select,
    sides: &Sides,
    view: &ViewDefinition,
    is_aggregate: &dyn Fn(&str) -> bool,
    moment: Moment,
) -> Result<Rewritten> {
    spell_out_ordinals(select)?;
    let (items, helpers, columns, past, may_be_past, reaches, repeated) = Default::default();
    let mut builder =
        SelectBuilder { view, sides, is_aggregate, t: moment.t, items, helpers, columns, past, may_be_past, reaches, repeated };
    for item in std::mem::take(&mut select.projection) {
        builder.item(item)?;
    }
    let existence = builder.existence()?;
    let kept = if sides.is_joined() { join::kept_reach(&builder.reaches, &existence, builder.repeated, sides) } else { existence.clone() };
    select.projection = builder.items;
    select.projection.append(&mut builder.helpers);
    bound_above(select, sides, moment)?;
    let grouped = matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if !exprs.is_empty());
    if grouped && let Some(condition) = sides.condition(&existence, moment.t) {
        select.having = Some(parse_expr(&format!("{} > 0", events(Some(&condition))))?);
    }
    Ok(Rewritten { columns: builder.columns, past: builder.past, may_be_past: builder.may_be_past, kept, existence })
}

/// Turns the rewritten SELECT into a query for the values that are past a limit: the keys, and a BOOLEAN for each
/// column that can be.
pub(super) fn ask_past(select: &mut Select, rewritten: &Rewritten) -> Result<()> {
    keep_keys(select, rewritten);
    for (name, is_past) in &rewritten.past {
        select.projection.push(parse_item(&format!("{is_past} AS {}", quoted(name)))?);
    }
    Ok(())
}

/// Adds [`MAY_BE_PAST`] to the rewritten SELECT.
pub(super) fn add_may_be_past(select: &mut Select, rewritten: &Rewritten) -> Result<()> {
    select.projection.push(parse_item(&format!("{} AS {}", rewritten.may_be_past.join(" OR "), quoted(MAY_BE_PAST)))?);
    Ok(())
}

fn keep_keys(select: &mut Select, rewritten: &Rewritten) {
    let is_key = |name: &str| rewritten.columns.iter().any(|column| column.is_key && column.name == name);
    select.projection.retain(|item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if is_key(&alias.value)));
}

/// Turns the SELECT into the ledger's counts: the events that pass WHERE, and those of them before the longest window.
pub(super) fn count(select: &mut Select, sides: &Sides, rewritten: &Rewritten, moment: Moment) -> Result<()> {
    let kept = &rewritten.kept;
    let [side] = sides.sides.as_slice() else { return join::count(select, sides, kept, moment) };
    bound_above(select, sides, moment)?;
    let expired = match kept.0[0].from(moment.t) {
        Some(edge) => events(Some(&format!("{} < {}", side.event_time(), timestamp(edge)))),
        None => events(Some("false")),
    };
    only_counts(select, vec![parse_item("count(*) AS passed")?, parse_item(&format!("{expired} AS expired"))?]);
    Ok(())
}

/// Turns the SELECT into the count of all events it reads.
pub(super) fn count_read(select: &mut Select, sides: &Sides) -> Result<()> {
    if sides.is_joined() {
        return join::count_read(select, sides);
    }
    only_counts(select, vec![parse_item("count(*) AS read")?]);
    Ok(())
}

fn only_counts(select: &mut Select, items: Vec<SelectItem>) {
    select.projection = items;
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.having = None;
}

struct SelectBuilder<'a> {
    view: &'a ViewDefinition,
    sides: &'a Sides,
    is_aggregate: &'a dyn Fn(&str) -> bool,
    t: Micros,
    items: Vec<SelectItem>,
    /// Columns that only `verify` uses, after the view's.
    helpers: Vec<SelectItem>,
    columns: Vec<PlainColumn>,
    past: Vec<(String, String)>,
    may_be_past: Vec<String>,
    /// The reach of each aggregate.
    reaches: Vec<Reach>,
    /// Whether one of them depends on how often a value occurs.
    repeated: bool,
}

impl SelectBuilder<'_> {
    fn item(&mut self, item: SelectItem) -> Result<()> {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, resolved(&alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => (Expr::Identifier(ident.clone()), resolved(&ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let name = parts.last().map(resolved).unwrap_or_default();
                (Expr::CompoundIdentifier(parts), name)
            }
            other => return Err(Error::input(format!("a view's column has a name, found {other}"))),
        };
        let functions = calls::aggregates_in(&expr, self.is_aggregate);
        let names_its_window = calls::mentions(&expr, "within");
        if functions.is_empty() || names_its_window || self.view.windows.is_empty() {
            return self.column(name, expr, functions, &self.sides.reach(RelativeSpan::ALL));
        }
        for window in &self.view.windows {
            let span = RelativeSpan::trailing(window.length, self.view.precision)?;
            self.column(format!("{name}_{}", window.text), expr.clone(), functions.clone(), &self.sides.reach(span))?;
        }
        Ok(())
    }

    /// Adds one column; its aggregates that name no window of their own count over `otherwise`.
    fn column(&mut self, name: String, mut expr: Expr, functions: Vec<String>, otherwise: &Reach) -> Result<()> {
        let sql = expr.to_string();
        let is_key = functions.is_empty() && !calls::mentions(&expr, "as_of");
        let SelectBuilder { view, sides, is_aggregate, t, .. } = *self;
        let (is_bare, is_total) = (calls::is_bare(&expr, is_aggregate), calls::is_total(&expr));
        let mut reaches = calls::Rewriting { sides, otherwise, precision: view.precision, is_aggregate, t }.rewrite(&mut expr)?;
        self.reaches.extend(reaches.iter().cloned());
        self.repeated |= calls::counts_repeated(&expr, is_aggregate);
        reaches.dedup();
        let text = match functions.is_empty() || is_bare {
            true => expr.to_string(),
            false => {
                let has_events = |reach: &Reach| format!("{} > 0", events(sides.condition(reach, t).as_deref()));
                let any: Vec<String> = reaches.iter().map(has_events).collect();
                format!("CASE WHEN {} THEN {expr} END", any.join(" OR "))
            }
        };
        self.items.push(parse_item(&format!("{text} AS {}", quoted(&name)))?);
        let distinct = calls::distinct_counts(&expr, TOP_K);
        let helper = (!distinct.is_empty()).then(|| format!("__distinct_{name}"));
        if let Some(helper) = &helper {
            let text = if let [one] = distinct.as_slice() { one.clone() } else { format!("greatest({})", distinct.join(", ")) };
            self.helpers.push(parse_item(&format!("{text} AS {}", quoted(helper)))?);
        }
        let near = calls::near_percentiles(&expr, PERCENTILES_APART);
        let near = near.map(|near| ["below", "above"].into_iter().zip(near).map(|(which, sql)| (format!("__{which}_{name}"), sql)));
        let near: Option<Vec<(String, String)>> = near.map(Iterator::collect);
        for (helper, sql) in near.iter().flatten() {
            self.helpers.push(parse_item(&format!("{sql} AS {}", quoted(helper)))?);
        }
        let near = near.and_then(|near| <[_; 2]>::try_from(near).ok()).map(|near| near.map(|(helper, _)| helper));
        let limit_bytes = self.view.max_state_bytes.unwrap_or(limits::MAX_STATE_BYTES);
        let limit_bytes = (!self.sides.is_joined()).then_some(limit_bytes);
        self.past.extend(limits::is_past(&expr, limit_bytes, Recurring::Once).map(|is_past| (name.clone(), is_past)));
        self.may_be_past.extend(limits::is_past(&expr, limit_bytes, Recurring::EachTime));
        self.columns.push(PlainColumn { name, is_key, functions, is_total, sql, distinct: helper, near });
        Ok(())
    }

    /// Returns, for each side, the longest window of any column; if no column has one, the view's longest window.
    fn existence(&self) -> Result<Reach> {
        let mut reaches = self.reaches.clone();
        if reaches.is_empty() {
            for window in &self.view.windows {
                reaches.push(self.sides.reach(RelativeSpan::trailing(window.length, self.view.precision)?));
            }
        }
        let of_side = |side: usize| longest(reaches.iter().map(|reach| reach.0[side]));
        Ok(Reach((0..self.sides.sides.len()).map(of_side).collect()))
    }
}

/// Returns SQL for the number of events that meet a condition.
fn events(condition: Option<&str>) -> String {
    match condition {
        Some(condition) => format!("count(*) FILTER (WHERE {condition})"),
        None => "count(*)".to_owned(),
    }
}

/// With `as_of`, events after it do not count.
fn bound_above(select: &mut Select, sides: &Sides, moment: Moment) -> Result<()> {
    if moment.as_of {
        let bounds = sides.sides.iter().map(|side| format!("{} <= {}", side.event_time(), timestamp(moment.t)));
        let bound = bounds.collect::<Vec<_>>().join(" AND ");
        let all = match &select.selection {
            Some(selection) => format!("({selection}) AND {bound}"),
            None => bound,
        };
        select.selection = Some(parse_expr(&all)?);
    }
    Ok(())
}

/// Replaces ordinals such as `GROUP BY 2`, because fanning out moves the columns.
fn spell_out_ordinals(select: &mut Select) -> Result<()> {
    let GroupByExpr::Expressions(exprs, _) = &mut select.group_by else {
        return Err(Error::input("GROUP BY ALL hides the key of the view: expected the key columns by name"));
    };
    for expr in exprs {
        let Expr::Value(value) = &*expr else { continue };
        let Value::Number(number, _) = &value.value else { continue };
        let item = number.parse::<usize>().ok().and_then(|place| select.projection.get(place.checked_sub(1)?));
        match item {
            Some(SelectItem::ExprWithAlias { expr: named, .. } | SelectItem::UnnamedExpr(named)) => *expr = named.clone(),
            _ => return Err(Error::input(format!("GROUP BY {number} names no column of the SELECT"))),
        }
    }
    Ok(())
}
