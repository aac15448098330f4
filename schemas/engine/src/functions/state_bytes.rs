//! The size of a state that collects values, as `max_state_bytes` counts it: 8 bytes for each value, and the length of
//! its text. NULLs count nothing.
//!
//! The size depends on the values alone, not on how Arrow or an accumulator stores them. It only grows as states are
//! merged: lists are appended, sets are united.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use super::sequences;

/// What each value counts.
const VALUE_BYTES: u64 = 8;

/// Returns the size of each row of a state's fields. Lists count, and the Binary of an aggregate of sequences, which
/// says its size itself.
pub(crate) fn row_bytes(fields: &[ArrayRef]) -> Vec<u64> {
    let rows = fields.first().map_or(0, |field| field.len());
    let mut bytes = vec![0; rows];
    for field in fields {
        if let Some(states) = field.as_binary_opt::<i32>() {
            states.iter().zip(&mut bytes).for_each(|(state, bytes)| *bytes += state.map_or(0, sequences::state_bytes));
            continue;
        }
        let Some(lists) = field.as_list_opt::<i32>() else { continue };
        let offsets = lists.value_offsets();
        for (row, bytes) in bytes.iter_mut().enumerate().filter(|(row, _)| lists.is_valid(*row)) {
            *bytes += item_bytes(lists.values(), offsets[row] as usize, offsets[row + 1] as usize);
        }
    }
    bytes
}

/// Returns the size of these items together.
pub(crate) fn item_bytes(items: &dyn Array, from: usize, to: usize) -> u64 {
    match items.data_type() {
        DataType::Struct(_) => items.as_struct().columns().iter().map(|column| item_bytes(column, from, to)).sum(),
        DataType::List(_) => {
            let (lists, offsets) = (items.as_list::<i32>(), items.as_list::<i32>().value_offsets());
            let of_list = |row: usize| VALUE_BYTES + item_bytes(lists.values(), offsets[row] as usize, offsets[row + 1] as usize);
            (from..to).filter(|row| lists.is_valid(*row)).map(of_list).sum()
        }
        _ => count_valid(items.nulls(), from, to) * VALUE_BYTES + text_bytes(items, from, to),
    }
}

fn count_valid(nulls: Option<&NullBuffer>, from: usize, to: usize) -> u64 {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => (from..to).filter(|row| nulls.is_valid(*row)).count() as u64,
        None => (to - from) as u64,
    }
}

/// Returns the lengths of texts or bytes together; 0 for other types.
fn text_bytes(items: &dyn Array, from: usize, to: usize) -> u64 {
    let of_valid = |length: &dyn Fn(usize) -> usize| (from..to).filter(|row| items.is_valid(*row)).map(|row| length(row) as u64).sum();
    match items.data_type() {
        DataType::Utf8 if items.null_count() == 0 => {
            let offsets = items.as_string::<i32>().value_offsets();
            (offsets[to] - offsets[from]) as u64
        }
        DataType::Utf8 => of_valid(&|row| items.as_string::<i32>().value_length(row) as usize),
        DataType::LargeUtf8 => of_valid(&|row| items.as_string::<i64>().value_length(row) as usize),
        DataType::Utf8View => of_valid(&|row| items.as_string_view().value(row).len()),
        DataType::Binary => of_valid(&|row| items.as_binary::<i32>().value_length(row) as usize),
        DataType::LargeBinary => of_valid(&|row| items.as_binary::<i64>().value_length(row) as usize),
        DataType::BinaryView => of_valid(&|row| items.as_binary_view().value(row).len()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
