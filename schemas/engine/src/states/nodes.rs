//! The nodes of linked views. A node is a prefix of its edges' encoded keys, so all edges that leave it are adjacent
//! and in one bucket.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{not, nullif, partition, take};
use arrow::datatypes::FieldRef;

use crate::plan::links::EdgeLayout;
use crate::states::first_rows::IndexedRow;
use crate::states::tuples::TupleCodec;
use types::{Error, Result};

/// Encodes the node from which an edge is walked: the group keys of a near edge, the join keys of a far one.
#[derive(Debug)]
pub struct NodeCodec {
    layout: EdgeLayout,
    keys: Vec<FieldRef>,
    /// Side and group keys.
    near: TupleCodec,
    /// Side, group keys (NULL) and join keys.
    far: TupleCodec,
    via: TupleCodec,
    far_ends: TupleCodec,
}

impl NodeCodec {
    pub(super) fn new(keys: &[FieldRef], layout: &EdgeLayout) -> Result<Self> {
        Ok(Self {
            near: TupleCodec::new(&keys[..layout.groups.end])?,
            far: TupleCodec::new(&keys[..layout.via.end])?,
            via: TupleCodec::new(&keys[layout.via.clone()])?,
            far_ends: TupleCodec::new(&keys[layout.far_ends.clone()])?,
            keys: keys.to_vec(),
            layout: layout.clone(),
        })
    }

    /// Returns the prefixes of the keys of near edges that leave these group keys.
    pub fn near(&self, groups: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        self.near.encode(&self.with_side(false, groups, rows), rows)
    }

    /// Returns the prefixes of the keys of far edges that leave these join keys.
    pub fn far(&self, via: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let mut columns = self.with_side(true, &self.nulls(self.layout.groups.clone(), rows), rows);
        columns.extend_from_slice(via);
        self.far.encode(&columns, rows)
    }

    /// Returns the bytes that determine the bucket of near edges that leave these group keys. For far edges these are
    /// their prefix.
    pub fn near_places(&self, groups: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let mut columns = self.with_side(false, groups, rows);
        columns.extend(self.nulls(self.layout.via.clone(), rows));
        self.far.encode(&columns, rows)
    }

    /// Encodes only the join keys, to which a near edge leads.
    pub fn via(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        self.via.encode(columns, rows)
    }

    /// Encodes only the far end points, to which a far edge leads.
    pub(crate) fn far_ends(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        self.far_ends.encode(columns, rows)
    }

    /// Returns the group keys that these prefixes of near edges encode.
    pub fn groups_of(&self, prefixes: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        Ok(self.near.decode(prefixes.iter().copied())?.split_off(self.layout.groups.start))
    }

    /// Returns the places of the group keys among the columns of state rows.
    pub(super) fn group_columns(&self) -> Range<usize> {
        self.layout.groups.clone()
    }

    /// Returns which of sorted state rows are near edges: the first ones.
    pub fn near_rows(&self, rows: &RecordBatch) -> Result<Range<usize>> {
        let side = rows.column(0).as_boolean_opt().ok_or_else(|| Error::internal("the side of an edge changed its type"))?;
        // False sorts before true.
        Ok(0..side.false_count())
    }

    /// Returns the rows at which the edges of the next node begin: of near edges, then of far edges.
    pub(crate) fn first_rows(&self, rows: &RecordBatch) -> Result<[Vec<u32>; 2]> {
        let near = self.near_rows(rows)?;
        let far = near.end..rows.num_rows();
        Ok([first_rows(rows, near, &self.layout.groups)?, first_rows(rows, far, &self.layout.via)?])
    }

    /// The same, each with the length of the node in its key.
    pub(super) fn entries(&self, rows: &RecordBatch) -> Result<Vec<IndexedRow>> {
        let [near, far] = self.first_rows(rows)?.map(UInt32Array::from);
        let keys = |columns: &Range<usize>, of: &UInt32Array| {
            let columns = rows.columns()[columns.clone()].iter();
            columns.map(|column| Ok(take(column, of, None)?)).collect::<Result<Vec<ArrayRef>>>()
        };
        let of_near = self.near(&keys(&self.layout.groups, &near)?, near.len())?;
        let of_far = self.far(&keys(&self.layout.via, &far)?, far.len())?;
        let lengths = of_near.iter().chain(&of_far).flatten().map(<[u8]>::len);
        let rows = near.values().iter().chain(far.values()).copied();
        Ok(rows.zip(lengths).map(|(row, length)| IndexedRow { row, length }).collect())
    }

    /// Returns the bytes that determine each edge's bucket.
    pub(super) fn places(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        let side = columns[0].as_boolean_opt().ok_or_else(|| Error::internal("the side of an edge changed its type"))?;
        let is_near = not(side)?;
        let mut node: Vec<ArrayRef> = columns[..self.layout.groups.end].to_vec();
        for via in &columns[self.layout.via.clone()] {
            node.push(nullif(via, &is_near)?);
        }
        self.far.encode(&node, rows)
    }

    fn with_side(&self, far: bool, groups: &[ArrayRef], rows: usize) -> Vec<ArrayRef> {
        let side: ArrayRef = Arc::new(BooleanArray::from(vec![far; rows]));
        std::iter::once(side).chain(groups.iter().cloned()).collect()
    }

    fn nulls(&self, columns: Range<usize>, rows: usize) -> Vec<ArrayRef> {
        self.keys[columns].iter().map(|key| new_null_array(key.data_type(), rows)).collect()
    }
}

/// The rows at which the values of some columns change.
fn first_rows(batch: &RecordBatch, among: Range<usize>, columns: &Range<usize>) -> Result<Vec<u32>> {
    if among.is_empty() {
        return Ok(Vec::new());
    }
    let columns: Vec<ArrayRef> = batch.columns()[columns.clone()].iter().map(|key| key.slice(among.start, among.len())).collect();
    Ok(partition(&columns)?.ranges().into_iter().map(|range| (among.start + range.start) as u32).collect())
}
