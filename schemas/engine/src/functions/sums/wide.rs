//! The numbers in which sums are kept: wide enough for every sum of every number of events.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, Int64Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, sum};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, DecimalType, Field, FieldRef, Int64Type,
    UInt64Type, i256,
};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::utils::format_state_name;

/// The state of a sum of whole numbers: ten quintillions of them have fewer digits.
const OF_WHOLE_NUMBERS: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
/// Names the field of a state's carries.
const CARRIES: &str = "carries";

/// Returns the fields of the state of a sum of this type.
pub(crate) fn state_fields(name: &str, input: &DataType) -> Vec<FieldRef> {
    let types = match input {
        DataType::Decimal256(_, scale) => vec![("sum", of_decimals(*scale)), (CARRIES, DataType::Int64)],
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => {
            vec![("sum", of_decimals(*scale))]
        }
        _ => vec![("sum", OF_WHOLE_NUMBERS)],
    };
    let field = |(ending, data_type): (&str, DataType)| Arc::new(Field::new(format_state_name(name, ending), data_type, true));
    types.into_iter().map(field).collect()
}

/// Whether a field of a state row has carries.
pub(crate) fn is_carries(field: &Field) -> bool {
    *field.data_type() == DataType::Int64 && field.name().ends_with(&format_state_name("", CARRIES))
}

fn of_decimals(scale: i8) -> DataType {
    DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale)
}

/// A number that sums are kept in.
pub(crate) trait Wide: Copy + Default + Debug + Send + Sync + 'static {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// The values of a column that is summed up. What a NULL gives is not read.
    fn of_values(column: &ArrayRef) -> Result<Vec<Self>>;
    fn of_state(fields: &[ArrayRef]) -> Result<Vec<Self>>;
    /// The sum of a column, if it has a value.
    fn total(column: &ArrayRef) -> Result<Option<Self>> {
        let valid = Self::of_values(column)?.into_iter().enumerate().filter(|(row, _)| column.is_valid(*row));
        Ok(valid.map(|(_, value)| value).reduce(Self::plus))
    }
    /// Takes the sums over: what they take is not taken twice.
    fn state(sums: Vec<Self>, nulls: Option<NullBuffer>, sum_type: &DataType) -> Result<Vec<ArrayRef>>;
    /// The sums in the type of the result, and which it does not hold: these are NULL.
    fn narrowed(sums: &[Option<Self>], sum_type: &DataType) -> Result<(ArrayRef, BooleanArray)>;
}

/// Sums of whole numbers of 64 bits.
impl Wide for i128 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn of_values(column: &ArrayRef) -> Result<Vec<Self>> {
        Ok(match column.data_type() {
            DataType::Int64 => column.as_primitive::<Int64Type>().values().iter().map(|value| i128::from(*value)).collect(),
            DataType::UInt64 => column.as_primitive::<UInt64Type>().values().iter().map(|value| i128::from(*value)).collect(),
            DataType::Duration(_) => {
                cast(column, &DataType::Int64)?.as_primitive::<Int64Type>().values().iter().map(|value| i128::from(*value)).collect()
            }
            // A sum that has no bounds.
            _ => vec![0; column.len()],
        })
    }

    fn total(column: &ArrayRef) -> Result<Option<Self>> {
        let numbers = match column.data_type() {
            DataType::Int64 | DataType::UInt64 => column.clone(),
            DataType::Duration(_) => cast(column, &DataType::Int64)?,
            _ => return Ok((column.null_count() < column.len()).then_some(0)),
        };
        Ok(sum(cast(&numbers, &OF_WHOLE_NUMBERS)?.as_primitive::<Decimal128Type>()))
    }

    fn of_state(fields: &[ArrayRef]) -> Result<Vec<Self>> {
        match fields.first().and_then(|field| field.as_primitive_opt::<Decimal128Type>()) {
            Some(sums) => Ok(sums.values().to_vec()),
            None => exec_err!("the state of a sum of whole numbers is no Decimal128"),
        }
    }

    fn state(sums: Vec<Self>, nulls: Option<NullBuffer>, _: &DataType) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(OF_WHOLE_NUMBERS))])
    }

    fn narrowed(sums: &[Option<Self>], sum_type: &DataType) -> Result<(ArrayRef, BooleanArray)> {
        let values: ArrayRef = match sum_type {
            DataType::UInt64 => Arc::new(sums.iter().map(|sum| u64::try_from((*sum)?).ok()).collect::<UInt64Array>()),
            _ => Arc::new(sums.iter().map(|sum| i64::try_from((*sum)?).ok()).collect::<Int64Array>()),
        };
        let is_past = is_past(sums, &values);
        Ok((if values.data_type() == sum_type { values } else { cast(&values, sum_type)? }, is_past))
    }
}

