//! Casts to `UUID` and to `JSON` in queries. Arrow has no such types, so the result is a text in the spelling that is
//! stored. Like any cast, they fail on a text that is not a value of the type, and NULL stays NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::events::asked_uuid;

/// The function that casts a text, or a list of texts, to UUID.
pub const AS_UUID: &str = "as_uuid";
/// The same to JSON, which stays as it is written.
pub const AS_JSON: &str = "as_json";

/// Returns both functions, for the sessions of queries.
pub fn typed_texts() -> [ScalarUDF; 2] {
    [(AS_UUID, "UUID"), (AS_JSON, "JSON")]
        .map(|(name, type_name)| ScalarUDF::from(TypedText { name, type_name, signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TypedText {
    name: &'static str,
    /// As SQL and messages have it.
    type_name: &'static str,
    signature: Signature,
}

impl TypedText {
    /// Errors: a text that is none of the type.
    fn text(&self, text: &str) -> Result<String> {
        let found = match self.name {
            AS_UUID => asked_uuid(text).map(|uuid| uuid.into_owned()),
            _ => serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok().then(|| text.to_owned()),
        };
        found.ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            ArrowError::CastError(format!("Cannot cast string '{shown}' to value of {} type", self.type_name)).into()
        })
    }

    fn values(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match values.data_type() {
            DataType::List(item) => {
                let list = values.as_list::<i32>();
                let texts = self.values(list.values())?;
                Ok(Arc::new(ListArray::try_new(item.clone(), list.offsets().clone(), texts, list.nulls().cloned())?))
            }
            DataType::Utf8 => {
                let texts = values.as_string::<i32>().iter().map(|text| text.map(|text| self.text(text)).transpose());
                Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
            }
            other => plan_err!("{} was called with ({other}): expected a TEXT", self.name),
        }
    }
}

impl ScalarUDFImpl for TypedText {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let operands: Vec<String> = arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        Ok(format!("CAST({} AS {})", operands.join(", "), self.type_name))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [DataType::Utf8] => Ok(arguments.to_vec()),
            [DataType::List(item)] if *item.data_type() == DataType::Utf8 => Ok(arguments.to_vec()),
            _ => plan_err!("{} takes a text, or an array of texts", self.name),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [only] => Ok(only.clone()),
            _ => plan_err!("{} takes a text, or an array of texts", self.name),
        }
    }

    /// A constant that is none of the type is an error also where no row is read.
    fn simplify(&self, arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let [Expr::Literal(value, _)] = arguments.as_slice() {
            self.values(&value.to_array()?)?;
        }
        Ok(ExprSimplifyResult::Original(arguments))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.values(values)?)),
            [ColumnarValue::Scalar(value)] => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&self.values(&value.to_array()?)?, 0)?)),
            _ => plan_err!("{} takes a text, or an array of texts", self.name),
        }
    }
}
