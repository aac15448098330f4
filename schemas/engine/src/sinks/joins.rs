//! The joins of a sink: each view by all of its keys, so that at most one row belongs to an event.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, JoinType};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Join, LogicalPlan, Operator, TryCast, when};
use datafusion::physical_expr::PhysicalExpr;
use definitions::{OnError, StreamDefinition};
use types::sql_types::sql_name;
use types::{Error, Result};

use super::expressions::check_expression;
use super::{JoinedView, Sources};
use crate::checked::physical;
use crate::plan::{ColumnNames, ViewPlan, node_name, simplify_or_keep, sql_of, strip_casts};

/// Takes the tree of joins below the steps apart: a stream, then the views in the order of the FROM.
pub(super) fn joined(node: &LogicalPlan, sources: Sources<'_>) -> Result<(Arc<StreamDefinition>, Vec<JoinedView>)> {
    match node {
        LogicalPlan::Join(join) => {
            let (stream, mut joins) = joined(&join.left, sources)?;
            joins.push(view(join, sources)?);
            Ok((stream, joins))
        }
        _ => Ok((stream(table(node)?, sources)?, Vec::new())),
    }
}

fn stream(name: &str, sources: Sources<'_>) -> Result<Arc<StreamDefinition>> {
    let found = sources.streams.iter().find(|stream| *stream.name == *name).cloned();
    found.ok_or_else(|| {
        Error::input(format!(
            "a sink begins with a stream, whose events it puts out, and '{name}' is a view: expected FROM stream LEFT JOIN {name} ON .."
        ))
    })
}

/// The name of the table that a node scans, under an alias or not.
fn table(node: &LogicalPlan) -> Result<&str> {
    match node {
        LogicalPlan::TableScan(scan) => Ok(scan.table_name.table()),
        LogicalPlan::SubqueryAlias(alias) => table(&alias.input),
        other => Err(Error::input(format!("{} is not supported in the FROM of a sink: expected a stream, then views", node_name(other)))),
    }
}

fn view(join: &Join, sources: Sources<'_>) -> Result<JoinedView> {
    let name = table(&join.right)?;
    let found = sources.views.iter().find(|view| *view.view == *name).cloned();
    let plan = found.ok_or_else(|| {
        Error::input(format!("'{name}' is a stream, and a sink puts out the events of one: expected a view after LEFT JOIN"))
    })?;
    if plan.on_error == OnError::Refuse {
        return Err(Error::input(format!(
            "the view \"{name}\" has on_error = 'refuse', so that one event could hold up all records: expected a view with on_error = 'skip'"
        )));
    }
    let is_whole = plan.answer_keys().is_empty() && join.join_type == JoinType::Inner && join.filter.is_none() && join.on.is_empty();
    if join.join_type != JoinType::Left && !is_whole {
        return Err(Error::input(format!(
            "the view \"{name}\" is joined by {} JOIN: expected LEFT JOIN, so that every event has its record",
            join.join_type.to_string().to_uppercase()
        )));
    }
    let on = join.on.iter().map(|(left, right)| Expr::BinaryExpr(BinaryExpr::new(left.clone().into(), Operator::Eq, right.clone().into())));
    let filter = join.filter.iter().flat_map(|filter| split_conjunction(filter)).cloned();
    let conditions: Vec<Expr> = on.chain(filter).filter(|condition| !is_true(condition)).collect();
    let mut keys: Vec<Option<Arc<dyn PhysicalExpr>>> = vec![None; plan.answer_keys().len()];
    for condition in &conditions {
        let Compared { key, as_compared, value } = compared(condition, join, &plan)?;
        if sources.is_strict {
            check_casts(as_compared, value, join.right.schema())?;
        }
        let expr = key_expression(value, as_compared, join, plan.answer_keys()[key].data_type())?;
        if keys[key].replace(expr).is_some() {
            let key = plan.answer_keys()[key].name();
            return Err(Error::input(format!(
                "the key \"{key}\" of the view \"{name}\" is compared twice: expected one condition for each key"
            )));
        }
    }
    let missing = |key: usize| {
        let key = plan.answer_keys()[key].name();
        Error::input(format!(
            "the view \"{name}\" is not joined by its key \"{key}\": expected {name}.{key} = an expression over the event, for each of its keys"
        ))
    };
    let keys = keys.into_iter().enumerate().map(|(key, expr)| expr.ok_or_else(|| missing(key))).collect::<Result<_>>()?;
    Ok(JoinedView { plan, wanted: Vec::new(), keys })
}

fn is_true(condition: &Expr) -> bool {
    matches!(condition, Expr::Literal(datafusion::common::ScalarValue::Boolean(Some(true)), _))
}