/// Sums of decimals of at most 38 digits.
impl Wide for i256 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }

    fn of_values(column: &ArrayRef) -> Result<Vec<Self>> {
        if let Some(values) = column.as_primitive_opt::<Decimal128Type>() {
            return Ok(values.values().iter().map(|value| i256::from_i128(*value)).collect());
        }
        match column.data_type() {
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal256(_, scale) => {
                Ok(cast(column, &of_decimals(*scale))?.as_primitive::<Decimal256Type>().values().to_vec())
            }
            other => exec_err!("found {other}, expected decimals"),
        }
    }

    fn total(column: &ArrayRef) -> Result<Option<Self>> {
        let wide = cast(column, &of_decimals(scale_of(column.data_type())))?;
        Ok(sum(wide.as_primitive::<Decimal256Type>()))
    }

    fn of_state(fields: &[ArrayRef]) -> Result<Vec<Self>> {
        match fields.first().and_then(|field| field.as_primitive_opt::<Decimal256Type>()) {
            Some(sums) => Ok(sums.values().to_vec()),
            None => exec_err!("the state of a sum of decimals is no Decimal256"),
        }
    }

    fn state(sums: Vec<Self>, nulls: Option<NullBuffer>, sum_type: &DataType) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(Decimal256Array::new(sums.into(), nulls).with_data_type(of_decimals(scale_of(sum_type))))])
    }

    fn narrowed(sums: &[Option<Self>], sum_type: &DataType) -> Result<(ArrayRef, BooleanArray)> {
        let precision = match sum_type {
            DataType::Decimal32(precision, _) | DataType::Decimal64(precision, _) => *precision,
            DataType::Decimal128(precision, _) | DataType::Decimal256(precision, _) => *precision,
            other => return exec_err!("found {other}, expected a decimal"),
        };
        let scale = scale_of(sum_type);
        let fits = |sum: &i256| Decimal256Type::validate_decimal_precision(*sum, precision, scale).is_ok();
        let values: Decimal256Array = sums.iter().map(|sum| sum.filter(fits)).collect();
        let values: ArrayRef = Arc::new(values.with_data_type(DataType::Decimal256(precision, scale)));
        let is_past = is_past(sums, &values);
        Ok((if values.data_type() == sum_type { values } else { cast(&values, sum_type)? }, is_past))
    }
}

/// Sums of wider decimals: the sum, and how often it went past the greatest number of its 256 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    low: i256,
    carries: i64,
}

impl Default for Carried {
    fn default() -> Self {
        Self { low: i256::ZERO, carries: 0 }
    }
}

impl Wide for Carried {
    fn plus(self, other: Self) -> Self {
        let low = self.low.wrapping_add(other.low);
        let carry = match (self.low.is_negative(), other.low.is_negative(), low.is_negative()) {
            (false, false, true) => 1,
            (true, true, false) => -1,
            _ => 0,
        };
        Self { low, carries: self.carries + other.carries + carry }
    }

    fn minus(self, other: Self) -> Self {
        let low = self.low.wrapping_sub(other.low);
        let carry = match (self.low.is_negative(), other.low.is_negative(), low.is_negative()) {
            (false, true, true) => 1,
            (true, false, false) => -1,
            _ => 0,
        };
        Self { low, carries: self.carries - other.carries + carry }
    }

    fn of_values(column: &ArrayRef) -> Result<Vec<Self>> {
        Ok(i256::of_values(column)?.into_iter().map(|low| Self { low, carries: 0 }).collect())
    }

    fn of_state(fields: &[ArrayRef]) -> Result<Vec<Self>> {
        let [sums, carries] = fields else { return exec_err!("the state of a sum of wide decimals has {} fields", fields.len()) };
        let Some(carries) = carries.as_primitive_opt::<Int64Type>() else { return exec_err!("the carries of a sum are no Int64") };
        let sums = i256::of_state(std::slice::from_ref(sums))?.into_iter();
        // The format before had no carries.
        let carries = carries.iter().map(Option::unwrap_or_default);
        Ok(sums.zip(carries).map(|(low, carries)| Self { low, carries }).collect())
    }

    fn state(sums: Vec<Self>, nulls: Option<NullBuffer>, sum_type: &DataType) -> Result<Vec<ArrayRef>> {
        let carries: Vec<i64> = sums.iter().map(|sum| sum.carries).collect();
        let lows = sums.into_iter().map(|sum| sum.low).collect();
        let mut fields = i256::state(lows, nulls.clone(), sum_type)?;
        fields.push(Arc::new(Int64Array::new(carries.into(), nulls)));
        Ok(fields)
    }

    fn narrowed(sums: &[Option<Self>], sum_type: &DataType) -> Result<(ArrayRef, BooleanArray)> {
        let lows: Vec<Option<i256>> = sums.iter().map(|sum| sum.filter(|sum| sum.carries == 0).map(|sum| sum.low)).collect();
        let (values, _) = i256::narrowed(&lows, sum_type)?;
        let is_past = is_past(sums, &values);
        Ok((values, is_past))
    }
}

/// NULL where nothing was summed up.
pub(crate) fn nulls_of(counts: &[u64]) -> Option<NullBuffer> {
    counts.contains(&0).then(|| counts.iter().map(|count| *count > 0).collect())
}

fn is_past<W>(sums: &[Option<W>], values: &ArrayRef) -> BooleanArray {
    sums.iter().enumerate().map(|(row, sum)| Some(sum.is_some() && values.is_null(row))).collect()
}

fn scale_of(decimal: &DataType) -> i8 {
    match decimal {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => *scale,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}
