//! The memory that accumulators take when they return their states, where they do not report it themselves.

use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

/// The peak memory of an accumulator while it returns its states, as a multiple of what it reports that it holds
/// (`tests::held` measures it). Ours report the peak. DataFusion's leave out the arrays that they return, and a part of
/// what they hold of texts and sketches.
pub(crate) fn peak_factor(call: &AggregateFunctionExpr) -> f64 {
    match call.fun().name() {
        "approx_median" | "approx_percentile_cont" => 7.0,
        "approx_distinct" => 2.9,
        "sum" | "avg" if call.is_distinct() => 2.3,
        "first_value" | "last_value" | "min" | "max" => 2.4,
        "median" | "percentile_cont" => 2.0,
        _ => 1.0,
    }
}
