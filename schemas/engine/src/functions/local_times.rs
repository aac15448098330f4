//! A time plus or minus an interval whose days and months are those of a zone, and the time at which the clocks of the
//! zone show a local time, as PostgreSQL computes them. Arrow's own arithmetic and casts fail where the zone has the
//! local time twice or not at all. `plan/session_zone.rs` and `plan/named_zones.rs` decide where they are used. They
//! have no names in SQL.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray, PrimitiveBuilder};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::compute::{CastOptions, cast_with_options, try_binary};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::error::ArrowError;
use arrow::temporal_conversions::as_datetime;
use chrono::{Days, LocalResult, Months, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use types::tiles::Micros;

const UTC: &str = "UTC";

/// Returns the sum of a time and an interval of months, days and nanoseconds.
pub(crate) fn sum(zone: &Arc<str>) -> Arc<ScalarUDF> {
    InZone::function(Computed::Sum, zone)
}

/// Returns the difference of a time and an interval of months, days and nanoseconds.
pub(crate) fn difference(zone: &Arc<str>) -> Arc<ScalarUDF> {
    InZone::function(Computed::Difference, zone)
}

/// Returns the time of a local time, of a text, or of the midnight of a date, or the times of an array of these. Of a
/// time, it returns the one that has its local time. Where it cannot be computed, it is NULL if `safe` and an error
/// otherwise.
pub(crate) fn instant(zone: &Arc<str>, unit: TimeUnit, safe: bool) -> Arc<ScalarUDF> {
    InZone::function(Computed::Instant { unit, safe }, zone)
}

/// Reads a text as a time; one without an offset is a local time of the zone. `None` if it is not a time.
pub fn time_in_zone(text: &str, zone: &str) -> Option<Micros> {
    TimestampMicrosecondType::from_naive_datetime(instant_of_text(text, zone.parse().ok()?).ok()?, None)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Computed {
    Sum,
    Difference,
    Instant { unit: TimeUnit, safe: bool },
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
            (Computed::Instant { unit, safe }, [local]) => self.instants(local, unit, safe),
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

    fn instants(&self, local: &ArrayRef, unit: TimeUnit, safe: bool) -> Result<ArrayRef> {
        if let DataType::List(item) = local.data_type() {
            let list = local.as_list::<i32>();
            let instants = self.instants(list.values(), unit, safe)?;
            let list = ListArray::try_new(item_of_instants(item, unit), list.offsets().clone(), instants, list.nulls().cloned())?;
            return Ok(Arc::new(list));
        }
        match unit {
            TimeUnit::Second => self.instants_in_unit::<TimestampSecondType>(local, safe),
            TimeUnit::Millisecond => self.instants_in_unit::<TimestampMillisecondType>(local, safe),
            TimeUnit::Microsecond => self.instants_in_unit::<TimestampMicrosecondType>(local, safe),
            TimeUnit::Nanosecond => self.instants_in_unit::<TimestampNanosecondType>(local, safe),
        }
    }

    fn instants_in_unit<T: ArrowTimestampType>(&self, local: &ArrayRef, safe: bool) -> Result<ArrayRef> {
        let zone: Tz = self.zone.parse()?;
        let options = CastOptions { safe, ..CastOptions::default() };
        let instants = if local.data_type().is_string() {
            let texts = cast_with_options(local, &DataType::Utf8, &options)?;
            let texts = texts.as_string::<i32>();
            collected::<T>(texts, safe, |row| instant_of_text(texts.value(row), zone))?
        } else {
            let is_time = matches!(local.data_type(), DataType::Timestamp(_, Some(_)));
            let times = cast_with_options(local, &T::DATA_TYPE, &options)?;
            let times = times.as_primitive::<T>();
            collected::<T>(times, safe, |row| {
                let time = as_datetime::<T>(times.value(row));
                let local = if is_time { time.and_then(|time| local_of_instant(time, zone)) } else { time };
                local.and_then(|local| instant_of_local(local, zone)).ok_or_else(out_of_range)
            })?
        };
        Ok(Arc::new(instants.with_timezone(UTC)))
    }

    fn shifted<T: ArrowTimestampType>(&self, times: &ArrayRef, intervals: &ArrayRef) -> Result<ArrayRef> {
        let zone: Tz = self.zone.parse()?;
        let shifted: PrimitiveArray<T> =
            try_binary(times.as_primitive::<T>(), intervals.as_primitive::<IntervalMonthDayNanoType>(), |time, by| {
                let by = match self.computed {
                    Computed::Difference => by.checked_neg(),
                    Computed::Sum | Computed::Instant { .. } => Some(by),
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
            Computed::Instant { .. } => "instant_in_zone",
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
            (Computed::Instant { unit, .. }, [local]) => Ok(type_of_instants(local, unit)),
            (Computed::Sum | Computed::Difference, [time, _]) => Ok(time.clone()),
            (_, others) => exec_err!("{} was called with {} arguments", self.name(), others.len()),
        }
    }

    /// As the operator's or the cast's: it can be NULL where an argument can.
    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_safe = matches!(self.computed, Computed::Instant { safe: true, .. });
        let is_nullable = is_safe || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let values = self.values(&ColumnarValue::values_to_arrays(&arguments.args)?)?;
        Ok(if is_constant { ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?) } else { ColumnarValue::Array(values) })
    }
}

/// The type of the times of values of this type.
fn type_of_instants(local: &DataType, unit: TimeUnit) -> DataType {
    match local {
        DataType::List(item) => DataType::List(item_of_instants(item, unit)),
        _ => DataType::Timestamp(unit, Some(UTC.into())),
    }
}

fn item_of_instants(local: &Field, unit: TimeUnit) -> FieldRef {
    Arc::new(local.clone().with_data_type(type_of_instants(local.data_type(), unit)).with_nullable(true))
}

/// The time of each row that is not NULL.
fn collected<T: ArrowTimestampType>(
    local: &dyn Array,
    safe: bool,
    instant: impl Fn(usize) -> Result<NaiveDateTime, ArrowError>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    let mut instants = PrimitiveBuilder::<T>::with_capacity(local.len());
    for row in 0..local.len() {
        if local.is_null(row) {
            instants.append_null();
            continue;
        }
        match instant(row).and_then(|time| T::from_naive_datetime(time, None).ok_or_else(out_of_range)) {
            Ok(time) => instants.append_value(time),
            Err(_) if safe => instants.append_null(),
            Err(error) => return Err(error),
        }
    }
    Ok(instants.finish())
}

/// The time, in UTC, with the months, then the days added to what the clocks of the zone show, then the rest.
fn shifted(time: NaiveDateTime, by: IntervalMonthDayNano, zone: Tz) -> Option<NaiveDateTime> {
    let mut time = time;
    if by.months != 0 {
        let (local, months) = (local_of_instant(time, zone)?, Months::new(by.months.unsigned_abs()));
        time = instant_of_local(if by.months > 0 { local.checked_add_months(months)? } else { local.checked_sub_months(months)? }, zone)?;
    }
    if by.days != 0 {
        time = instant_of_local(local_of_instant(time, zone)?.checked_add_signed(TimeDelta::try_days(by.days.into())?)?, zone)?;
    }
    time.checked_add_signed(TimeDelta::nanoseconds(by.nanoseconds))
}

/// What the clocks of the zone show at a time in UTC.
fn local_of_instant(time: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    time.checked_add_offset(zone.offset_from_utc_datetime(&time).fix())
}

/// The time, in UTC, at which the clocks of the zone show a local time. As in PostgreSQL, it is the later one where
/// they show it twice, and has the offset before the change where they skip it.
fn instant_of_local(local: NaiveDateTime, zone: Tz) -> Option<NaiveDateTime> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(only) => Some(only.naive_utc()),
        LocalResult::Ambiguous(_, later) => Some(later.naive_utc()),
        LocalResult::None => {
            let day_before = local.checked_sub_days(Days::new(1))?;
            local.checked_sub_offset(zone.offset_from_utc_datetime(&day_before).fix())
        }
    }
}

/// The time, in UTC, of a text.
fn instant_of_text(text: &str, zone: Tz) -> Result<NaiveDateTime, ArrowError> {
    string_to_datetime(&zone, text).map(|time| time.naive_utc()).or_else(|_| {
        // If only UTC can read it, it is a local time that the zone has twice or not at all.
        let local = string_to_datetime(&Utc, text)?.naive_utc();
        instant_of_local(local, zone).ok_or_else(out_of_range)
    })
}

/// What Arrow's own arithmetic says.
fn out_of_range() -> ArrowError {
    ArrowError::ComputeError("Timestamp out of range".to_owned())
}
