//! State rows, sorted by key. Rows of one key are sorted by tile while they are gathered, and by level and tile in a
//! snapshot.
//!
//! Keys are compared by their row encoding.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BinaryArray, RecordBatch, UInt8Array, UInt32Array, make_array, new_null_array};
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Field, SchemaRef, TimestampMicrosecondType, UInt8Type};
use arrow::error::ArrowError;

use crate::functions::limited::is_limit_mark;
use crate::functions::sums::wide::is_carries;
use crate::plan::ViewPlan;
use crate::states::first_rows::{Built, FirstRows, IndexedRow, Probe};
use crate::states::keys::KeyCodec;
use crate::states::nodes::NodeCodec;
use crate::states::order::sorted_rows;
use types::columns::{LEVEL, TILE};
use types::tiles::Micros;
use types::{Error, ErrorKind, Result, threads};

/// An index of at most this many rows is built by the search that makes it worth its cost, within a millisecond. A
/// larger one is built on another thread, and searches do without it until it is complete.
const BUILT_AT_ONCE: usize = 8_192;

/// Sorted state rows with their encoded keys.
#[derive(Debug, Clone)]
pub struct StateRows {
    batch: RecordBatch,
    keys: BinaryArray,
    indices: Arc<Indices>,
}

/// The order of the rows of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOrder {
    /// By tile, then level: as states are gathered and rolled up.
    ByTile,
    /// By level, then tile: as in a snapshot.
    ByLevel,
}

/// The indices of the first rows of whole keys, and of the nodes of edges.
#[derive(Debug, Default)]
struct Indices {
    keys: FirstRows,
    nodes: FirstRows,
}

impl StateRows {
    /// Sorts rows of the plan's state schema by key, tile and level. Rows with the same key, level and tile are not
    /// merged; see [`super::sort_and_merge`].
    pub fn sort(plan: &ViewPlan, codec: &KeyCodec, batches: &[RecordBatch]) -> Result<Self> {
        Self::sort_in(RowOrder::ByTile, plan, codec, batches)
    }

    /// Like [`StateRows::sort`], with the rows of each key in this order.
    pub fn sort_in(order: RowOrder, plan: &ViewPlan, codec: &KeyCodec, batches: &[RecordBatch]) -> Result<Self> {
        let batch = concat_batches(plan.state_schema(), batches)?;
        let keys = codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
        Self::sort_encoded(order, batch, keys)
    }

    /// Like [`StateRows::sort_in`], for rows whose keys are already encoded.
    pub(super) fn sort_encoded(order: RowOrder, batch: RecordBatch, keys: BinaryArray) -> Result<Self> {
        let (levels, tiles) = (levels(&batch)?, tiles(&batch)?);
        let place = |row: u32| {
            let (level, tile) = (Micros::from(levels.value(row as usize)), tiles[row as usize]);
            match order {
                RowOrder::ByTile => (tile, level),
                RowOrder::ByLevel => (level, tile),
            }
        };
        if (0..batch.num_rows() as u32).is_sorted_by_key(|row| (keys.value(row as usize), place(row))) {
            return Ok(Self::from_sorted(batch, keys));
        }
        let order = UInt32Array::from(sorted_rows(&keys, &|a, b| (place(a), a).cmp(&(place(b), b))));
        let keys = take(&keys, &order, None)?.as_binary::<i32>().clone();
        Ok(Self::from_sorted(taken(&batch, &order)?, keys))
    }

    /// Wraps rows that are already sorted, with their encoded keys.
    pub fn from_sorted(batch: RecordBatch, keys: BinaryArray) -> Self {
        Self { batch, keys, indices: Arc::default() }
    }

