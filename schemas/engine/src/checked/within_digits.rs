//! Makes sure that decimals have no more digits than their type. The type of a result has at most the greatest number
//! of digits that a decimal can have, which may be too few for the value, and Arrow checks only that the value fits the
//! bits.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Schema};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

/// Whether a type has the most digits, so that its values could have more.
pub(super) fn is_clipped(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) | DataType::Decimal256(DECIMAL256_MAX_PRECISION, _))
}

/// The value of an expression.
///
/// Errors: a value of more digits than its type.
#[derive(Debug, Eq)]
pub(super) struct WithinDigits {
    inner: Arc<dyn PhysicalExpr>,
}

impl PartialEq for WithinDigits {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Hash for WithinDigits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl WithinDigits {
    pub(super) fn new(inner: Arc<dyn PhysicalExpr>) -> Self {
        Self { inner }
    }
}

impl fmt::Display for WithinDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for WithinDigits {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.inner.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.inner.nullable(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let value = self.inner.evaluate(batch)?;
        let values = value.to_array(1)?;
        match values.data_type() {
            DataType::Decimal128(digits, _) => values.as_primitive::<Decimal128Type>().validate_decimal_precision(*digits)?,
            DataType::Decimal256(digits, _) => values.as_primitive::<Decimal256Type>().validate_decimal_precision(*digits)?,
            _ => {}
        }
        Ok(value)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { inner: children.into_iter().next().unwrap_or_else(|| self.inner.clone()) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
