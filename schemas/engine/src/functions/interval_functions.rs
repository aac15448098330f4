//! Functions of PostgreSQL that return intervals, in queries: `make_interval`, `age` and `justify_..`, the product and
//! the quotient of an interval and a number, and an interval whose seconds are counted.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use chrono::{DateTime, Datelike};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use types::{Error, Reason};

/// The arguments of `make_interval`, in their order.
pub const PARTS_OF_INTERVAL: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
pub const MAKE_INTERVAL: &str = "make_interval";

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const DAY_NANOSECONDS: i64 = 86_400_000_000_000;
const DAY_SECONDS: f64 = 86_400.0;
/// As many as a month has where it is made of days.
const DAYS_OF_MONTH: i64 = 30;

/// Returns those that a query calls by their names.
pub fn interval_functions() -> [ScalarUDF; 5] {
    use IntervalFunction::{Age, JustifyDays, JustifyHours, JustifyInterval, Make};
    [Make, Age, JustifyHours, JustifyDays, JustifyInterval].map(IntervalFunction::function)
}

/// Returns the function that multiplies an interval by a number.
pub fn interval_product() -> ScalarUDF {
    IntervalFunction::Product.function()
}

/// Returns the function that divides an interval by a number.
pub fn interval_quotient() -> ScalarUDF {
    IntervalFunction::Quotient.function()
}

