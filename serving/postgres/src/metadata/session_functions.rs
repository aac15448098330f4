//! The functions whose value is that of a client's session, such as its user, and `set_config`, which changes it: each
//! query has its own.

use std::sync::Arc;

use arrow::array::{Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::cast::{as_boolean_array, as_string_array};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::PG_CATALOG;
use crate::session::{AskedSettings, SessionValues};

/// Registers them for one query of this session. What it sets is noted in `settings`.
pub(super) fn register(state: &mut SessionState, values: &Arc<SessionValues>, settings: &AskedSettings) -> Result<()> {
    let signature = Signature::exact(vec![DataType::Utf8, DataType::Utf8, DataType::Boolean], Volatility::Volatile);
    let set_config = SetConfig { signature, values: values.clone(), settings: settings.clone() };
    state.register_udf(Arc::new(ScalarUDF::new_from_shared_impl(Arc::new(set_config))))?;
    for (name, asked, signature) in [
        ("current_setting", AskedValue::Setting, Signature::variadic_any(Volatility::Stable)),
        ("current_schema", AskedValue::Schema, Signature::nullary(Volatility::Immutable)),
        ("current_schemas", AskedValue::Schemas, Signature::exact(vec![DataType::Boolean], Volatility::Immutable)),
        // The parser makes one of `current_user` too.
        ("session_user", AskedValue::User, Signature::nullary(Volatility::Immutable)),
        ("user", AskedValue::User, Signature::nullary(Volatility::Immutable)),
    ] {
        let function = SessionFunction { name, signature, asked, values: values.clone() };
        state.register_udf(Arc::new(ScalarUDF::new_from_shared_impl(Arc::new(function))))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionFunction {
    name: &'static str,
    signature: Signature,
    asked: AskedValue,
    values: Arc<SessionValues>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AskedValue {
    Setting,
    Schema,
    Schemas,
    User,
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.asked {
            AskedValue::Setting | AskedValue::Schema | AskedValue::User => DataType::Utf8,
            AskedValue::Schemas => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.asked {
            AskedValue::Setting => {
                let Some(name) = args.args.first() else { return exec_err!("current_setting: expected the name of a setting") };
                let names = cast(&name.to_array(args.number_rows)?, &DataType::Utf8)?;
                // PostgreSQL refuses those that it does not know, but it has settings that this server lacks.
                let values = as_string_array(&names)?.iter().map(|name| self.values.setting(name?));
                Ok(ColumnarValue::Array(Arc::new(values.collect::<StringArray>())))
            }
            AskedValue::Schema => Ok(ColumnarValue::Scalar(ScalarValue::Utf8(self.values.schemas().into_iter().next()))),
            AskedValue::User => Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(self.values.user())))),
            AskedValue::Schemas => {
                let [ColumnarValue::Scalar(ScalarValue::Boolean(with_implicit))] = args.args.as_slice() else {
                    return exec_err!("current_schemas: expected true or false");
                };
                let schemas = schemas(&self.values, with_implicit.unwrap_or_default());
                let items: Vec<ScalarValue> = schemas.into_iter().map(ScalarValue::from).collect();
                Ok(ColumnarValue::Scalar(ScalarValue::List(ScalarValue::new_list(&items, &DataType::Utf8, true))))
            }
        }
    }
}

/// `set_config(name, value, is_local)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SetConfig {
    signature: Signature,
    values: Arc<SessionValues>,
    settings: AskedSettings,
}

impl ScalarUDFImpl for SetConfig {
    fn name(&self) -> &str {
        "set_config"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [name, value, is_local] = args.args.as_slice() else { return exec_err!("set_config: expected a name, a value and a boolean") };
        let names = cast(&name.to_array(args.number_rows)?, &DataType::Utf8)?;
        let values = cast(&value.to_array(args.number_rows)?, &DataType::Utf8)?;
        let are_local = is_local.to_array(args.number_rows)?;
        let (names, values, are_local) = (as_string_array(&names)?, as_string_array(&values)?, as_boolean_array(&are_local)?);
        let shown = (0..args.number_rows).map(|row| {
            let text = |texts: &StringArray| texts.is_valid(row).then(|| texts.value(row).to_owned());
            let is_local = are_local.is_valid(row) && are_local.value(row);
            self.settings.ask(&self.values, text(names).as_deref(), text(values).as_deref(), is_local)
        });
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<StringArray>())))
    }
}

/// The schemas where tables are looked for, the first one first. `pg_catalog` is one of them also where the search path
/// does not name it.
pub(super) fn schemas(values: &SessionValues, with_implicit: bool) -> Vec<String> {
    let mut schemas = values.schemas();
    if with_implicit && !schemas.iter().any(|schema| schema == PG_CATALOG) {
        schemas.insert(0, PG_CATALOG.to_owned());
    }
    schemas
}