/// What a condition is about.
struct Compared<'e> {
    /// Which key of the view.
    key: usize,
    /// The key's column, under casts where it is compared as another type.
    as_compared: &'e Expr,
    /// The expression that it is equal to.
    value: &'e Expr,
}

fn compared<'e>(condition: &'e Expr, join: &Join, plan: &ViewPlan) -> Result<Compared<'e>> {
    let wrong = || {
        Error::input(format!(
            "the view \"{}\" is joined on {}: expected its keys alone, each as {}.<key> = an expression over the event",
            plan.view,
            sql_of(condition, ColumnNames::WithTable),
            plan.view
        ))
    };
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return Err(wrong()) };
    for (as_compared, value) in [(left, right), (right, left)] {
        let Expr::Column(column) = strip_casts(as_compared) else { continue };
        let is_of_view = |column: &Column| join.right.schema().has_column(column) && !join.left.schema().has_column(column);
        if !is_of_view(column) {
            continue;
        }
        let key = plan.answer_keys().iter().position(|key| key.name() == column.name()).ok_or_else(wrong)?;
        if value.column_refs().into_iter().any(is_of_view) {
            return Err(wrong());
        }
        return Ok(Compared { key, as_compared, value });
    }
    Err(wrong())
}

/// Refuses a key under a cast after which several keys may be equal, such as the texts '7' and '07' as numbers: an
/// event would have a record for each of them, and the row is found by one key.
fn check_casts(as_compared: &Expr, value: &Expr, view: &DFSchemaRef) -> Result<()> {
    let mut expr = as_compared;
    while let Expr::Cast(Cast { expr: inner, .. }) = expr {
        let (from, to) = (inner.get_type(view)?, expr.get_type(view)?);
        if is_many_to_one(&from, &to) {
            let key = strip_casts(as_compared);
            let (key_type, key) = (sql_name(&key.get_type(view)?), sql_of(key, ColumnNames::WithTable));
            return Err(Error::input(format!(
                "the key {key} is compared as {}, and several keys may be equal then: expected the key itself, \
                 for example {key} = CAST({} AS {key_type})",
                sql_name(&to),
                sql_of(value, ColumnNames::WithTable)
            )));
        }
        expr = inner;
    }
    Ok(())
}

/// Whether a cast may give one value for several.
fn is_many_to_one(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Boolean, Date32, Date64, Decimal128, Decimal256, Float32, Float64, LargeUtf8, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    match (from, to) {
        (_, Utf8 | LargeUtf8 | Utf8View) => false,
        (Utf8 | LargeUtf8 | Utf8View, to) => to.is_numeric() || to.is_temporal() || *to == Boolean,
        (Decimal128(_, from) | Decimal256(_, from), Decimal128(_, to) | Decimal256(_, to)) => to < from,
        (from, to) if from.is_decimal() => to.is_integer(),
        (Float64, Float32) => true,
        (from, to) if from.is_floating() => to.is_integer() || to.is_decimal(),
        (Timestamp(from, _), Timestamp(to, _)) => to < from,
        (Timestamp(..), Date32 | Date64 | Time32(_) | Time64(_)) => true,
        (from, Boolean) => from.is_numeric(),
        _ => false,
    }
}

/// The expression over the event's columns, as a value of the key's type: NULL, which no key is equal to, where it has
/// none. Where the key is compared as another type, only that key is meant which is equal then: the number 7 is not the
/// text '07'.
fn key_expression(value: &Expr, as_compared: &Expr, join: &Join, key: &DataType) -> Result<Arc<dyn PhysicalExpr>> {
    let stream = first(&join.left);
    if let Some(other) = value.column_refs().into_iter().find(|column| !stream.schema().has_column(column)) {
        return Err(Error::input(format!("a view is joined by {other}, which is of another view: expected columns of the event")));
    }
    check_expression(value)?;
    let mut found = Expr::TryCast(TryCast::new(Box::new(value.clone()), key.clone()));
    if !matches!(as_compared, Expr::Column(_)) {
        let of_found = as_compared.clone().transform_up(|expr| match expr {
            Expr::Column(_) => Ok(Transformed::yes(found.clone())),
            other => Ok(Transformed::no(other)),
        })?;
        found = when(of_found.data.eq(value.clone()), found).end()?;
    }
    physical(&simplify_or_keep(found, stream.schema()), stream.schema())
}

/// The stream of a tree of joins.
fn first(node: &LogicalPlan) -> &LogicalPlan {
    match node {
        LogicalPlan::Join(join) => first(&join.left),
        other => other,
    }
}
