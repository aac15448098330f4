//! A value as it was computed: DataFusion's simplifications do not look into the call.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Returns the function that returns its argument.
pub(crate) fn as_computed() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(AsComputed { signature: Signature::any(1, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsComputed {
    signature: Signature,
}

impl ScalarUDFImpl for AsComputed {
    fn name(&self) -> &str {
        "as_computed"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value] => Ok(value.clone()),
            others => exec_err!("as_computed was called with {} arguments: expected 1", others.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(arguments.args) {
            Ok([value]) => Ok(value),
            Err(others) => exec_err!("as_computed was called with {} arguments: expected 1", others.len()),
        }
    }
}
