//! `date_part` in queries, with what PostgreSQL has and DataFusion's lacks: the fraction of seconds and milliseconds,
//! as a DOUBLE, and decades, centuries and millennia. All other parts are DataFusion's.
//!
//! Definitions have DataFusion's function, because states may keep what it returned.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

const MINUTE_NANOSECONDS: i64 = 60_000_000_000;

/// Returns the function for the sessions of queries.
pub fn date_part() -> ScalarUDF {
    ScalarUDF::from(DatePart { inner: datetime::date_part() })
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
struct DatePart {
    inner: Arc<ScalarUDF>,
}

impl DatePart {
    /// A part that DataFusion knows.
    fn inner_part(&self, name: &str, time: &ArrayRef, data_type: DataType, arguments: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let return_field = Arc::new(Field::new(self.name(), data_type, true));
        let args = vec![ColumnarValue::Scalar(ScalarValue::from(name)), ColumnarValue::Array(Arc::clone(time))];
        self.inner.invoke_with_args(ScalarFunctionArgs { args, return_field, ..arguments.clone() })?.into_array(time.len())
    }

    /// How many nanoseconds of its minute have passed.
    fn nanoseconds(&self, time: &ArrayRef, arguments: &ScalarFunctionArgs) -> Result<Int64Array> {
        if let DataType::Interval(_) = time.data_type() {
            let whole = cast(time, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            return Ok(whole.as_primitive::<IntervalMonthDayNanoType>().unary(|interval| interval.nanoseconds % MINUTE_NANOSECONDS));
        }
        Ok(self.inner_part("nanosecond", time, DataType::Int64, arguments)?.as_primitive::<Int64Type>().clone())
    }

    fn part(&self, part: PartOfTime, time: &ArrayRef, arguments: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let microseconds_in = match part {
            PartOfTime::Second => 1_000_000.0,
            PartOfTime::Millisecond => 1_000.0,
            PartOfTime::Decade | PartOfTime::Century | PartOfTime::Millennium => {
                let years = self.inner_part("year", time, DataType::Int32, arguments)?;
                let is_interval = matches!(time.data_type(), DataType::Interval(_));
                let of_years = |years: i32| if is_interval { years / part.years() } else { part.of_year(years) };
                let parts: Int32Array = years.as_primitive::<Int32Type>().unary(of_years);
                return Ok(Arc::new(parts));
            }
        };
        let fraction = |nanoseconds: i64| (nanoseconds / 1_000) as f64 / microseconds_in;
        let parts: Float64Array = self.nanoseconds(time, arguments)?.unary::<_, Float64Type>(fraction);
        Ok(Arc::new(parts))
    }
}

impl ScalarUDFImpl for DatePart {
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

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match PartOfTime::of_call(arguments.scalar_arguments.first().copied().flatten()) {
            Some(part) => {
                let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
                Ok(Arc::new(Field::new(self.name(), part.data_type(), is_nullable)))
            }
            None => self.inner.return_field_from_args(arguments),
        }
    }

    fn preimage(&self, arguments: &[Expr], literal: &Expr, context: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(arguments, literal, context)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let part = match arguments.args.first() {
            Some(ColumnarValue::Scalar(name)) => PartOfTime::of_call(Some(name)),
            _ => None,
        };
        match (part, arguments.args.get(1)) {
            (Some(part), Some(ColumnarValue::Array(times))) => Ok(ColumnarValue::Array(self.part(part, times, &arguments)?)),
            (Some(part), Some(ColumnarValue::Scalar(time))) => {
                let of_time = self.part(part, &time.to_array()?, &arguments)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&of_time, 0)?))
            }
            (Some(_), None) => exec_err!("date_part was called with 1 argument: expected 2"),
            (None, _) => self.inner.invoke_with_args(arguments),
        }
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
