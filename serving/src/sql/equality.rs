//! Finds the keys that a WHERE names. If it restricts every key column to given values, a lookup answers and nothing is
//! scanned.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use engine::plan::{ColumnKind, ViewPlan};

use crate::lookup::MAX_KEYS;

/// Returns the keys of all rows for which `filters` (joined by AND) may hold: the product of each key column's values.
/// `None` if a key column is not restricted to values, or if the product is too large for a lookup. A view without keys
/// has one empty key.
pub(super) fn keys_named(plan: &ViewPlan, filters: &[Expr]) -> Option<Vec<Vec<ScalarValue>>> {
    let mut keys: Vec<Vec<ScalarValue>> = vec![Vec::new()];
    for (index, field) in plan.answer_keys().iter().enumerate() {
        let is_key = |kind: &ColumnKind| matches!(kind, ColumnKind::Key(key) if *key == index);
        let column = plan.columns.iter().find(|column| is_key(&column.kind))?;
        let terms = filters.iter().flat_map(split_conjunction);
        let values = terms.filter_map(|term| values_of(term, column.field.name(), field.data_type())).min_by_key(Vec::len)?;
        keys = with_values(&keys, &values)?;
    }
    Some(keys)
}

/// Combines each key with each value of the next column. `None` if these are too many for a lookup.
pub(super) fn with_values(keys: &[Vec<ScalarValue>], values: &[ScalarValue]) -> Option<Vec<Vec<ScalarValue>>> {
    if keys.len().saturating_mul(values.len()) > MAX_KEYS {
        return None;
    }
    Some(keys.iter().flat_map(|key| values.iter().map(move |value| key.iter().chain([value]).cloned().collect())).collect())
}

/// Returns the values, each once, to which `term` restricts a column. `None` if it does not restrict the column to
/// values.
pub(super) fn values_of(term: &Expr, column: &str, data_type: &DataType) -> Option<Vec<ScalarValue>> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(found) if found.name == column);
    let mut values = match term {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut values = values_of(left, column, data_type)?;
            values.extend(values_of(right, column, data_type)?);
            values
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::IsNotDistinctFrom), right }) => {
            let other = if is_column(left) { right } else { left };
            if !is_column(left) && !is_column(right) {
                return None;
            }
            let value = literal(other, data_type)?;
            // Nothing equals NULL.
            if value.is_null() && *op == Operator::Eq { Vec::new() } else { vec![value] }
        }
        Expr::InList(InList { expr, list, negated: false }) if is_column(expr) => {
            let values = list.iter().map(|item| literal(item, data_type)).collect::<Option<Vec<_>>>()?;
            values.into_iter().filter(|value| !value.is_null()).collect()
        }
        // `IN ('a', NULL)` is `column = 'a' OR NULL`, which holds where its first part does.
        Expr::Literal(value, _) if value.is_null() => Vec::new(),
        Expr::IsNull(expr) if is_column(expr) => vec![ScalarValue::try_new_null(data_type).ok()?],
        Expr::Not(expr) | Expr::IsFalse(expr) if is_column(expr) => vec![ScalarValue::Boolean(Some(false))],
        Expr::IsTrue(expr) if is_column(expr) => vec![ScalarValue::Boolean(Some(true))],
        expr if is_column(expr) => vec![ScalarValue::Boolean(Some(true))],
        _ => return None,
    };
    each_once(&mut values);
    Some(values)
}

pub(super) fn each_once(values: &mut Vec<ScalarValue>) {
    if values.len() > 1 {
        let mut seen = HashSet::new();
        values.retain(|value| seen.insert(value.clone()));
    }
}

/// Returns a literal as a value of the key's type, if the conversion is exact.
fn literal(expr: &Expr, data_type: &DataType) -> Option<ScalarValue> {
    let Expr::Literal(value, _) = expr else { return None };
    if value.data_type() == *data_type {
        return Some(value.clone());
    }
    let cast = value.cast_to(data_type).ok()?;
    let back = cast.cast_to(&value.data_type()).ok()?;
    (back == *value).then_some(cast)
}
