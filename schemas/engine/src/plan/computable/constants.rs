//! Which expressions have the same value for every event, and that value.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, Volatility};
use types::Error;

use super::simplify::simplified;
use crate::checked::checked_physical;

/// The name of a function that does not always return the same value for the same arguments.
pub(crate) fn unstable_function(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::ScalarFunction(function) if function.func.signature().volatility != Volatility::Immutable => Some(function.func.name()),
        _ => None,
    }
}

/// Whether an expression is a literal, or is computed from literals alone.
pub(super) fn is_of_constants(expr: &Expr) -> bool {
    let is_computed = match expr {
        Expr::Literal(..) => return true,
        Expr::ScalarFunction(_) => unstable_function(expr).is_none(),
        Expr::BinaryExpr(_) | Expr::Cast(_) | Expr::TryCast(_) | Expr::Negative(_) | Expr::Not(_) | Expr::Like(_) => true,
        Expr::Between(_) | Expr::InList(_) | Expr::Case(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        _ => false,
    };
    let mut are_constants = is_computed;
    let visited = expr.apply_children(|child| {
        are_constants = are_constants && is_of_constants(child);
        Ok(if are_constants { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && are_constants
}

pub(super) fn evaluate_constant(constant: &Expr) -> Result<ScalarValue> {
    let no_columns = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &no_columns)?;
    let compute = |constant: &Expr| {
        let physical = checked_physical(constant, &DFSchema::empty())?;
        ScalarValue::try_from_array(&physical.evaluate(&row)?.into_array(1)?, 0)
    };
    compute(constant).or_else(|error| match Error::datafusion_root(&error) {
        // The simplifier would wrap around.
        DataFusionError::ArrowError(..) => Err(error),
        // Functions such as coalesce exist only for the simplifier.
        _ => simplified(constant, &DFSchema::empty()).and_then(|constant| compute(&constant)).map_err(|_| error),
    })
}
