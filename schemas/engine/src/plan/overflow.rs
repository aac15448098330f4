//! Makes an integer overflow an error when it is evaluated. DataFusion's operators and its simplifier let them wrap
//! around.

use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::integers::IntegerOperator;
use crate::plan::rewrite::each_expression;

/// Replaces operators on integers, from the leaves up. Runs after DataFusion's own coercion. An operator on constants
/// becomes its result or, if that overflows, `Overflow`, which may be in a branch of a CASE that no row takes. Other
/// operators become functions that fail on a row whose result does not fit.
#[derive(Debug)]
pub struct IntegersDoNotWrap;

impl AnalyzerRule for IntegersDoNotWrap {
    fn name(&self) -> &str {
        "integers_do_not_wrap"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = each_expression(plan, &|expr, schema| Ok(computed(expr, schema)))?;
        refuse_limits_that_overflow(&plan)?;
        Ok(plan)
    }
}

/// LIMIT and OFFSET are evaluated whatever the rows are, and DataFusion accepts only numbers for them.
fn refuse_limits_that_overflow(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            for expr in [&limit.skip, &limit.fetch].into_iter().flatten() {
                expr.apply(|expr| match expr {
                    Expr::ScalarFunction(call) if call.name() == OVERFLOW => {
                        Err(ArrowError::ArithmeticOverflow(expr.schema_name().to_string()).into())
                    }
                    _ => Ok(TreeNodeRecursion::Continue),
                })?;
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn computed(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
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
    match value.or_else(|| checked(&expr, schema)) {
        Some(changed) => Transformed::yes(changed),
        None => Transformed::no(expr),
    }
}

/// Returns the call that replaces an operator on integers.
fn checked(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (operator, operands) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (IntegerOperator::from_operator(*op)?, vec![left, right]),
        Expr::Negative(operand) => (IntegerOperator::Negate, vec![operand]),
        _ => return None,
    };
    let is_computed = |data_type: &DataType| match operator {
        IntegerOperator::Negate => data_type.is_signed_integer(),
        _ => data_type.is_integer(),
    };
    let data_type = operands[0].get_type(schema).ok().filter(is_computed)?;
    if !operands.iter().all(|operand| operand.get_type(schema).is_ok_and(|other| other == data_type)) {
        return None;
    }
    let operands = operands.into_iter().map(|operand| (**operand).clone()).collect();
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(operator.function(), operands)))
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

/// `operand` has the type of the value.
fn or_overflow(value: Result<ScalarValue>, operand: &ScalarValue, text: String) -> Expr {
    match value {
        Ok(value) => Expr::Literal(value, None),
        Err(_) => {
            let overflow = Overflow { text, data_type: operand.data_type(), signature: Signature::nullary(Volatility::Immutable) };
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(overflow)), Vec::new()))
        }
    }
}

/// The value of an integer literal.
fn integer(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if value.data_type().is_integer() => Some(value),
        Expr::Alias(alias) => integer(&alias.expr),
        _ => None,
    }
}

const OVERFLOW: &str = "integer_overflow";

/// A function without arguments that fails. The simplifier does not evaluate it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Overflow {
    /// The expression that overflows.
    text: String,
    data_type: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Overflow {
    fn name(&self) -> &str {
        OVERFLOW
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
