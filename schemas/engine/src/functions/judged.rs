//! Values that come with a verdict: whether they could be computed. In views, aggregates whose states may outgrow a limit
//! return a struct of the value and the verdict, so that one key's value fails alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int8Array, StructArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, Fields, Int8Type};
use datafusion::common::{Result, exec_err};

/// Why a value could not be computed. The numbers are of one process: they are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum Verdict {
    /// Its state holds more than `max_state_bytes`.
    StateTooLarge = 1,
    /// It is a sum that its type does not hold.
    SumTooLarge = 2,
}

impl Verdict {
    pub(crate) fn of(code: i8) -> Verdict {
        if code == Verdict::SumTooLarge as i8 { Verdict::SumTooLarge } else { Verdict::StateTooLarge }
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

/// Returns values that have verdicts with further ones.
pub(crate) fn judged_again(values: &ArrayRef, failed: &BooleanArray, verdict: Verdict) -> Result<ArrayRef> {
    let (values, known) = taken_apart(values)?;
    let values = if failed.true_count() > 0 { nullif(&values, failed)? } else { values };
    let verdicts = known.iter().zip(failed).map(|(known, failed)| if failed == Some(true) { Some(verdict as i8) } else { known });
    let verdicts: Int8Array = verdicts.collect();
    Ok(Arc::new(StructArray::try_new(fields(values.data_type()), vec![values, Arc::new(verdicts)], None)?))
}

/// Whether values of this type have verdicts.
pub(crate) fn is_judged(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(fields) if matches!(&fields[..], [value, verdict] if value.name() == "value" && verdict.name() == "verdict"))
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