/// Returns the function that counts whole years of an interval as 365.25 days each.
pub(crate) fn years_as_days() -> ScalarUDF {
    IntervalFunction::YearsAsDays.function()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalFunction {
    Make,
    /// Of two local times, the later one first.
    Age,
    JustifyHours,
    JustifyDays,
    JustifyInterval,
    Product,
    Quotient,
    YearsAsDays,
}

impl IntervalFunction {
    fn function(self) -> ScalarUDF {
        ScalarUDF::from(IntervalUdf { function: self, signature: Signature::user_defined(Volatility::Immutable) })
    }

    fn arguments(self) -> Vec<DataType> {
        match self {
            Self::Make => {
                let mut parts = vec![DataType::Int64; PARTS_OF_INTERVAL.len() - 1];
                parts.push(DataType::Float64);
                parts
            }
            Self::Age => vec![TIME, TIME],
            Self::JustifyHours | Self::JustifyDays | Self::JustifyInterval | Self::YearsAsDays => vec![INTERVAL],
            Self::Product | Self::Quotient => vec![INTERVAL, DataType::Float64],
        }
    }

    /// Of arguments that are not NULL; `None` for one that is too large.
    fn interval(self, arguments: &[ArrayRef], row: usize) -> Result<Option<IntervalMonthDayNano>> {
        let integer = |index: usize| arguments[index].as_primitive::<Int64Type>().value(row);
        let number = |index: usize| arguments[index].as_primitive::<Float64Type>().value(row);
        let time = |index: usize| arguments[index].as_primitive::<TimestampMicrosecondType>().value(row);
        let interval = |index: usize| arguments[index].as_primitive::<IntervalMonthDayNanoType>().value(row);
        Ok(match self {
            Self::Make => made([integer(0), integer(1), integer(2), integer(3), integer(4), integer(5)], number(6)),
            Self::Age => age(time(0), time(1)),
            Self::JustifyHours => Justified::new(interval(0)).with_days().with_one_sign_of_days().interval(),
            Self::JustifyDays => Justified::new(interval(0)).with_months().with_one_sign_of_months(false).interval(),
            Self::JustifyInterval => {
                let justified = Justified::new(interval(0)).with_days().with_months();
                justified.with_one_sign_of_months(true).with_one_sign_of_days().interval()
            }
            Self::Product => scaled(interval(0), |part| part * number(1)),
            Self::Quotient if number(1) == 0.0 => return Err(ArrowError::DivideByZero.into()),
            Self::Quotient => scaled(interval(0), |part| part / number(1)),
            Self::YearsAsDays => with_years_as_days(interval(0)),
        })
    }
}

fn made([years, months, weeks, days, hours, minutes]: [i64; 6], seconds: f64) -> Option<IntervalMonthDayNano> {
    let months = years.checked_mul(12)?.checked_add(months)?;
    let days = weeks.checked_mul(7)?.checked_add(days)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let nanoseconds = minutes.checked_mul(60_000_000_000)?.checked_add(nanoseconds_of(seconds * 1e6)?)?;
    Some(IntervalMonthDayNano::new(months.try_into().ok()?, days.try_into().ok()?, nanoseconds))
}

/// The years, months and days between two times, in microseconds since 1970, and what is left of a day.
fn age(later: i64, earlier: i64) -> Option<IntervalMonthDayNano> {
    if later < earlier {
        let IntervalMonthDayNano { months, days, nanoseconds } = age(earlier, later)?;
        return Some(IntervalMonthDayNano::new(-months, -days, -nanoseconds));
    }
    let (from, to) = (DateTime::from_timestamp_micros(earlier)?, DateTime::from_timestamp_micros(later)?);
    let mut nanoseconds = later.rem_euclid(86_400_000_000) * 1_000 - earlier.rem_euclid(86_400_000_000) * 1_000;
    let mut days = i64::from(to.day()) - i64::from(from.day());
    let mut months = 12 * (i64::from(to.year()) - i64::from(from.year())) + i64::from(to.month()) - i64::from(from.month());
    if nanoseconds < 0 {
        nanoseconds += DAY_NANOSECONDS;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(from.num_days_in_month());
        months -= 1;
    }
    Some(IntervalMonthDayNano::new(months.try_into().ok()?, days.try_into().ok()?, nanoseconds))
}

/// What is left of a month counts as days, of which it has 30, and what is left of a day as hours.
fn scaled(interval: IntervalMonthDayNano, scale: impl Fn(f64) -> f64) -> Option<IntervalMonthDayNano> {
    let in_micros = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
    let (months, days) = (scale(interval.months.into()), scale(interval.days.into()));
    let days_of_month = in_micros(months.fract() * DAYS_OF_MONTH as f64);
    let seconds = in_micros((days.fract() + days_of_month.fract()) * DAY_SECONDS);
    let days_of_seconds = (seconds / DAY_SECONDS).trunc();
    let rest = seconds - days_of_seconds * DAY_SECONDS;
    let nanoseconds = nanoseconds_of(scale((interval.nanoseconds / 1_000) as f64) + rest * 1e6)?;
    Some(IntervalMonthDayNano::new(whole(months)?, whole(days.trunc() + days_of_month.trunc() + days_of_seconds)?, nanoseconds))
}

fn with_years_as_days(interval: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let years = interval.months / 12;
    let days = interval.days.checked_add(years.checked_mul(365)?)?.checked_add(years / 4)?;
    let nanoseconds = interval.nanoseconds.checked_add(i64::from(years % 4) * (DAY_NANOSECONDS / 4))?;
    Some(IntervalMonthDayNano::new(interval.months % 12, days, nanoseconds))
}

fn whole(number: f64) -> Option<i32> {
    let whole = number.trunc();
    (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole).then_some(whole as i32)
}

fn nanoseconds_of(micros: f64) -> Option<i64> {
    // Beyond 9e15 a DOUBLE has no room for each of them.
    (micros.abs() < 9e15).then(|| micros.round_ties_even() as i64 * 1_000)
}

struct Justified {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl Justified {
    fn new(interval: IntervalMonthDayNano) -> Self {
        Self { months: interval.months.into(), days: interval.days.into(), nanoseconds: interval.nanoseconds }
    }

    fn with_days(self) -> Self {
        let Self { months, days, nanoseconds } = self;
        Self { months, days: days + nanoseconds / DAY_NANOSECONDS, nanoseconds: nanoseconds % DAY_NANOSECONDS }
    }

    fn with_months(self) -> Self {
        let Self { months, days, nanoseconds } = self;
        Self { months: months + days / DAYS_OF_MONTH, days: days % DAYS_OF_MONTH, nanoseconds }
    }

    /// `with_time`: whether the time of a day that is 0 counts.
    fn with_one_sign_of_months(mut self, with_time: bool) -> Self {
        let rest = if self.days == 0 && with_time { self.nanoseconds } else { self.days };
        if self.months.signum() * rest.signum() < 0 {
            let sign = self.months.signum();
            self.months -= sign;
            self.days += sign * DAYS_OF_MONTH;
        }
        self
    }

    fn with_one_sign_of_days(mut self) -> Self {
        let sign = self.days.signum();
        if sign * self.nanoseconds.signum() < 0 {
            self.days -= sign;
            self.nanoseconds += sign * DAY_NANOSECONDS;
        }
        self
    }

    fn interval(self) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(self.months.try_into().ok()?, self.days.try_into().ok()?, self.nanoseconds))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalUdf {
    function: IntervalFunction,
    signature: Signature,
}

impl ScalarUDFImpl for IntervalUdf {
    fn name(&self) -> &str {
        match self.function {
            IntervalFunction::Make => MAKE_INTERVAL,
            IntervalFunction::Age => "age",
            IntervalFunction::JustifyHours => "justify_hours",
            IntervalFunction::JustifyDays => "justify_days",
            IntervalFunction::JustifyInterval => "justify_interval",
            IntervalFunction::Product => "interval_product",
            IntervalFunction::Quotient => "interval_quotient",
            IntervalFunction::YearsAsDays => "years_as_days",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let expected = self.function.arguments();
        if given.len() != expected.len() {
            return plan_err!("{} was called with {} arguments: expected {}", self.name(), given.len(), expected.len());
        }
        Ok(expected)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let rows = arrays.first().map_or(0, |array| array.len());
        let intervals = (0..rows).map(|row| -> Result<Option<IntervalMonthDayNano>> {
            if arrays.iter().any(|array| array.is_null(row)) {
                return Ok(None);
            }
            let too_large = || Error::input("an interval is too large").with_reason(Reason::TimeOutOfRange);
            Ok(Some(self.function.interval(&arrays, row)?.ok_or_else(too_large)?))
        });
        let intervals = IntervalMonthDayNanoArray::from(intervals.collect::<Result<Vec<_>>>()?);
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&intervals, 0)?),
            false => ColumnarValue::Array(Arc::new(intervals)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn interval(months: i32, days: i32, nanoseconds: i64) -> Option<IntervalMonthDayNano> {
        Some(IntervalMonthDayNano::new(months, days, nanoseconds))
    }

    #[test]
    fn parts_of_a_product_go_to_days_and_hours() {
        let parts = IntervalMonthDayNano::new;
        assert_eq!(scaled(parts(1, 0, 0), |part| part * 1.5), interval(1, 15, 0));
        assert_eq!(scaled(parts(0, 1, 0), |part| part / 2.0), interval(0, 0, 12 * HOUR));
        assert_eq!(scaled(parts(0, 0, HOUR), |part| part * -2.5), interval(0, 0, -5 * HOUR / 2));
        assert_eq!(scaled(parts(0, 3, 0), |part| part * 2.0), interval(0, 6, 0));
        assert_eq!(scaled(parts(0, i32::MAX, 0), |part| part * 2.0), None);
    }

    #[test]
    fn a_year_of_an_interval_has_365_days_and_six_hours() {
        let parts = IntervalMonthDayNano::new;
        assert_eq!(with_years_as_days(parts(14, 1, HOUR)), interval(2, 366, 7 * HOUR));
        assert_eq!(with_years_as_days(parts(-25, 0, 0)), interval(-1, -730, -12 * HOUR));
        assert_eq!(with_years_as_days(parts(11, 400, 0)), interval(11, 400, 0));
        assert_eq!(with_years_as_days(parts(2_400_012, 0, 0)), interval(0, 73_050_365, 6 * HOUR));
        assert_eq!(with_years_as_days(parts(i32::MAX, 0, 0)), None);
    }

    #[test]
    fn hours_are_justified_to_days_and_days_to_months() {
        let parts = |months, days, nanoseconds| Justified::new(IntervalMonthDayNano::new(months, days, nanoseconds));
        assert_eq!(parts(0, 0, 36 * HOUR).with_days().with_one_sign_of_days().interval(), interval(0, 1, 12 * HOUR));
        assert_eq!(parts(0, 1, -HOUR).with_days().with_one_sign_of_days().interval(), interval(0, 0, 23 * HOUR));
        assert_eq!(parts(0, 40, 0).with_months().with_one_sign_of_months(false).interval(), interval(1, 10, 0));
        assert_eq!(parts(1, -40, 0).with_months().with_one_sign_of_months(false).interval(), interval(0, -10, 0));
    }

    #[test]
    fn an_age_counts_months_and_then_days_of_the_earlier_one() {
        let micros = |text: &str| text.parse::<DateTime<chrono::Utc>>().unwrap().timestamp_micros();
        let between = |later: &str, earlier: &str| age(micros(later), micros(earlier));
        assert_eq!(between("2026-03-31T00:00:00Z", "2026-01-15T00:00:00Z"), interval(2, 16, 0));
        assert_eq!(between("2026-03-01T00:00:00Z", "2026-01-31T12:00:00Z"), interval(1, 0, 12 * HOUR));
        assert_eq!(between("2026-01-15T00:00:00Z", "2026-03-31T00:00:00Z"), interval(-2, -16, 0));
    }
}