    /// Returns some of the rows without copying.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        Self::from_sorted(self.batch.slice(rows.start, rows.len()), self.keys.slice(rows.start, rows.len()))
    }

    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    pub fn keys(&self) -> &BinaryArray {
        &self.keys
    }

    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first row whose key is not less than `key`.
    pub fn first_from(&self, key: &[u8]) -> usize {
        first_from(&self.keys, key)
    }

    /// Returns the rows of one key.
    pub fn find(&self, key: &[u8]) -> std::ops::Range<usize> {
        self.find_probe(Probe::new(key))
    }

    /// The same for a key that is hashed already.
    pub(super) fn find_probe(&self, key: Probe<'_>) -> std::ops::Range<usize> {
        match self.key_index(1) {
            Some(index) => index.find(&self.keys, key).map_or(0..0, |from| from..key_end(&self.keys, from, key.bytes())),
            None => find_key(&self.keys, key.bytes()),
        }
    }

    /// Builds the index of whole keys, so that no search has to.
    pub fn index_keys(&self) {
        self.indices.keys.build(&self.keys, Ok(whole_keys(&self.keys)));
    }

    /// Calls `found` with the index of each key that has rows, and with its rows.
    pub fn find_keys(&self, keys: &[Probe<'_>], mut found: impl FnMut(usize, std::ops::Range<usize>)) {
        if let [key] = keys {
            let rows = self.find_probe(*key);
            if !rows.is_empty() {
                found(0, rows);
            }
            return;
        }
        let firsts = self.firsts(self.key_index(keys.len()), keys);
        for (index, (key, from)) in keys.iter().zip(firsts).enumerate() {
            let rows = from.map_or(0..0, |from| from..key_end(&self.keys, from, key.bytes()));
            if !rows.is_empty() {
                found(index, rows);
            }
        }
    }

    /// Calls `found` with the index of each node that edges leave, and with these edges: the rows whose keys begin with
    /// what `nodes` encoded for it.
    pub fn find_nodes(&self, nodes: &Arc<NodeCodec>, prefixes: &[Probe<'_>], mut found: impl FnMut(usize, std::ops::Range<usize>)) {
        let firsts = self.firsts(self.node_index(nodes, prefixes.len()), prefixes);
        for (index, (prefix, from)) in prefixes.iter().zip(firsts).enumerate() {
            let rows = from.map_or(0..0, |from| from..prefix_end(&self.keys, from, prefix.bytes()));
            if !rows.is_empty() {
                found(index, rows);
            }
        }
    }

    /// Returns the first row of each probe, if it has rows. All probes are looked up before any row is read, so that
    /// the processor waits for several memory accesses at a time.
    fn firsts(&self, index: Option<&Built>, probes: &[Probe<'_>]) -> Vec<Option<usize>> {
        match index {
            Some(index) => index.find_all(&self.keys, probes),
            None => probes.iter().map(|probe| Some(first_from(&self.keys, probe.bytes()))).collect(),
        }
    }

    /// The index of whole keys. No encoded key is a prefix of another one of the same columns.
    fn key_index(&self, searches: usize) -> Option<&Built> {
        self.index(|indices| &indices.keys, searches, |rows| Ok(whole_keys(&rows.keys)))
    }

    fn node_index(&self, nodes: &Arc<NodeCodec>, searches: usize) -> Option<&Built> {
        self.indices.nodes.get().or_else(|| {
            let nodes = nodes.clone();
            self.index(|indices| &indices.nodes, searches, move |rows| nodes.entries(&rows.batch))
        })
    }

    /// Returns one of the indices, for this many more searches. `None` if it is not built: the caller then uses binary
    /// search. `entries` returns the rows to be found.
    fn index(
        &self,
        which: fn(&Indices) -> &FirstRows,
        searches: usize,
        entries: impl FnOnce(&StateRows) -> Result<Vec<IndexedRow>> + Send + 'static,
    ) -> Option<&Built> {
        let index = which(&self.indices);
        if index.get().is_some() || !index.is_due(self.len(), searches) {
            return index.get();
        }
        if self.len() <= BUILT_AT_ONCE {
            return index.build(&self.keys, entries(self));
        }
        let rows = self.clone();
        threads::QUERIES.spawn_blocking(move || {
            which(&rows.indices).build(&rows.keys, entries(&rows));
        });
        None
    }

    /// Bytes of memory these rows hold.
    pub fn memory_bytes(&self) -> usize {
        self.batch.get_array_memory_size() + self.keys.get_array_memory_size() + self.index_bytes()
    }

    /// Bytes of memory of the indices.
    pub(super) fn index_bytes(&self) -> usize {
        self.indices.keys.memory_bytes() + self.indices.nodes.memory_bytes()
    }
}

/// Returns these rows of a batch, in this order.
pub fn taken(batch: &RecordBatch, rows: &UInt32Array) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| taken_column(column, rows)).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

/// Like [`taken`], for one column. Constant columns (the level and tile of states with only one, the side of an edge)
/// are sliced instead of gathered.
pub(super) fn taken_column(column: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    if rows.len() <= column.len() && is_constant(column) { Ok(column.slice(0, rows.len())) } else { Ok(take(column, rows, None)?) }
}

/// Whether all values of a column are equal, so that reordering its rows changes nothing. False for nested types, which
/// are not inspected.
pub fn is_constant(column: &dyn Array) -> bool {
    let others = column.len().saturating_sub(1);
    !column.data_type().is_nested() && column.slice(0, others).to_data() == column.slice(column.len() - others, others).to_data()
}

/// Casts stored state rows to the schema they are read with. The names of nested fields may differ: DataFusion's
/// contain positions of one plan, and states bind by position. Any other difference is damage.
///
/// Rows of the previous format lack the fields that were added since; these are filled with NULLs.
pub fn conform(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let (found, expected) = (batch.num_columns(), schema.fields().len());
    let added = schema.fields().iter().filter(|field| is_added(field)).count();
    if found != expected && found + added != expected {
        return Err(Error::corrupt("stored state rows have another number of columns").with("found", found).with("expected", expected));
    }
    let mut stored = batch.columns().iter();
    let columns = schema.fields().iter().map(|field| match stored_column(field, found != expected, &mut stored) {
        Some(column) => conform_column(field, column),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    });
    let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| Error::restating(ErrorKind::Corrupt, error))
}

