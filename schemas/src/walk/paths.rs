//! The paths behind a linked view's row: which node links which end points, with both events' times, newest first.

use crate::definitions::timestamp_type;
use crate::error::Result;
use crate::plan::links::Side;
use crate::tiles::Micros;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, TimestampMicrosecondType};
use std::sync::Arc;

use crate::walk::Walk;
use crate::walk::edges::EdgeSet;
use crate::walk::pairs::Pair;

/// A path found: the newer of its events first in order.
struct Path {
    linked_at: Micros,
    row: Vec<ArrayRef>,
}

impl Walk<'_> {
    /// The newest `most` paths that leave one key: its group keys, the join keys, the end points, and when either edge was last seen. A path
    /// is as old as its older edge: before that there was no link.
    pub fn paths(&self, groups: &[ArrayRef], most: usize) -> Result<RecordBatch> {
        let near = EdgeSet::gather(self, Side::Near, &self.keys_at(groups, 1)?)?;
        let nodes = self.nodes(&near)?;
        let thresholds = near.thresholds(1);
        let mut newest: Vec<Path> = Vec::new();
        for batch in super::batches(&nodes.at, super::FAR_EDGES) {
            let far = EdgeSet::gather(self, Side::Far, &nodes.at[batch.clone()])?;
            let live = far.live(self, 0, &self.links.ranges[self.links.existence])?;
            let (near_seen, far_seen) = (near.seen(self)?.clone(), far.seen(self)?.clone());
            let at = |seen: &ArrayRef, edge: u32| seen.as_primitive::<TimestampMicrosecondType>().value(edge as usize);
            self.pair(&near, &nodes.from[batch], &far, &thresholds, &mut |pairs| {
                let linked_at = |pair: &Pair| at(&near_seen, pair.near).min(at(&far_seen, pair.far));
                let mut found: Vec<Pair> = pairs.iter().copied().filter(|pair| live[pair.far as usize]).collect();
                found.sort_by_key(|pair| std::cmp::Reverse(linked_at(pair)));
                found.truncate(most);
                for pair in &found {
                    let row = self.path_row(&near, &far, (&near_seen, &far_seen), pair)?;
                    newest.push(Path { linked_at: linked_at(pair), row });
                }
                newest.sort_by_key(|path| std::cmp::Reverse(path.linked_at));
                newest.truncate(most);
                Ok(())
            })?;
        }
        self.path_batch(&newest)
    }

    fn path_row(&self, near: &EdgeSet<'_>, far: &EdgeSet<'_>, seen: (&ArrayRef, &ArrayRef), pair: &Pair) -> Result<Vec<ArrayRef>> {
        let layout = &self.links.layout;
        let one = |column: &ArrayRef, edge: u32| Ok(take(column, &UInt32Array::from(vec![edge]), None)?);
        let of_near = layout.groups.clone().chain(layout.via.clone()).chain(layout.near_ends.clone());
        let mut row = of_near.map(|key| one(&near.keys[key], pair.near)).collect::<Result<Vec<_>>>()?;
        for key in layout.far_ends.clone() {
            row.push(one(&far.keys[key], pair.far)?);
        }
        row.push(one(seen.0, pair.near)?);
        row.push(one(seen.1, pair.far)?);
        Ok(row)
    }

    fn path_batch(&self, paths: &[Path]) -> Result<RecordBatch> {
        let layout = &self.links.layout;
        let keys = layout.groups.clone().chain(layout.via.clone()).chain(layout.near_ends.clone()).chain(layout.far_ends.clone());
        let mut fields: Vec<Field> = keys.map(|key| self.view.plan.keys[key].as_ref().clone()).collect();
        for name in ["near_at", "far_at"] {
            fields.push(Field::new(name, timestamp_type(), true));
        }
        let schema = Arc::new(Schema::new(fields));
        let columns = (0..schema.fields().len()).map(|column| {
            let values: Vec<&dyn Array> = paths.iter().map(|path| path.row[column].as_ref()).collect();
            match values.is_empty() {
                true => Ok(arrow::array::new_empty_array(schema.field(column).data_type())),
                false => Ok(arrow::compute::concat(&values)?),
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}
