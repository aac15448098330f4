//! Variances, covariances, `corr` and `regr_*`, with one state in every layer: the number of rows, the means, and the
//! sums of squared distances from them.
//!
//! DataFusion's own functions depend on how rows were grouped into states. Its `corr` under a GROUP BY subtracts sums
//! of squares from each other, where rounding leaves less than nothing, and has other rules for infinite values than
//! the one without GROUP BY. Its variances merge an empty state with values past 1e154 to NaN, and their means drift
//! when equal means are merged. Here one row is a state like any other, so merging is the only operation. Values that
//! are all equal have the variance 0 exactly, however they were split.
//!
//! | result | when |
//! | --- | --- |
//! | NULL | too few rows; for `corr`, `regr_r2`, `regr_slope` and `regr_intercept` also where the divisor is 0: all values (of x, for the last two) are equal, or differ by less than about 1e-154 |
//! | NaN | a value is NaN or infinite, or, of a function of pairs, the sum of squares of one side is past a DOUBLE |
//!
//! `regr_count` and the averages are what `count` and `avg` of the same rows are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::{correlation, covariance, regr, stddev, variance};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature};

use super::sliding::{SlidingWindow, WindowAggregate};

/// The functions of this file, under DataFusion's names.
pub(crate) fn aggregates() -> impl Iterator<Item = AggregateUDF> {
    [
        (variance::var_samp_udaf(), Statistic::VarSamp),
        (variance::var_pop_udaf(), Statistic::VarPop),
        (stddev::stddev_udaf(), Statistic::StddevSamp),
        (stddev::stddev_pop_udaf(), Statistic::StddevPop),
        (covariance::covar_samp_udaf(), Statistic::CovarSamp),
        (covariance::covar_pop_udaf(), Statistic::CovarPop),
        (correlation::corr_udaf(), Statistic::Corr),
        (regr::regr_slope_udaf(), Statistic::Slope),
        (regr::regr_intercept_udaf(), Statistic::Intercept),
        (regr::regr_count_udaf(), Statistic::Count),
        (regr::regr_r2_udaf(), Statistic::R2),
        (regr::regr_avgx_udaf(), Statistic::AvgX),
        (regr::regr_avgy_udaf(), Statistic::AvgY),
        (regr::regr_sxx_udaf(), Statistic::Sxx),
        (regr::regr_syy_udaf(), Statistic::Syy),
        (regr::regr_sxy_udaf(), Statistic::Sxy),
    ]
    .into_iter()
    .map(|(inner, statistic)| AggregateUDF::from(MomentsFunction { inner, statistic }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Statistic {
    VarSamp,
    VarPop,
    StddevSamp,
    StddevPop,
    CovarSamp,
    CovarPop,
    Corr,
    Slope,
    Intercept,
    Count,
    R2,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
}

impl Statistic {
    /// Whether it is one of a single argument, which is x.
    fn is_of_one(self) -> bool {
        matches!(self, Statistic::VarSamp | Statistic::VarPop | Statistic::StddevSamp | Statistic::StddevPop)
    }

    /// The number of columns of a state, each of eight bytes.
    fn state_columns(self) -> usize {
        if self.is_of_one() { 3 } else { 6 }
    }

    /// The value, unless it is the count. `None` is NULL.
    fn value(self, of: &Moments) -> Option<f64> {
        let n = of.count as f64;
        let at_least = |rows: u64, value: f64| (of.count >= rows).then_some(value);
        let of_pairs = |value: f64| if of.xx.is_finite() && of.yy.is_finite() { value } else { f64::NAN };
        let slope = of_pairs(of.xy / of.xx);
        let corr = of_pairs((of.xy / (of.xx.sqrt() * of.yy.sqrt())).clamp(-1.0, 1.0));
        let has_slope = of.count >= 2 && !is_zero(of.xx);
        let has_corr = has_slope && !is_zero(of.yy);
        match self {
            Statistic::VarSamp => at_least(2, of.xx / (n - 1.0)),
            Statistic::VarPop => at_least(1, of.xx / n),
            Statistic::StddevSamp => at_least(2, (of.xx / (n - 1.0)).sqrt()),
            Statistic::StddevPop => at_least(1, (of.xx / n).sqrt()),
            Statistic::CovarSamp => at_least(2, of_pairs(of.xy / (n - 1.0))),
            Statistic::CovarPop => at_least(1, of_pairs(of.xy / n)),
            Statistic::Corr => has_corr.then_some(corr),
            Statistic::R2 => has_corr.then_some(corr * corr),
            Statistic::Slope => has_slope.then_some(slope),
            Statistic::Intercept => has_slope.then_some(of.y - slope * of.x),
            Statistic::Count => Some(n),
            Statistic::AvgX => at_least(1, of.x),
            Statistic::AvgY => at_least(1, of.y),
            Statistic::Sxx => at_least(1, of.xx),
            Statistic::Syy => at_least(1, of.yy),
            Statistic::Sxy => at_least(1, of_pairs(of.xy)),
        }
    }

    fn values(self, all: &[Moments]) -> ArrayRef {
        match self {
            Statistic::Count => Arc::new(UInt64Array::from_iter_values(all.iter().map(|of| of.count))),
            _ => Arc::new(all.iter().map(|of| self.value(of)).collect::<Float64Array>()),
        }
    }

    /// The states of these rows. A row with a NULL is empty.
    fn of_rows(self, values: &[ArrayRef]) -> impl Fn(usize) -> Moments {
        let column = |at: usize| values[at].as_primitive::<Float64Type>().clone();
        // The functions of pairs are called with y before x.
        let (x, y) = if self.is_of_one() { (column(0), None) } else { (column(1), Some(column(0))) };
        move |row| match &y {
            Some(y) if x.is_valid(row) && y.is_valid(row) => Moments::from_row(x.value(row), y.value(row)),
            None if x.is_valid(row) => Moments::from_row(x.value(row), 0.0),
            _ => Moments::default(),
        }
    }

    fn of_states(self, states: &[ArrayRef]) -> impl Fn(usize) -> Moments {
        let counts = states[0].as_primitive::<UInt64Type>().clone();
        let moments: Vec<Float64Array> = states[1..].iter().map(|column| column.as_primitive().clone()).collect();
        move |row| {
            let count = if counts.is_valid(row) { counts.value(row) } else { 0 };
            match moments.as_slice() {
                [x, xx] => Moments { count, x: x.value(row), xx: xx.value(row), ..Moments::default() },
                all => {
                    let [x, y, xx, yy, xy] = [0, 1, 2, 3, 4].map(|at| all[at].value(row));
                    Moments { count, x, y, xx, yy, xy }
                }
            }
        }
    }

    fn states(self, all: &[Moments]) -> Vec<ArrayRef> {
        let column = |field: fn(&Moments) -> f64| Arc::new(Float64Array::from_iter_values(all.iter().map(field))) as ArrayRef;
        let counts: ArrayRef = Arc::new(UInt64Array::from_iter_values(all.iter().map(|of| of.count)));
        match self.is_of_one() {
            true => vec![counts, column(|of| of.x), column(|of| of.xx)],
            false => vec![counts, column(|of| of.x), column(|of| of.y), column(|of| of.xx), column(|of| of.yy), column(|of| of.xy)],
        }
    }
}

/// Whether a sum of squares is too small to divide by: what is left of its digits depends on the order of the rows.
fn is_zero(squares: f64) -> bool {
    squares < f64::MIN_POSITIVE
}

/// What is known of some rows.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u64,
    /// The means.
    x: f64,
    y: f64,
    /// The sums of the products of the distances from the means. NaN where a value is NaN or infinite.
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Moments {
    fn from_row(x: f64, y: f64) -> Self {
        let squares = |value: f64| if value.is_finite() { 0.0 } else { f64::NAN };
        Moments { count: 1, x, y, xx: squares(x), yy: squares(y), xy: squares(x) + squares(y) }
    }

    /// The parallel form of Welford's algorithm.
    fn merge(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let count = self.count + other.count;
        let (share, other_share) = (self.count as f64 / count as f64, other.count as f64 / count as f64);
        let (dx, dy) = (other.x - self.x, other.y - self.y);
        let weight = self.count as f64 * other_share;
        let mean = |mean: f64, other: f64, distance: f64| match distance.is_finite() {
            true => mean + distance * other_share,
            // The distance is past a DOUBLE, or one of the two is infinite.
            false => mean * share + other * other_share,
        };
        *self = Moments {
            count,
            x: mean(self.x, other.x, dx),
            y: mean(self.y, other.y, dy),
            xx: self.xx + other.xx + dx * dx * weight,
            yy: self.yy + other.yy + dy * dy * weight,
            xy: self.xy + other.xy + dx * dy * weight,
        };
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MomentsFunction {
    inner: Arc<AggregateUDF>,
    statistic: Statistic,
}

impl AggregateUDFImpl for MomentsFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(data_type)
    }

    /// With DISTINCT, all is DataFusion's.
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if args.is_distinct {
            return self.inner.state_fields(args);
        }
        let moments: &[&str] = match self.statistic.is_of_one() {
            true => &["mean", "m2"],
            false => &["mean_x", "mean_y", "m2_x", "m2_y", "m2_xy"],
        };
        let field = |name: &str, data_type| Arc::new(Field::new(format_state_name(args.name, name), data_type, true));
        let counts = std::iter::once(field("count", DataType::UInt64));
        Ok(counts.chain(moments.iter().map(|name| field(name, DataType::Float64))).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.inner.accumulator(args),
            false => Ok(Box::new(OfOne { statistic: self.statistic, moments: Moments::default() })),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.inner.create_sliding_accumulator(args),
            false => Ok(Box::new(SlidingWindow::new(self.statistic))),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(OfGroups { statistic: self.statistic, moments: Vec::new() }))
    }
}

impl WindowAggregate for Statistic {
    type Total = Moments;

    fn rows(&self, values: &[ArrayRef]) -> Vec<Moments> {
        (0..values[0].len()).map(self.of_rows(values)).collect()
    }

    fn join(&self, earlier: Moments, later: Moments) -> Moments {
        let mut joined = earlier;
        joined.merge(&later);
        joined
    }

    fn value(&self, total: Moments) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.values(&[total]), 0)
    }
}

