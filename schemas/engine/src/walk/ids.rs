//! Values as numbers, equal where the values are.

use std::collections::HashMap;
use std::collections::hash_map::Entry::Vacant;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow_row::{RowConverter, SortField};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64;

use crate::plan::links::{AggregateInput, Both, Ends, EndsIndex, KeyColumn, LinkAggregate, LinkPlan, Side};
use crate::walk::Walk;
use crate::walk::edges::EdgeSet;
use types::{Error, Result};

/// The number of NULL.
const NULL: u32 = 0;

/// Numbers of the values met so far, by their bytes. Numbers are compared among values of one type only.
#[derive(Default)]
pub(super) struct Numbers {
    known: HashTable<u32>,
    /// The bytes of all known values, one after the other.
    bytes: Vec<u8>,
    /// Where each value's bytes end; the number of the first is 1.
    ends: Vec<usize>,
}

/// A number for each of some values.
pub(super) struct Ids(Vec<u32>);

/// End points that have to differ.
pub(super) type DistinctEnds<'a> = Both<&'a Ids>;

impl Numbers {
    /// Numbers given so far, that of NULL included: all are below.
    pub(super) fn len(&self) -> usize {
        self.ends.len() + 1
    }

    pub(super) fn ids_of(&mut self, values: &ArrayRef) -> Result<Ids> {
        let numbers = match values.as_string_opt::<i32>() {
            Some(texts) => texts.iter().map(|text| text.map_or(NULL, |text| self.number(text.as_bytes()))).collect(),
            None => {
                let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
                let rows = converter.convert_columns(std::slice::from_ref(values))?;
                (0..values.len()).map(|at| if values.is_null(at) { NULL } else { self.number(rows.row(at).as_ref()) }).collect()
            }
        };
        Ok(Ids(numbers))
    }

    fn number(&mut self, value: &[u8]) -> u32 {
        let Numbers { known, bytes, ends } = self;
        let hash_of = |number: u32, bytes: &[u8], ends: &[usize]| -> u64 { xxh3_64(stored(number, bytes, ends)) };
        let entry = known.entry(xxh3_64(value), |number| stored(*number, bytes, ends) == value, |number| hash_of(*number, bytes, ends));
        match entry {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(place) => {
                let number = ends.len() as u32 + 1;
                place.insert(number);
                bytes.extend_from_slice(value);
                ends.push(bytes.len());
                number
            }
        }
    }
}

fn stored<'a>(number: u32, bytes: &'a [u8], ends: &[usize]) -> &'a [u8] {
    let at = number as usize - 1;
    let from = if at == 0 { 0 } else { ends[at - 1] };
    &bytes[from..ends[at]]
}

impl Ids {
    pub(super) fn get(&self, index: usize) -> u32 {
        self.0[index]
    }

    pub(super) fn is_null(&self, index: usize) -> bool {
        self.0[index] == NULL
    }

    /// `<>` as SQL has it: not true of a NULL.
    pub(super) fn differs(&self, index: usize, other: &Ids, at: usize) -> bool {
        let (one, two) = (self.0[index], other.0[at]);
        one != two && one != NULL && two != NULL
    }
}

/// The end points of edges as numbers, by their key column.
pub(super) struct EndIds(HashMap<KeyColumn, Ids>);

impl EndIds {
    pub(super) fn number(
        walk: &Walk<'_>,
        numbers: &mut Numbers,
        edges: &EdgeSet<'_>,
        columns: impl Iterator<Item = KeyColumn>,
    ) -> Result<EndIds> {
        let mut of_columns = HashMap::new();
        for column in columns {
            if let Vacant(place) = of_columns.entry(column) {
                place.insert(numbers.ids_of(&edges.key(walk, column)?)?);
            }
        }
        Ok(EndIds(of_columns))
    }

    pub(super) fn get(&self, column: KeyColumn) -> Result<&Ids> {
        self.0.get(&column).ok_or_else(|| Error::internal("a walk asks for end points that it did not number"))
    }
}

/// The key columns of a side whose end points are compared, or are arguments of these aggregates.
pub(super) fn end_columns<'v>(
    links: &'v LinkPlan,
    aggregates: impl Iterator<Item = &'v LinkAggregate> + Clone,
    side: Side,
) -> impl Iterator<Item = KeyColumn> {
    let apart = links.apart.iter().chain(aggregates.clone().flat_map(|aggregate| &aggregate.apart));
    let compared = apart.map(move |index| links.ends[index.0].column(side));
    let arguments = aggregates.filter_map(move |aggregate| match &aggregate.input {
        AggregateInput::Ends { argument, .. } if argument.side == side => Some(argument.column),
        _ => None,
    });
    compared.chain(arguments)
}

/// The end points of near and far edges that have to differ.
pub(super) fn apart<'a>(links: &LinkPlan, apart: &[EndsIndex], ends: Both<&'a EndIds>) -> Result<Vec<DistinctEnds<'a>>> {
    let ids =
        |columns: &Ends| -> Result<DistinctEnds<'a>> { Ok(Both { near: ends.near.get(columns.near)?, far: ends.far.get(columns.far)? }) };
    apart.iter().map(|index| ids(&links.ends[index.0])).collect()
}

#[cfg(test)]
mod tests;
