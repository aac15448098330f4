//! Checks that each column of UNION ALL has one type. DataFusion silently converts to a common type: a decimal and a
//! double to a decimal with 15 digits after the point, or a text to a time, which fails on every event whose text is
//! not a time.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, Union};

use types::sql_types::sql_name;
use types::{Error, Result};

/// Refuses UNION ALL of columns that would be converted to a text, from one, or between decimals and doubles. `plan`
/// must not be analysed yet: it holds only the user's own casts.
pub(super) fn check_union_types(plan: &LogicalPlan) -> Result<()> {
    let mut found = Ok(());
    let _ = plan.apply(|node| {
        if let LogicalPlan::Union(union) = node {
            found = check(union);
        }
        Ok(if found.is_err() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn check(union: &Union) -> Result<()> {
    let mut selects = Vec::new();
    add_selects(union, &mut selects);
    for (at, one) in selects.iter().enumerate() {
        selects[at + 1..].iter().try_for_each(|other| check_pair(union, one, other))?;
    }
    Ok(())
}

/// Adds the SELECTs of a union. Each UNION ALL after the first is a union with the one before it, whose columns have
/// the types of its first SELECT until the plan is analysed.
fn add_selects<'p>(union: &'p Union, selects: &mut Vec<&'p LogicalPlan>) {
    for input in &union.inputs {
        match &**input {
            LogicalPlan::Union(inner) => add_selects(inner, selects),
            select => selects.push(select),
        }
    }
}

fn check_pair(union: &Union, one: &LogicalPlan, other: &LogicalPlan) -> Result<()> {
    let pairs = one.schema().fields().iter().zip(other.schema().fields());
    for (column, (one, other)) in union.schema.fields().iter().zip(pairs) {
        let (one_type, other_type) = (one.data_type(), other.data_type());
        let Some(common) = conversion(one_type, other_type) else { continue };
        return Err(Error::input(format!(
            "the column \"{}\" of UNION ALL is of type {} in one SELECT and {} in another: expected one type, for example with \
             CAST(.. AS {common})",
            column.name(),
            sql_name(one_type),
            sql_name(other_type)
        )));
    }
    Ok(())
}

/// The type to cast to, if columns of these types would be converted in a way that loses or fails.
fn conversion(one: &DataType, other: &DataType) -> Option<&'static str> {
    let is_text = |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if one.is_null() || other.is_null() {
        return None;
    }
    if is_text(one) != is_text(other) {
        return Some("TEXT");
    }
    let is_mixed = (one.is_decimal() && other.is_floating()) || (one.is_floating() && other.is_decimal());
    is_mixed.then_some("DOUBLE")
}

#[cfg(test)]
mod tests;
