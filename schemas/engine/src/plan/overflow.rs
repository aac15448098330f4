//! Constants whose integers overflow are errors in a query, where they are evaluated. DataFusion's simplifier lets them
//! wrap around.

use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::rewrite::each_expression;

/// Computes integers from integers, from the leaves up. Runs after DataFusion's own coercion. What overflows becomes
/// `Overflow`, which may stand in a branch of a CASE that no row takes.
#[derive(Debug)]
pub struct ConstantsDoNotWrap;

impl AnalyzerRule for ConstantsDoNotWrap {
    fn name(&self) -> &str {
        "constants_do_not_wrap"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, _| Ok(computed(expr)))
    }
}

fn computed(expr: Expr) -> Transformed<Expr> {
    let value = match &expr {
        Expr::BinaryExpr(binary) => arithmetic(binary),
        Expr::Negative(inner) => integer(inner).map(|value| or_overflow(value.arithmetic_negate(), value, format!("-({value})"))),
        // One that fails is left to DataFusion, which reports it.
        Expr::Cast(cast) => integer(&cast.expr)
            .filter(|_| cast.field.data_type().is_integer())
            .and_then(|value| value.cast_to(cast.field.data_type()).ok())
            .map(|value| Expr::Literal(value, None)),
        _ => None,
    };
    value.map_or_else(|| Transformed::no(expr), Transformed::yes)
}

fn arithmetic(BinaryExpr { left, op, right }: &BinaryExpr) -> Option<Expr> {
    let (left, right) = (integer(left)?, integer(right)?);
    if left.data_type() != right.data_type() {
        return None;
    }
    let value = match op {
        Operator::Plus => left.add_checked(right),
        Operator::Minus => left.sub_checked(right),
        Operator::Multiply => left.mul_checked(right),
        _ => return None,
    };
    Some(or_overflow(value, left, format!("{left} {op} {right}")))
}

/// `operand`: of the value's type.
fn or_overflow(value: Result<ScalarValue>, operand: &ScalarValue, text: String) -> Expr {
    match value {
        Ok(value) => Expr::Literal(value, None),
        Err(_) => {
            let overflow = Overflow { text, data_type: operand.data_type(), signature: Signature::nullary(Volatility::Immutable) };
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(overflow)), Vec::new()))
        }
    }
}

/// An integer that is written as such.
fn integer(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if value.data_type().is_integer() => Some(value),
        Expr::Alias(alias) => integer(&alias.expr),
        _ => None,
    }
}

/// A function without arguments that fails: the simplifier leaves it where it is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Overflow {
    /// What was to be computed.
    text: String,
    data_type: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Overflow {
    fn name(&self) -> &str {
        "integer_overflow"
    }

    fn display_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.text.clone())
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.text.clone())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(ArrowError::ArithmeticOverflow(self.text.clone()).into())
    }
}