/// The moments of one group.
#[derive(Debug)]
struct OfOne {
    statistic: Statistic,
    moments: Moments,
}

impl Accumulator for OfOne {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let row = self.statistic.of_rows(values);
        (0..values[0].len()).for_each(|at| self.moments.merge(&row(at)));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let state = self.statistic.of_states(states);
        (0..states[0].len()).for_each(|at| self.moments.merge(&state(at)));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.statistic.values(&[self.moments]), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.statistic.states(&[self.moments]).iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The moments of many groups.
#[derive(Debug)]
struct OfGroups {
    statistic: Statistic,
    moments: Vec<Moments>,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(&mut self, values: &[ArrayRef], groups: &[usize], only: Option<&BooleanArray>, total_groups: usize) -> Result<()> {
        self.moments.resize(total_groups, Moments::default());
        let row = self.statistic.of_rows(values);
        for (at, group) in groups.iter().enumerate() {
            if only.is_none_or(|only| only.is_valid(at) && only.value(at)) {
                self.moments[*group].merge(&row(at));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.moments.resize(total_groups, Moments::default());
        let state = self.statistic.of_states(states);
        groups.iter().enumerate().for_each(|(at, group)| self.moments[*group].merge(&state(at)));
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.statistic.values(&emit_to.take_needed(&mut self.moments)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.statistic.states(&emit_to.take_needed(&mut self.moments)))
    }

    fn convert_to_state(&self, values: &[ArrayRef], only: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each = OfGroups { statistic: self.statistic, moments: Vec::new() };
        let groups: Vec<usize> = (0..values[0].len()).collect();
        each.update_batch(values, &groups, only, groups.len())?;
        each.state(EmitTo::All)
    }

    /// With the states that they are handed on as, which are there beside them for a moment.
    fn size(&self) -> usize {
        let state = self.statistic.state_columns() * size_of::<f64>();
        size_of_val(self) + self.moments.capacity() * size_of::<Moments>() + self.moments.len() * state
    }
}

#[cfg(test)]
mod tests;
