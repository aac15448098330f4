//! Values that come with their flaw, the reason why they could not be computed, if there is one. In views, aggregates
//! whose states may outgrow a limit return a struct of the value and the flaw, so that one key's value fails alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int8Array, StructArray};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, Fields, Int8Type};
use datafusion::common::{Result, exec_err};

/// Why a value could not be computed. The numbers are of one process: they are not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub(crate) enum Flaw {
    /// Its state holds more than `max_state_bytes`.
    StateTooLarge = 1,
    /// It is a sum that its type does not hold.
    SumTooLarge = 2,
}

impl Flaw {
    pub(crate) fn from_code(code: i8) -> Flaw {
        if code == Flaw::SumTooLarge as i8 { Flaw::SumTooLarge } else { Flaw::StateTooLarge }
    }
}

/// Returns the type of a value with its flaw.
pub(crate) fn judged_type(value: &DataType) -> DataType {
    DataType::Struct(fields(value))
}

fn fields(value: &DataType) -> Fields {
    vec![Field::new("value", value.clone(), true), Field::new("flaw", DataType::Int8, true)].into()
}

/// Returns values with a flaw where `failed` says so. Those values are NULL.
pub(crate) fn judged(values: &ArrayRef, failed: &BooleanArray, flaw: Flaw) -> Result<ArrayRef> {
    judged_as(fields(values.data_type()), values, failed, flaw)
}

/// The same with the fields of [`judged_type`], where they are at hand.
pub(crate) fn judged_as(fields: Fields, values: &ArrayRef, failed: &BooleanArray, flaw: Flaw) -> Result<ArrayRef> {
    let (values, flaws) = match failed.true_count() {
        0 => (values.clone(), Int8Array::new_null(failed.len())),
        _ => (nullif(values, failed)?, failed.iter().map(|failed| (failed == Some(true)).then_some(flaw as i8)).collect()),
    };
    Ok(Arc::new(StructArray::try_new(fields, vec![values, Arc::new(flaws)], None)?))
}

/// Returns values that have flaws with further ones.
pub(crate) fn judged_again(values: &ArrayRef, failed: &BooleanArray, flaw: Flaw) -> Result<ArrayRef> {
    let (values, known) = taken_apart(values)?;
    let values = if failed.true_count() > 0 { nullif(&values, failed)? } else { values };
    let flaws = known.iter().zip(failed).map(|(known, failed)| if failed == Some(true) { Some(flaw as i8) } else { known });
    let flaws: Int8Array = flaws.collect();
    Ok(Arc::new(StructArray::try_new(fields(values.data_type()), vec![values, Arc::new(flaws)], None)?))
}

/// Whether values of this type have flaws.
pub(crate) fn is_judged(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(fields) if matches!(&fields[..], [value, flaw] if value.name() == "value" && flaw.name() == "flaw"))
}

/// Returns the values and the flaws of a column.
pub(crate) fn taken_apart(judged: &ArrayRef) -> Result<(ArrayRef, Int8Array)> {
    match judged.as_struct_opt().map(StructArray::columns) {
        Some([values, flaws]) if flaws.data_type() == &DataType::Int8 => Ok((values.clone(), flaws.as_primitive::<Int8Type>().clone())),
        _ => exec_err!("found {}, expected values with flaws", judged.data_type()),
    }
}

/// Returns the type of the values of [`judged_type`].
pub(crate) fn value_type(judged: &DataType) -> Option<&DataType> {
    match judged {
        DataType::Struct(fields) => fields.first().map(|value| value.data_type()),
        _ => None,
    }
}
