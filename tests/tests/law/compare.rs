//! Compares two tables of answers.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use engine::plan::{ColumnKind, ViewPlan};
use engine::states::FailedValue;
use serde_json::Value;
use types::failures::Failures;

/// Prefixes the text of a DOUBLE. Text with it is compared as a number, all other text exactly.
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

/// The text of a value that is past its limit.
const PAST: &str = "past its limit";

/// Names the values that are past their limits, by the rows of [`jobs::verify::plain::Plain::past_sql`].
pub fn mark_past(rows: &mut BTreeMap<Vec<String>, Vec<(String, String)>>, past: &[RecordBatch], keys: usize) {
    for (key, flags) in rows_of(past, None, keys) {
        for (name, _) in flags.into_iter().filter(|(_, is_past)| is_past == "true") {
            rows.get_mut(&key).unwrap().iter_mut().filter(|(known, _)| *known == name).for_each(|(_, text)| *text = PAST.to_owned());
        }
    }
}

/// Names served values as past their limits. `keys` has the keys of failed rows, in the order of the rows' own.
pub fn mark_failed(rows: &mut BTreeMap<Vec<String>, Vec<(String, String)>>, plan: &ViewPlan, keys: &RecordBatch, failed: &[FailedValue]) {
    for value in failed {
        let key = rows_of(&[keys.slice(value.row, 1)], None, plan.keys.len()).into_keys().next().unwrap();
        let name = plan.columns[value.column].field.name();
        let cell = rows.get_mut(&key).unwrap().iter_mut().find(|(known, _)| known == name).unwrap();
        assert_eq!(cell.1.trim_start_matches(FLOAT), "\u{2205}", "{name} of {key:?} has a value, and an error");
        cell.1 = PAST.to_owned();
    }
}

/// The partitions and offsets of the events that a view leaves out, in some parts of its stream. Each part lists all
/// that it counts: a case has fewer than [`types::failures::LISTED`].
pub fn positions<'a>(parts: impl IntoIterator<Item = &'a Failures>) -> Vec<(i32, i64)> {
    let mut positions = Vec::new();
    for part in parts {
        let listed: Vec<(i32, i64)> = part.listed().map(|failure| (failure.partition.partition, failure.offset.0)).collect();
        assert_eq!(part.count(), listed.len() as u64, "counted, and listed: {listed:?}");
        positions.extend(listed);
    }
    positions.sort_unstable();
    positions
}

/// Floats must be within 1e-9 of the sum of the absolute inputs (or, if the value is not a sum, within 1e-7 of
/// themselves), infinities and NaN must match by class, everything else must be equal.
pub fn same(a: &str, b: &str, scale: f64) -> bool {
    let (Some(a), Some(b)) = (a.strip_prefix(FLOAT), b.strip_prefix(FLOAT)) else { return a == b };
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(x), Ok(y)) => same_floats(x, y, scale),
        _ => a == b,
    }
}

fn same_floats(x: f64, y: f64, scale: f64) -> bool {
    match x.is_finite() && y.is_finite() {
        true => (x - y).abs() <= tolerance(x, y, scale),
        false => x.is_nan() == y.is_nan() && (x.is_nan() || x == y),
    }
}

/// The same for values in the JSON of records. Decimals may end in zeros.
pub fn same_json(a: &Value, b: &Value, scale: f64) -> bool {
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) if x.is_f64() || y.is_f64() => same_floats(x.as_f64().unwrap(), y.as_f64().unwrap(), scale),
        (Value::String(x), Value::String(y)) => without_zeros(x) == without_zeros(y),
        _ => a == b,
    }
}

/// The sums of the absolute finite inputs of a case.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs {
    pub x: f64,
    pub f: f64,
}

impl Inputs {
    pub fn from_rows(rows: impl Iterator<Item = (Option<i64>, Option<f64>)>) -> Inputs {
        rows.fold(Inputs::default(), |sums, (x, f)| Inputs {
            x: sums.x + x.map_or(0.0, |x| (x as f64).abs()),
            f: sums.f + f.filter(|f| f.is_finite()).map_or(0.0, f64::abs),
        })
    }

    /// The scale of the tolerance for a column's value: the sum of the inputs that its expression adds up. Other
    /// numbers use their own size.
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