/// Whether a sum is kept in a wider type than in the previous format.
fn is_wider(stored: &DataType, now: &DataType) -> bool {
    match (stored, now) {
        (DataType::Int64 | DataType::UInt64 | DataType::Duration(_), DataType::Decimal128(38, 0)) => true,
        (DataType::Decimal128(_, stored) | DataType::Decimal256(_, stored), DataType::Decimal256(76, now)) => stored == now,
        _ => false,
    }
}

fn stored_column<'a>(field: &Field, is_before: bool, stored: &mut impl Iterator<Item = &'a ArrayRef>) -> Option<&'a ArrayRef> {
    if is_before && is_added(field) { None } else { stored.next() }
}

/// Whether the previous format has no such field.
fn is_added(field: &Field) -> bool {
    is_limit_mark(field) || is_carries(field)
}

fn conform_column(field: &Field, column: &ArrayRef) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(column.clone());
    }
    if is_wider(column.data_type(), field.data_type()) {
        return Ok(cast(column, field.data_type())?);
    }
    let data = renamed(column.to_data(), field.data_type())
        .map_err(|error| Error::restating(ErrorKind::Corrupt, error).with("column", field.name()))?;
    Ok(make_array(data))
}

/// Returns the same data under a type that differs only in the names of its fields.
fn renamed(data: ArrayData, to: &DataType) -> Result<ArrayData, ArrowError> {
    let inner: Vec<&DataType> = match to {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            vec![item.data_type()]
        }
        _ => Vec::new(),
    };
    if std::mem::discriminant(data.data_type()) != std::mem::discriminant(to) || data.child_data().len() != inner.len() {
        return Err(ArrowError::SchemaError(format!("found {}, expected {to}", data.data_type())));
    }
    if inner.is_empty() {
        return if data.data_type() == to {
            Ok(data)
        } else {
            Err(ArrowError::SchemaError(format!("found {}, expected {to}", data.data_type())))
        };
    }
    let children = data.child_data().iter().cloned().zip(inner).map(|(child, to)| renamed(child, to)).collect::<Result<_, _>>()?;
    data.into_builder().data_type(to.clone()).child_data(children).build()
}

/// The first row of each key, to be found by the whole key.
fn whole_keys(keys: &BinaryArray) -> Vec<IndexedRow> {
    let is_first = |row: &usize| *row == 0 || keys.value(*row) != keys.value(*row - 1);
    (0..keys.len()).filter(is_first).map(|row| IndexedRow { row: row as u32, length: keys.value(row).len() }).collect()
}

/// Returns the rows of one key among sorted encoded keys.
pub(crate) fn find_key(keys: &BinaryArray, key: &[u8]) -> std::ops::Range<usize> {
    let from = first_from(keys, key);
    from..key_end(keys, from, key)
}

/// Returns the rows whose encoded keys begin with `prefix`.
pub(super) fn find_prefix(keys: &BinaryArray, prefix: &[u8]) -> std::ops::Range<usize> {
    let from = first_from(keys, prefix);
    from..prefix_end(keys, from, prefix)
}

/// Returns the first row whose key is not less than `key`.
pub(super) fn first_from(keys: &BinaryArray, key: &[u8]) -> usize {
    partition_point(keys.len(), |row| keys.value(row) < key)
}

/// Returns the end of the rows from `from` on whose keys are `key`.
fn key_end(keys: &BinaryArray, from: usize, key: &[u8]) -> usize {
    end_of(keys, from, |other| other == key)
}

/// Returns the end of the rows from `from` on whose keys begin with `prefix`.
pub(super) fn prefix_end(keys: &BinaryArray, from: usize, prefix: &[u8]) -> usize {
    end_of(keys, from, |other| other.starts_with(prefix))
}

/// Returns the end of the rows from `from` on whose keys meet a condition. Searches in doubling steps, because these
/// rows are few among all rows.
fn end_of(keys: &BinaryArray, from: usize, holds: impl Fn(&[u8]) -> bool) -> usize {
    let (mut held, mut step) = (from, 1);
    while held + step <= keys.len() && holds(keys.value(held + step - 1)) {
        held += step;
        step *= 2;
    }
    held + partition_point((step - 1).min(keys.len() - held), |row| holds(keys.value(held + row)))
}

/// Returns the first index in `0..len` for which `before` is false.
pub(super) fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// The levels of state rows.
pub fn levels(batch: &RecordBatch) -> Result<&UInt8Array> {
    let column = batch.column_by_name(LEVEL).ok_or_else(|| Error::corrupt(format!("state rows lack the column {LEVEL}")))?;
    column.as_primitive_opt::<UInt8Type>().ok_or_else(|| Error::corrupt(format!("{LEVEL} is {}, expected UInt8", column.data_type())))
}

/// The tile starts of state rows.
pub fn tiles(batch: &RecordBatch) -> Result<&[Micros]> {
    let column = batch.column_by_name(TILE).ok_or_else(|| Error::corrupt(format!("state rows lack the column {TILE}")))?;
    let tiles = column.as_primitive_opt::<TimestampMicrosecondType>();
    tiles.map(|tiles| &tiles.values()[..]).ok_or_else(|| Error::corrupt(format!("{TILE} is {}, expected a timestamp", column.data_type())))
}

#[cfg(test)]
mod tests;
