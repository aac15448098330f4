//! `'orders'::regclass`: an error where there is no such table.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;
use types::{Error, Reason};

/// The function of an OID and of the name by which it was looked for.
pub(super) const KNOWN_CLASS: &str = "known_class";

pub(super) fn register(session: &SessionContext) {
    let function = KnownClass { signature: Signature::any(2, Volatility::Stable) };
    session.register_udf(ScalarUDF::new_from_shared_impl(Arc::new(function)));
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct KnownClass {
    signature: Signature,
}

impl ScalarUDFImpl for KnownClass {
    fn name(&self) -> &str {
        KNOWN_CLASS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [oid, _] = arguments else { return exec_err!("{KNOWN_CLASS}: expected an OID and a name") };
        Ok(oid.clone())
    }

    /// The field of the OID, whose metadata says that it is one.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [oid, _] = args.arg_fields else { return exec_err!("{KNOWN_CLASS}: expected an OID and a name") };
        Ok(oid.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [oid, name] = args.args.as_slice() else { return exec_err!("{KNOWN_CLASS}: expected an OID and a name") };
        let is_missing = match oid {
            ColumnarValue::Scalar(oid) => oid.is_null(),
            ColumnarValue::Array(oids) => oids.null_count() > 0,
        };
        match name {
            ColumnarValue::Scalar(name) if is_missing && !name.is_null() => {
                let name = name.try_as_str().flatten().unwrap_or_default();
                Err(Error::input(format!("there is no table \"{name}\"")).with_reason(Reason::UnknownTable).into())
            }
            _ => Ok(oid.clone()),
        }
    }
}
