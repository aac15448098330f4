//! Values that come with a verdict: whether they could be computed. In views, aggregates whose states may outgrow a limit
//! return a struct of the value and the verdict, so that one key's value fails alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int8Array, StructArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, Fields, Int8Type};
use datafusion::common::{Result, ScalarValue, exec_err};

/// Why a value could not be computed. The numbers are of one process: they are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Verdict {
    /// Its state holds more than `max_state_bytes`.
    StateTooLarge = 1,
}

impl Verdict {
    pub(crate) fn of(code: i8) -> Verdict {
        match code {
            _ => Verdict::StateTooLarge,
        }
    }
}

/// Returns the type of a value with its verdict.
pub(crate) fn judged_type(value: &DataType) -> DataType {
    DataType::Struct(fields(value))
}

fn fields(value: &DataType) -> Fields {
    vec![Field::new("value", value.clone(), true), Field::new("verdict", DataType::Int8, true)].into()
}

/// Returns values with a verdict where `failed` says so. Those values are NULL.
pub(crate) fn judged(values: &ArrayRef, failed: &BooleanArray, verdict: Verdict) -> Result<ArrayRef> {
    let values = if failed.true_count() > 0 { nullif(values, failed)? } else { values.clone() };
    let verdicts: Int8Array = failed.iter().map(|failed| (failed == Some(true)).then_some(verdict as i8)).collect();
    Ok(Arc::new(StructArray::try_new(fields(values.data_type()), vec![values, Arc::new(verdicts)], None)?))
}

/// The same for one value.
pub(crate) fn judged_value(value: &ScalarValue, failed: bool, verdict: Verdict) -> Result<ScalarValue> {
    ScalarValue::try_from_array(&judged(&value.to_array()?, &BooleanArray::from(vec![failed]), verdict)?, 0)
}

/// Returns the values and the verdicts of a column.
pub(crate) fn taken_apart(judged: &ArrayRef) -> Result<(ArrayRef, Int8Array)> {
    match judged.as_struct_opt().map(StructArray::columns) {
        Some([values, verdicts]) if verdicts.data_type() == &DataType::Int8 => {
            Ok((values.clone(), verdicts.as_primitive::<Int8Type>().clone()))
        }
        _ => exec_err!("found {}, expected values with verdicts", judged.data_type()),
    }
}

/// Returns the type of the values of [`judged_type`].
pub(crate) fn value_type(judged: &DataType) -> Option<&DataType> {
    match judged {
        DataType::Struct(fields) => fields.first().map(|value| value.data_type()),
        _ => None,
    }
}
