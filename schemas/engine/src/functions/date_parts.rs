//! `date_part` with what PostgreSQL has and DataFusion's lacks: the fraction of seconds and milliseconds, as a DOUBLE,
//! and decades, centuries and millennia. All other parts are DataFusion's.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::{FunctionCall, Wrapped};

const MINUTE_NANOSECONDS: i64 = 60_000_000_000;

pub(crate) fn date_part() -> ScalarUDF {
    ScalarUDF::from(Wrapped { inner: datetime::date_part(), call: PartsOfPostgresql })
}

/// Whether a call asks for one of the parts that are not DataFusion's.
pub(crate) fn is_part_of_postgresql(call: &ScalarFunction) -> bool {
    let is_such = |name: &Expr| matches!(name, Expr::Literal(name, _) if PartOfTime::of_call(Some(name)).is_some());
    call.func.name() == datetime::date_part().name() && call.args.first().is_some_and(is_such)
}

/// The parts that are not DataFusion's.
#[derive(Debug, Clone, Copy)]
enum PartOfTime {
    Second,
    Millisecond,
    Decade,
    Century,
    Millennium,
}

impl PartOfTime {
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => Self::Millisecond,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "cents" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennium" | "millennia" | "millenium" => Self::Millennium,
            _ => return None,
        })
    }

    /// The part of a call, if it is one of these.
    fn of_call(name: Option<&ScalarValue>) -> Option<Self> {
        name.and_then(|name| name.try_as_str().flatten()).and_then(Self::named)
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Second | Self::Millisecond => DataType::Float64,
            Self::Decade | Self::Century | Self::Millennium => DataType::Int32,
        }
    }

    /// How many years it has.
    fn years(self) -> i32 {
        match self {
            Self::Millennium => 1_000,
            Self::Century => 100,
            _ => 10,
        }
    }

    /// Of a year, in which 0 is the one before the year 1. The first century begins with the year 1, the first decade
    /// with the year 0.
    fn of_year(self, year: i32) -> i32 {
        let years = self.years();
        match self {
            Self::Century | Self::Millennium if year > 0 => (year - 1) / years + 1,
            Self::Century | Self::Millennium => year / years - 1,
            _ => year.div_euclid(years),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PartsOfPostgresql;

impl FunctionCall for PartsOfPostgresql {
    fn field(&self, inner: &ScalarUDF, arguments: &ReturnFieldArgs<'_>) -> Option<FieldRef> {
        let part = PartOfTime::of_call(arguments.scalar_arguments.first().copied().flatten())?;
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Some(Arc::new(Field::new(inner.name(), part.data_type(), is_nullable)))
    }

    fn call(&self, inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let part = match arguments.args.first() {
            Some(ColumnarValue::Scalar(name)) => PartOfTime::of_call(Some(name)),
            _ => None,
        };
        let parts = KnownParts { inner, arguments: &arguments };
        match (part, arguments.args.get(1)) {
            (Some(part), Some(ColumnarValue::Array(times))) => Ok(ColumnarValue::Array(parts.part(part, times)?)),
            (Some(part), Some(ColumnarValue::Scalar(time))) => {
                let of_time = parts.part(part, &time.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&of_time, 0)?))
            }
            (Some(_), None) => exec_err!("date_part was called with 1 argument: expected 2"),
            (None, _) => inner.invoke_with_args(arguments),
        }
    }
}

/// Computes parts from those that DataFusion's function knows.
struct KnownParts<'a> {
    inner: &'a ScalarUDF,
    arguments: &'a ScalarFunctionArgs,
}

impl KnownParts<'_> {
    fn inner_part(&self, name: &str, time: &ArrayRef, data_type: DataType) -> Result<ArrayRef> {
        let return_field = Arc::new(Field::new(self.inner.name(), data_type, true));
        let args = vec![ColumnarValue::Scalar(ScalarValue::from(name)), ColumnarValue::Array(Arc::clone(time))];
        self.inner.invoke_with_args(ScalarFunctionArgs { args, return_field, ..self.arguments.clone() })?.into_array(time.len())
    }

    /// How many nanoseconds of its minute have passed.
    fn nanoseconds(&self, time: &ArrayRef) -> Result<Int64Array> {
        if let DataType::Interval(_) = time.data_type() {
            let whole = cast(time, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            return Ok(whole.as_primitive::<IntervalMonthDayNanoType>().unary(|interval| interval.nanoseconds % MINUTE_NANOSECONDS));
        }
        Ok(self.inner_part("nanosecond", time, DataType::Int64)?.as_primitive::<Int64Type>().clone())
    }

    fn part(&self, part: PartOfTime, time: &ArrayRef) -> Result<ArrayRef> {
        let microseconds_in = match part {
            PartOfTime::Second => 1_000_000.0,
            PartOfTime::Millisecond => 1_000.0,
            PartOfTime::Decade | PartOfTime::Century | PartOfTime::Millennium => {
                let years = self.inner_part("year", time, DataType::Int32)?;
                let is_interval = matches!(time.data_type(), DataType::Interval(_));
                let of_years = |years: i32| if is_interval { years / part.years() } else { part.of_year(years) };
                let parts: Int32Array = years.as_primitive::<Int32Type>().unary(of_years);
                return Ok(Arc::new(parts));
            }
        };
        let fraction = |nanoseconds: i64| (nanoseconds / 1_000) as f64 / microseconds_in;
        let parts: Float64Array = self.nanoseconds(time)?.unary::<_, Float64Type>(fraction);
        Ok(Arc::new(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_begin_with_the_year_0_and_centuries_with_the_year_1() {
        for (year, decade, century, millennium) in [
            (2026, 202, 21, 3),
            (2001, 200, 21, 3),
            (2000, 200, 20, 2),
            (1, 0, 1, 1),
            (0, 0, -1, -1),
            (-1, -1, -1, -1),
            (-100, -10, -2, -1),
        ] {
            let found = [PartOfTime::Decade, PartOfTime::Century, PartOfTime::Millennium].map(|part| part.of_year(year));
            assert_eq!(found, [decade, century, millennium], "{year}");
        }
    }
}
