//! When two tables of answers are the same.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Stands before the text of a DOUBLE: what has it is compared as a number, all else as it is written.
const FLOAT: char = '~';

/// Rows by key, every column as text.
pub fn rows_of(batches: &[RecordBatch], keep: Option<&[bool]>, keys: usize) -> BTreeMap<Vec<String>, Vec<(String, String)>> {
    let options = FormatOptions::default().with_null("∅");
    let mut rows = BTreeMap::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
        for row in (0..batch.num_rows()).filter(|row| keep.is_none_or(|keep| keep[*row])) {
            let text = |(column, field): (&ArrayFormatter, &FieldRef)| match field.data_type() {
                DataType::Float64 => format!("{FLOAT}{}", column.value(row)),
                _ => column.value(row).to_string(),
            };
            let texts: Vec<String> = columns.iter().zip(batch.schema().fields()).map(text).collect();
            let named = batch.schema().fields().iter().map(|field| field.name().clone()).zip(texts.iter().cloned()).skip(keys).collect();
            assert!(rows.insert(texts[..keys].to_vec(), named).is_none(), "the key {:?} has two rows", &texts[..keys]);
        }
    }
    rows
}

/// Floats within 1e-9 of the sum of the absolute inputs (or, for what is no sum, within 1e-7 of themselves), infinities and NaN by
/// class, everything else equal.
pub fn same(a: &str, b: &str, scale: f64) -> bool {
    let (Some(a), Some(b)) = (a.strip_prefix(FLOAT), b.strip_prefix(FLOAT)) else { return a == b };
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(x), Ok(y)) if x.is_finite() && y.is_finite() => (x - y).abs() <= tolerance(x, y, scale),
        (Ok(x), Ok(y)) => x.is_nan() == y.is_nan() && (x.is_nan() || x == y),
        _ => a == b,
    }
}

fn tolerance(x: f64, y: f64, scale: f64) -> f64 {
    (1e-9 * scale).max(1e-7 * x.abs().max(y.abs())).max(1e-9)
}
