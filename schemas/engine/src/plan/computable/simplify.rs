//! An expression as DataFusion's simplifier rewrites it.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

/// Simplifies an expression before it is planned. Some functions (coalesce, nvl) exist only for the simplifier, which
/// rewrites them to CASE. An expression that cannot be simplified is returned as it is, and fails when it is evaluated.
pub(crate) fn simplify_or_keep(expr: Expr, schema: &DFSchema) -> Expr {
    simplified(&expr, schema).unwrap_or(expr)
}

pub(super) fn simplified(expr: &Expr, schema: &DFSchema) -> Result<Expr> {
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    ExprSimplifier::new(context).simplify(expr.clone())
}
