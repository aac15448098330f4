//! The functions of PostgreSQL whose value depends on their arguments.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::cast::as_string_array;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

use crate::names::quoted;

/// What a client may do: read. Nothing is written here.
const PRIVILEGES_TO_READ: [&str; 4] = ["select", "usage", "connect", "execute"];

/// Computes a value from the texts of one row's arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Computed {
    name: &'static str,
    signature: Signature,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    Formatted,
    Privilege,
}

impl ScalarUDFImpl for Computed {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.purpose {
            Purpose::Formatted => DataType::Utf8,
            Purpose::Privilege => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = arrays.iter().map(|array| cast(array, &DataType::Utf8)).collect::<Result<Vec<ArrayRef>, _>>()?;
        let texts = texts.iter().map(|array| as_string_array(array)).collect::<Result<Vec<&StringArray>>>()?;
        let row = |row: usize| -> Vec<Option<&str>> { texts.iter().map(|array| array.is_valid(row).then(|| array.value(row))).collect() };
        let rows = (0..texts.first().map_or(0, |array| array.len())).map(row);
        let values: ArrayRef = match self.purpose {
            Purpose::Formatted => Arc::new(rows.map(|row| formatted(&row)).collect::<Result<StringArray>>()?),
            Purpose::Privilege => Arc::new(rows.map(|row| may(&row)).collect::<BooleanArray>()),
        };
        Ok(ColumnarValue::Array(values))
    }
}

pub(super) fn register(session: &SessionContext) {
    let functions = [
        ("format", Purpose::Formatted),
        ("has_table_privilege", Purpose::Privilege),
        ("has_schema_privilege", Purpose::Privilege),
        ("has_database_privilege", Purpose::Privilege),
        ("has_any_column_privilege", Purpose::Privilege),
        ("has_column_privilege", Purpose::Privilege),
        ("has_sequence_privilege", Purpose::Privilege),
        ("has_function_privilege", Purpose::Privilege),
    ];
    for (name, purpose) in functions {
        let function = Computed { name, signature: Signature::variadic_any(Volatility::Stable), purpose };
        session.register_udf(ScalarUDF::new_from_shared_impl(Arc::new(function)));
    }
}

/// `has_table_privilege(user, table, privileges)` and its like: whether one of the privileges is there.
fn may(args: &[Option<&str>]) -> Option<bool> {
    let privileges = args.last().copied().flatten()?.to_lowercase();
    Some(privileges.split(',').any(|privilege| PRIVILEGES_TO_READ.contains(&privilege.trim())))
}

/// `format('%s.%I', ..)`.
fn formatted(args: &[Option<&str>]) -> Result<Option<String>> {
    let Some((Some(text), mut rest)) = args.split_first() else { return Ok(None) };
    let (mut formatted, mut chars) = (String::new(), text.chars());
    while let Some(char) = chars.next() {
        if char != '%' {
            formatted.push(char);
            continue;
        }
        let kind = chars.next();
        if kind == Some('%') {
            formatted.push('%');
            continue;
        }
        let Some((value, others)) = rest.split_first() else { return exec_err!("format: too few arguments for '{text}'") };
        rest = others;
        match (kind, value) {
            (Some('s'), value) => formatted.push_str(value.unwrap_or_default()),
            (Some('I'), Some(value)) => formatted.push_str(&quoted(value)),
            (Some('L'), Some(value)) => formatted.push_str(&format!("'{}'", value.replace('\'', "''"))),
            (Some('L'), None) => formatted.push_str("NULL"),
            (Some('I'), None) => return exec_err!("format: NULL is no identifier"),
            _ => return exec_err!("format: found '{text}', expected %s, %I, %L or %%"),
        }
    }
    Ok(Some(formatted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_formatted() {
        let formatted = |args: &[&str]| formatted(&args.iter().map(|arg| Some(*arg)).collect::<Vec<_>>());
        assert_eq!(formatted(&["%s", "a b"]).unwrap().unwrap(), "a b");
        assert_eq!(formatted(&["%I.%I", "public", "Per Day"]).unwrap().unwrap(), "public.\"Per Day\"");
        assert_eq!(formatted(&["100%% %L", "it's"]).unwrap().unwrap(), "100% 'it''s'");
        for wrong in [&["%s"][..], &["%d", "1"], &["%"]] {
            assert!(formatted(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn clients_may_read_and_not_write() {
        let may = |privileges| may(&[Some("ann"), Some("public.t"), Some(privileges)]).unwrap();
        assert!(may("SELECT") && may("usage") && may("INSERT, SELECT"));
        assert!(!may("INSERT") && !may("update") && !may("SELECT WITH GRANT OPTION"));
        assert_eq!(super::may(&[Some("t"), None]), None);
    }
}
