//! Addition, subtraction, multiplication and negation of integers that fail on a row whose result does not fit its
//! type. In a query they stand for the operators (`plan/overflow.rs`), whose results wrap around in DataFusion. They
//! have no name in SQL.

use std::sync::Arc;

use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

/// An operator on integers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IntegerOperator {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl IntegerOperator {
    /// Returns the one for an operator of SQL with two operands.
    pub(crate) fn from_operator(operator: Operator) -> Option<IntegerOperator> {
        match operator {
            Operator::Plus => Some(IntegerOperator::Add),
            Operator::Minus => Some(IntegerOperator::Subtract),
            Operator::Multiply => Some(IntegerOperator::Multiply),
            _ => None,
        }
    }

    pub(crate) fn function(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(IntegerFunction { operator: self, signature: Signature::user_defined(Volatility::Immutable) }))
    }

    fn name(self) -> &'static str {
        match self {
            IntegerOperator::Add => "integer_add",
            IntegerOperator::Subtract => "integer_subtract",
            IntegerOperator::Multiply => "integer_multiply",
            IntegerOperator::Negate => "integer_negate",
        }
    }
}

fn negated(value: &ColumnarValue) -> Result<ColumnarValue> {
    match value {
        ColumnarValue::Array(values) => Ok(ColumnarValue::Array(neg(values)?)),
        ColumnarValue::Scalar(value) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&neg(&value.to_array()?)?, 0)?)),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerFunction {
    operator: IntegerOperator,
    signature: Signature,
}

impl ScalarUDFImpl for IntegerFunction {
    fn name(&self) -> &str {
        self.operator.name()
    }

    /// The text of the operator with its operands, as DataFusion names the result's column.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match (self.operator, arguments) {
            (IntegerOperator::Add, [left, right]) => Ok(format!("{} + {}", left.schema_name(), right.schema_name())),
            (IntegerOperator::Subtract, [left, right]) => Ok(format!("{} - {}", left.schema_name(), right.schema_name())),
            (IntegerOperator::Multiply, [left, right]) => Ok(format!("{} * {}", left.schema_name(), right.schema_name())),
            (IntegerOperator::Negate, [operand]) => Ok(format!("(- {})", operand.schema_name())),
            _ => plan_err!("{} was called with {} arguments", self.name(), arguments.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [first, ..] => Ok(first.clone()),
            [] => plan_err!("{} was called without arguments", self.name()),
        }
    }

    /// As the operator's: it can be NULL where an operand can.
    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match (self.operator, arguments.args.as_slice()) {
            (IntegerOperator::Add, [left, right]) => apply(left, right, add),
            (IntegerOperator::Subtract, [left, right]) => apply(left, right, sub),
            (IntegerOperator::Multiply, [left, right]) => apply(left, right, mul),
            (IntegerOperator::Negate, [operand]) => negated(operand),
            _ => plan_err!("{} was called with {} arguments", self.name(), arguments.args.len()),
        }
    }
}

#[cfg(test)]
mod tests;
