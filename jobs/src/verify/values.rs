//! Decides when two values are equal: exactly, except for floating point, whose sums depend on the order of addition,
//! and for functions that estimate.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use engine::functions::{TOP_K, TOP_K_CAPACITY};

use super::plain::PlainColumn;

/// Functions over a t-digest: merged in another order they return slightly different values.
const DIGESTS: [&str; 3] = ["approx_percentile_cont", "approx_percentile_cont_with_weight", "approx_median"];
const DIGEST_RELATIVE: f64 = 0.02;
const FLOAT_RELATIVE: f64 = 1e-9;
const FLOAT_ABSOLUTE: f64 = 1e-9;
/// What rounding an estimate to a whole number changes, with a margin.
const ROUNDED: f64 = 1.0;

/// How far apart two values of a column may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    kind: Kind,
    /// NULL also stands for NaN and the infinities.
    without_nan: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Exact,
    /// About equal, or between two values that are expected near its rank.
    Digest {
        between: Option<[f64; 2]>,
    },
    /// Exact up to the capacity of `top_k`.
    TopK,
    /// Not comparable: `top_k` is past its capacity, or the value is from a sample that gives no bound for it.
    Any,
    /// A count or a sum estimated from a sample. A count of different values is rather too small than too great.
    Sampled {
        bound: f64,
        from_below: bool,
    },
}

impl Tolerance {
    /// Equal, floats up to what their order of summing changes.
    pub const EXACT: Tolerance = Tolerance { kind: Kind::Exact, without_nan: false };

    /// Returns the tolerance of a column's functions. `approx_distinct` merges without loss: it must be equal.
    pub fn for_column(column: &PlainColumn) -> Tolerance {
        let calls = |name: &str| column.functions.iter().any(|function| function == name);
        let kind = match () {
            () if DIGESTS.iter().any(|name| calls(name)) => Kind::Digest { between: None },
            () if calls(TOP_K) => Kind::TopK,
            () => Kind::Exact,
        };
        Tolerance { kind, without_nan: false }
    }

    /// Returns the tolerance for a row estimated from a sample. A count or a sum is within `bound` of the true value. A
    /// count of different values is estimated from below and may be above by twice `bound`, because each neighbour
    /// counts about twice in it.
    pub fn of_crowded(column: &PlainColumn, bound: f64) -> Tolerance {
        let from_below = column.sql.to_uppercase().contains("DISTINCT");
        let bound = if from_below { 2.0 * bound } else { bound };
        let kind = if column.is_total { Kind::Sampled { bound, from_below } } else { Kind::Any };
        Tolerance { kind, without_nan: false }
    }

    /// Whether values may differ.
    pub fn is_approximate(&self) -> bool {
        self.kind != Kind::Exact
    }

    /// Narrows the tolerance for one value by the number of different values that a `top_k` was given.
    pub(super) fn given(mut self, distinct: Option<i64>, without_nan: bool) -> Tolerance {
        if self.kind == Kind::TopK {
            let exact = distinct.is_some_and(|distinct| distinct <= TOP_K_CAPACITY as i64);
            self.kind = if exact { Kind::Exact } else { Kind::Any };
        }
        self.without_nan = without_nan;
        self
    }

    /// Widens the tolerance of a percentile to the values that are expected a little below and above it.
    pub(super) fn between(mut self, near: Option<[f64; 2]>) -> Tolerance {
        if let Kind::Digest { between } = &mut self.kind {
            *between = near;
        }
        self
    }

    /// `a` is the served value.
    fn floats(&self, a: f64, b: f64) -> bool {
        if a == b || (a.is_nan() && b.is_nan()) {
            return true;
        }
        if !a.is_finite() || !b.is_finite() {
            return false;
        }
        let larger = a.abs().max(b.abs());
        let (relative, between) = match self.kind {
            Kind::Digest { between } => (DIGEST_RELATIVE, between),
            _ => (FLOAT_RELATIVE, None),
        };
        let slack = relative * larger + FLOAT_ABSOLUTE;
        (a - b).abs() <= slack || between.is_some_and(|[one, other]| one.min(other) - slack <= a && a <= one.max(other) + slack)
    }
}

/// Compares the value at `i` of the served array with the value at `j` of the expected one. Lists and structs are
/// compared element by element.
pub fn equal(served: &ArrayRef, i: usize, expected: &ArrayRef, j: usize, tolerance: Tolerance) -> bool {
    if tolerance.kind == Kind::Any {
        return true;
    }
    if let Kind::Sampled { bound, from_below } = tolerance.kind {
        let both = if served.is_null(i) || expected.is_null(j) { None } else { as_float(served, i).zip(as_float(expected, j)) };
        return match both {
            Some((served, expected)) => {
                let bound = bound + FLOAT_RELATIVE * expected.abs() + ROUNDED;
                served <= expected + bound && (from_below || served >= expected - bound)
            }
            // Nothing that was followed may have a value for the sum.
            None => served.is_null(i),
        };
    }
    match (served.is_null(i), expected.is_null(j)) {
        (true, true) => return true,
        (true, false) => return tolerance.without_nan && float(expected, j).is_some_and(|value| !value.is_finite()),
        (false, true) => return false,
        (false, false) => {}
    }
    if let (Some(a), Some(b)) = (float(served, i), float(expected, j)) {
        return tolerance.floats(a, b);
    }
    if let (Some(a), Some(b)) = (items(served, i), items(expected, j)) {
        return a.len() == b.len() && (0..a.len()).all(|item| equal(&a, item, &b, item, tolerance));
    }
    if let (Some(a), Some(b)) = (served.as_struct_opt(), expected.as_struct_opt()) {
        return a.num_columns() == b.num_columns() && a.columns().iter().zip(b.columns()).all(|(a, b)| equal(a, i, b, j, tolerance));
    }
    if matches!(tolerance.kind, Kind::Digest { .. })
        && let (Some(a), Some(b)) = (as_float(served, i), as_float(expected, j))
    {
        return tolerance.floats(a, b) || (a - b).abs() <= 1.0;
    }
    exactly(served, i, expected, j)
}

fn exactly(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    let (a, b) = (a.slice(i, 1), b.slice(j, 1));
    if a.data_type() == b.data_type() {
        return a.to_data() == b.to_data();
    }
    arrow::compute::cast(&a, b.data_type()).is_ok_and(|a| a.to_data() == b.to_data())
}

fn float(array: &ArrayRef, row: usize) -> Option<f64> {
    match array.data_type() {
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => Some(f64::from(array.as_primitive::<Float32Type>().value(row))),
        _ => None,
    }
}

/// Returns a number of any type as a float, to apply tolerances.
fn as_float(array: &ArrayRef, row: usize) -> Option<f64> {
    let number = arrow::compute::cast(&array.slice(row, 1), &DataType::Float64).ok()?;
    float(&number, 0)
}

fn items(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Some(list.value(row));
    }
    if let Some(list) = array.as_list_opt::<i64>() {
        return Some(list.value(row));
    }
    array.as_fixed_size_list_opt().map(|list| list.value(row))
}

#[cfg(test)]
mod tests;
