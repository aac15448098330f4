//! `pg_typeof(x)`: the name that PostgreSQL has for the type of a value.

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use types::sql_types::sql_name;

/// Returns the function.
pub(super) fn pg_typeof() -> ScalarUDF {
    ScalarUDF::from(PgTypeof { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgTypeof {
    signature: Signature,
}

impl ScalarUDFImpl for PgTypeof {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.arg_fields.as_slice() {
            [field] => Ok(ColumnarValue::Scalar(ScalarValue::from(name_in_postgresql(field.data_type())))),
            others => exec_err!("pg_typeof was called with {} arguments: expected 1", others.len()),
        }
    }
}

fn name_in_postgresql(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "unknown".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => "bigint".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Decimal128(..) | DataType::Decimal256(..) => "numeric".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".to_owned(),
        DataType::Timestamp(_, None) => "timestamp without time zone".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".to_owned(),
        DataType::Struct(_) | DataType::Map(..) => "json".to_owned(),
        DataType::List(item) | DataType::LargeList(item) => format!("{}[]", name_in_postgresql(item.data_type())),
        other => sql_name(other).to_lowercase(),
    }
}
