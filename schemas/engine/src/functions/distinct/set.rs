//! The distinct values in states of `count(DISTINCT x)`, kept for the next query of the same key: a million values are
//! inserted once, and later ones are added to them.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::{DataType, FieldRef};
use arrow_row::{RowConverter, Rows, SortField};
use hashbrown::{HashSet, HashTable};
use xxhash_rust::xxh3::xxh3_64;

use crate::functions::state_bytes::item_bytes;
use types::sql_types::one_zero;
use types::{Error, Result};

/// This many values are encoded together.
const ENCODED_AT_ONCE: usize = 65_536;

/// Values by their bytes in row format. The same value has the same bytes in every set of its type.
pub(crate) struct DistinctSet {
    converter: RowConverter,
    /// The bytes of all values, one after the other.
    bytes: Vec<u8>,
    /// Where each value's bytes end.
    ends: Vec<usize>,
    /// Indices of values.
    known: HashTable<u32>,
    /// The size of the values as `max_state_bytes` counts it.
    state_bytes: u64,
}

/// What a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DistinctSize {
    pub(crate) values: i64,
    /// As `max_state_bytes` counts them.
    pub(crate) bytes: u64,
}

impl DistinctSet {
    /// An empty set for the states of a `count(DISTINCT x)` with these fields. `None` if they cannot be told apart by
    /// their bytes.
    pub(crate) fn of_fields(fields: &[FieldRef]) -> Option<Self> {
        let field = fields.first()?;
        let DataType::List(item) = field.data_type() else { return None };
        if matches!(item.data_type(), DataType::Dictionary(_, _) | DataType::Null) {
            return None;
        }
        let converter = RowConverter::new(vec![SortField::new(item.data_type().clone())]).ok()?;
        Some(Self { converter, bytes: Vec::new(), ends: Vec::new(), known: HashTable::new(), state_bytes: 0 })
    }

    /// Takes the values of a state column in.
    ///
    /// Errors: `Limit` past as many values as the column of a state can hold.
    pub(crate) fn add(&mut self, states: &ArrayRef) -> Result<()> {
        let values = values_of(states)?;
        for from in (0..values.len()).step_by(ENCODED_AT_ONCE) {
            let encoded = self.encode(&values.slice(from, ENCODED_AT_ONCE.min(values.len() - from)))?;
            for (at, value) in encoded.iter().enumerate() {
                if self.insert(value.as_ref())? {
                    self.state_bytes += item_bytes(&values, from + at, from + at + 1);
                }
            }
        }
        Ok(())
    }

    /// Gives back what is held for values to come.
    pub(crate) fn settle(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// What is in the set or in these state columns.
    pub(crate) fn size_with(&self, states: &[ArrayRef]) -> Result<DistinctSize> {
        let values = states.iter().map(values_of).collect::<Result<Vec<ArrayRef>>>()?;
        let encoded = values.iter().map(|values| self.encode(values)).collect::<Result<Vec<Rows>>>()?;
        let mut others: HashSet<&[u8]> = HashSet::new();
        let mut bytes = self.state_bytes;
        for (values, rows) in values.iter().zip(&encoded) {
            for (at, value) in rows.iter().enumerate() {
                if !self.contains(value.data()) && others.insert(value.data()) {
                    bytes += item_bytes(values, at, at + 1);
                }
            }
        }
        Ok(DistinctSize { values: (self.ends.len() + others.len()) as i64, bytes })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity() + self.ends.capacity() * size_of::<usize>() + self.known.allocation_size()
    }

    fn encode(&self, values: &ArrayRef) -> Result<Rows> {
        Ok(self.converter.convert_columns(&[one_zero(values)])?)
    }

    /// Returns whether the value is new.
    fn insert(&mut self, value: &[u8]) -> Result<bool> {
        let hash = xxh3_64(value);
        if self.find(hash, value) {
            return Ok(false);
        }
        let index = u32::try_from(self.ends.len()).map_err(|_| Error::limit(format!("a set has more than {} values", u32::MAX)))?;
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        let Self { bytes, ends, known, .. } = self;
        known.insert_unique(hash, index, |index| xxh3_64(stored(*index, bytes, ends)));
        Ok(true)
    }

    fn contains(&self, value: &[u8]) -> bool {
        self.find(xxh3_64(value), value)
    }

    fn find(&self, hash: u64, value: &[u8]) -> bool {
        self.known.find(hash, |index| stored(*index, &self.bytes, &self.ends) == value).is_some()
    }
}

fn stored<'a>(index: u32, bytes: &'a [u8], ends: &[usize]) -> &'a [u8] {
    let at = index as usize;
    let from = if at == 0 { 0 } else { ends[at - 1] };
    &bytes[from..ends[at]]
}

/// The values of all lists. NULLs, and what lies under a NULL list, do not count.
fn values_of(states: &ArrayRef) -> Result<ArrayRef> {
    let Some(lists) = states.as_list_opt::<i32>() else {
        return Err(Error::corrupt("the state of count(DISTINCT ..) is not a list").with("found", states.data_type()));
    };
    let (first, last) = (lists.value_offsets()[0] as usize, lists.value_offsets()[lists.len()] as usize);
    let values = lists.values().slice(first, last - first);
    if values.null_count() == 0 && lists.null_count() == 0 {
        return Ok(values);
    }
    let under = (0..lists.len()).flat_map(|row| std::iter::repeat_n(lists.is_valid(row), lists.value_length(row) as usize));
    let counts: BooleanArray = under.enumerate().map(|(at, under)| Some(under && values.is_valid(at))).collect();
    Ok(filter(&values, &counts)?)
}

#[cfg(test)]
mod tests;
