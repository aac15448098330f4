//! Checks that a column of UNION ALL has one type. DataFusion silently converts to a common type: a decimal and a
//! double to a decimal with 15 digits after the point, and a text to a time, which fails on every event that has none.

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
    let Some((first, others)) = union.inputs.split_first() else { return Ok(()) };
    for other in others {
        for (one, another) in first.schema().fields().iter().zip(other.schema().fields().iter()) {
            let (one_type, other_type) = (one.data_type(), another.data_type());
            let Some(common) = conversion(one_type, other_type) else { continue };
            return Err(Error::input(format!(
                "the column \"{}\" of UNION ALL is of type {} in one SELECT and {} in another: expected one type, for example with \
                 CAST(.. AS {common})",
                one.name(),
                sql_name(one_type),
                sql_name(other_type)
            )));
        }
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
