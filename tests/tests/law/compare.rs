//! When two tables of answers are the same.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use engine::plan::{ColumnKind, ViewPlan};

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

/// The sums of the absolute inputs of a case, finite ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs {
    pub x: f64,
    pub f: f64,
}

impl Inputs {
    pub fn of(rows: impl Iterator<Item = (Option<i64>, Option<f64>)>) -> Inputs {
        rows.fold(Inputs::default(), |sums, (x, f)| Inputs {
            x: sums.x + x.map_or(0.0, |x| (x as f64).abs()),
            f: sums.f + f.filter(|f| f.is_finite()).map_or(0.0, f64::abs),
        })
    }

    /// What a column's value may be off by, relatively: the inputs that its expression adds up. Other numbers are held to themselves.
    pub fn scale_of(&self, plan: &ViewPlan, column: &str) -> f64 {
        let column = plan.columns.iter().find(|known| known.field.name() == column);
        let Some(ColumnKind::Value(value)) = column.map(|column| &column.kind) else { return 0.0 };
        let adds_up = |calls: &[&str]| calls.iter().any(|call| value.sql.contains(call));
        let of_f = if adds_up(&["sum(f)", "avg(f)", "stddev(f)", "corr(x, f)", "regr_slope(f, x)"]) { self.f } else { 0.0 };
        let of_x = if adds_up(&["avg(x)", "corr(x, f)", "regr_slope(f, x)"]) { self.x } else { 0.0 };
        of_f + of_x
    }
}

fn tolerance(x: f64, y: f64, scale: f64) -> f64 {
    (1e-9 * scale).max(1e-7 * x.abs().max(y.abs())).max(1e-9)
}
