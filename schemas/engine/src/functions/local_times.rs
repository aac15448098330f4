//! A time plus or minus an interval whose days and months are those of a zone, and the time at which a day begins
//! there, as PostgreSQL computes them. Arrow's own arithmetic and casts fail where the zone has the local time twice or
//! not at all. `plan/session_zone.rs` decides where they are used. They have no names in SQL.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::try_binary;
use arrow::datatypes::{
    ArrowTimestampType, DataType, Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::temporal_conversions::as_datetime;
use chrono::{Days, LocalResult, Months, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Returns the sum of a time and an interval of months, days and nanoseconds.
pub(crate) fn sum(zone: &Arc<str>) -> Arc<ScalarUDF> {
    InZone::function(Computed::Sum, zone)
}

/// Returns the difference of a time and an interval of months, days and nanoseconds.
pub(crate) fn difference(zone: &Arc<str>) -> Arc<ScalarUDF> {
    InZone::function(Computed::Difference, zone)
}

/// Returns the midnight of a date, in microseconds.
pub(crate) fn midnight(zone: &Arc<str>) -> Arc<ScalarUDF> {
    InZone::function(Computed::Midnight, zone)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Computed {
    Sum,
    Difference,
    Midnight,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InZone {
    computed: Computed,
    zone: Arc<str>,
    signature: Signature,
}

impl InZone {
    fn function(computed: Computed, zone: &Arc<str>) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(InZone { computed, zone: zone.clone(), signature: Signature::user_defined(Volatility::Immutable) }))
    }

    fn values(&self, arguments: &[ArrayRef]) -> Result<ArrayRef> {
        match (self.computed, arguments) {
            (Computed::Midnight, [dates]) => self.midnights(dates),
            (Computed::Sum | Computed::Difference, [times, intervals]) => match times.data_type() {
                DataType::Timestamp(TimeUnit::Second, _) => self.shifted::<TimestampSecondType>(times, intervals),
                DataType::Timestamp(TimeUnit::Millisecond, _) => self.shifted::<TimestampMillisecondType>(times, intervals),
                DataType::Timestamp(TimeUnit::Microsecond, _) => self.shifted::<TimestampMicrosecondType>(times, intervals),
                DataType::Timestamp(TimeUnit::Nanosecond, _) => self.shifted::<TimestampNanosecondType>(times, intervals),
                other => exec_err!("{} was called with {other}: expected a time", self.name()),
            },
            _ => exec_err!("{} was called with {} arguments", self.name(), arguments.len()),
        }
    }

    fn midnights(&self, dates: &ArrayRef) -> Result<ArrayRef> {
        let zone: Tz = self.zone.parse()?;
        let midnights: PrimitiveArray<TimestampMicrosecondType> = dates.as_primitive::<Date32Type>().try_unary(|date| {
            let midnight = Date32Type::to_naive_date_opt(date).and_then(|date| instant(date.and_time(NaiveTime::MIN), zone));
            midnight.and_then(|time| TimestampMicrosecondType::from_naive_datetime(time, None)).ok_or_else(out_of_range)
        })?;
        Ok(Arc::new(midnights.with_data_type(type_of_midnight())))
    }

    fn shifted<T: ArrowTimestampType>(&self, times: &ArrayRef, intervals: &ArrayRef) -> Result<ArrayRef> {
        let zone: Tz = self.zone.parse()?;
        let shifted: PrimitiveArray<T> =
            try_binary(times.as_primitive::<T>(), intervals.as_primitive::<IntervalMonthDayNanoType>(), |time, by| {
                let by = match self.computed {
                    Computed::Difference => by.checked_neg(),
                    Computed::Sum | Computed::Midnight => Some(by),
                };
                let shifted = as_datetime::<T>(time).zip(by).and_then(|(time, by)| shifted(time, by, zone));
                shifted.and_then(|time| T::from_naive_datetime(time, None)).ok_or_else(out_of_range)
            })?;
        Ok(Arc::new(shifted.with_data_type(times.data_type().clone())))
    }
}

impl ScalarUDFImpl for InZone {
    fn name(&self) -> &str {
        match self.computed {
            Computed::Sum => "sum_in_zone",
            Computed::Difference => "difference_in_zone",
            Computed::Midnight => "midnight_in_zone",
        }
    }

    /// As it was written.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let operator = if self.computed == Computed::Difference { " - " } else { " + " };
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect::<Vec<_>>().join(operator))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (self.computed, arguments) {
            (Computed::Midnight, _) => Ok(type_of_midnight()),
            (_, [time, _]) => Ok(time.clone()),
            (_, others) => exec_err!("{} was called with {} arguments: expected 2", self.name(), others.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let values = self.values(&ColumnarValue::values_to_arrays(&arguments.args)?)?;
        Ok(if is_constant { ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?) } else { ColumnarValue::Array(values) })
    }
}

fn type_of_midnight() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The time, in UTC, with the months, then the days added to what the clocks of the zone show, then the rest.
fn shifted(time: NaiveDateTime, by: IntervalMonthDayNano, zone: Tz) -> Option<NaiveDateTime> {
    let mut time = time;
    if by.months != 0 {
        let (local, months) = (local(time, zone)?, Months::new(by.months.unsigned_abs()));
        time = instant(if by.months > 0 { local.checked_add_months(months)? } else { local.checked_sub_months(months)? }, zone)?;
    }
    if by.days != 0 {
        time = instant(local(time, zone)?.checked_add_signed(TimeDelta::try_days(by.days.into())?)?, zone)?;
    }
    time.checked_add_signed(TimeDelta::nanoseconds(by.nanoseconds))
}

/// What the clocks of the zone show at a time in UTC.
fn local(time: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    time.checked_add_offset(zone.offset_from_utc_datetime(&time).fix())
}

/// The time, in UTC, at which the clocks of the zone show a local time. As in PostgreSQL, it is the later one where
/// they show it twice, and has the offset before the change where they skip it.
fn instant(local: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(only) => Some(only.naive_utc()),
        LocalResult::Ambiguous(_, later) => Some(later.naive_utc()),
        LocalResult::None => {
            let day_before = local.checked_sub_days(Days::new(1))?;
            local.checked_sub_offset(zone.offset_from_utc_datetime(&day_before).fix())
        }
    }
}

/// What Arrow's own arithmetic says.
fn out_of_range() -> ArrowError {
    ArrowError::ComputeError("Timestamp out of range".to_owned())
}
