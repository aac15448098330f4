//! The functions of PostgreSQL that clients ask for and that answer nothing about our tables: constants, most of them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility};
use datafusion::prelude::SessionContext;

use crate::SERVER_VERSION;

/// A function of any arguments that has one value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

pub(super) fn register(session: &SessionContext) {
    let (text, truth) = (|value: Option<&str>| ScalarValue::Utf8(value.map(str::to_owned)), |value| ScalarValue::Boolean(Some(value)));
    let version = format!("PostgreSQL {SERVER_VERSION} (basestream {})", env!("CARGO_PKG_VERSION"));
    let constants = [
        ("version", text(Some(&version))),
        ("obj_description", text(None)),
        ("col_description", text(None)),
        ("shobj_description", text(None)),
        ("pg_get_viewdef", text(None)),
        ("pg_get_indexdef", text(None)),
        ("pg_get_triggerdef", text(None)),
        ("pg_get_ruledef", text(None)),
        ("pg_get_functiondef", text(None)),
        ("pg_get_function_arguments", text(None)),
        ("pg_get_function_identity_arguments", text(None)),
        ("pg_get_function_result", text(None)),
        ("pg_get_function_sqlbody", text(None)),
        ("pg_get_serial_sequence", text(None)),
        ("pg_get_statisticsobjdef", text(None)),
        ("pg_tablespace_location", text(None)),
        ("pg_size_pretty", text(Some("0 bytes"))),
        ("pg_export_snapshot", text(Some("00000000-00000000-1"))),
        ("pg_is_in_recovery", truth(false)),
        ("pg_type_is_visible", truth(true)),
        ("pg_function_is_visible", truth(true)),
        ("pg_collation_is_visible", truth(true)),
        ("pg_conversion_is_visible", truth(true)),
        ("pg_operator_is_visible", truth(true)),
        ("pg_ts_config_is_visible", truth(true)),
        ("pg_has_role", truth(true)),
        ("pg_advisory_unlock_all", text(None)),
        ("json_build_object", text(None)),
        ("pg_get_partition_constraintdef", text(None)),
        ("to_regtype", ScalarValue::Int32(None)),
        ("to_regclass", ScalarValue::Int32(None)),
        ("to_regnamespace", ScalarValue::Int32(None)),
        ("pg_my_temp_schema", ScalarValue::Int32(Some(0))),
        ("pg_is_other_temp_schema", truth(false)),
        ("inet_server_port", ScalarValue::Int32(None)),
        ("txid_current", ScalarValue::Int64(Some(1))),
        ("pg_table_size", ScalarValue::Int64(Some(0))),
        ("pg_indexes_size", ScalarValue::Int64(Some(0))),
        ("pg_database_size", ScalarValue::Int64(Some(0))),
    ];
    for (name, value) in constants {
        // With arguments or without.
        let any = Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Stable);
        let constant = Constant { name, value, signature: any };
        session.register_udf(ScalarUDF::new_from_shared_impl(Arc::new(constant)));
    }
}
