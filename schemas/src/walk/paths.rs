//! The paths behind a linked view's row: which node links which end points, with both events' times, newest first.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, TimestampMicrosecondType};

use crate::definitions::timestamp_type;
use crate::error::Result;
use crate::plan::links::Side;
use crate::tiles::Micros;
use crate::walk::Walk;
use crate::walk::edges::EdgeSet;
use crate::walk::ids::{EndIds, Numbers, apart};
use crate::walk::meet::Pair;

/// Pairs that are held at once.
const PAIRS: usize = 65_536;

/// A path, and since when it links: the older of its edges' times.
struct Path {
    linked_at: Micros,
    row: Vec<ArrayRef>,
}

impl Walk<'_> {
    /// The newest `most` paths that leave one key: its group keys, the join keys, the end points, and when either edge was last seen. A
    /// path is as old as its older edge: before that there was no link.
    pub fn paths(&self, groups: &[ArrayRef], most: usize) -> Result<RecordBatch> {
        let near = EdgeSet::gather(self, Side::Near, self.keys_at(groups, 1)?.iter())?;
        let nodes = self.nodes(&near)?;
        let thresholds = near.thresholds(1);
        let longest = &self.links.ranges[self.links.existence];
        let near_live = near.live(self, 0, longest)?;
        let mut newest: Vec<Path> = Vec::new();
        self.meet(&near, &nodes, &thresholds, &mut |meeting| {
            let far = meeting.far;
            let far_live = far.live(self, 0, longest)?;
            let (near_seen, far_seen) = (near.seen(self)?, far.seen(self)?);
            let at = |seen: &ArrayRef, edge: u32| seen.as_primitive::<TimestampMicrosecondType>().value(edge as usize);
            let linked_at = |pair: &Pair| at(near_seen, pair.near).min(at(far_seen, pair.far));
            let mut numbers = Numbers::default();
            let near_ends = EndIds::of(self, &mut numbers, &near, self.links.apart.iter().map(|at| self.links.ends[*at].near))?;
            let far_ends = EndIds::of(self, &mut numbers, far, self.links.apart.iter().map(|at| self.links.ends[*at].far))?;
            let apart = apart(self.links, &self.links.apart, (&near_ends, &far_ends))?;
            let mut found = Vec::new();
            meeting.pairs((&near_live, &far_live), &apart, |pair| {
                found.push(pair);
                if found.len() >= PAIRS.max(2 * most) {
                    keep_newest(&mut found, most, linked_at);
                }
            });
            keep_newest(&mut found, most, linked_at);
            let columns = self.path_columns(&near, far)?;
            for pair in &found {
                newest.push(Path { linked_at: linked_at(pair), row: path_row(&columns, pair)? });
            }
            newest.sort_by_key(|path| std::cmp::Reverse(path.linked_at));
            newest.truncate(most);
            Ok(())
        })?;
        self.path_batch(&newest)
    }

    /// What a path says of its edges: of the near one, or of the far one.
    fn path_columns(&self, near: &EdgeSet<'_>, far: &EdgeSet<'_>) -> Result<Vec<(Side, ArrayRef)>> {
        let layout = &self.links.layout;
        let of_near = layout.groups.clone().chain(layout.via.clone()).chain(layout.near_ends.clone());
        let mut columns = of_near.map(|column| Ok((Side::Near, near.key(self, column)?))).collect::<Result<Vec<_>>>()?;
        for column in layout.far_ends.clone() {
            columns.push((Side::Far, far.key(self, column)?));
        }
        columns.extend([(Side::Near, near.seen(self)?.clone()), (Side::Far, far.seen(self)?.clone())]);
        Ok(columns)
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

fn keep_newest(found: &mut Vec<Pair>, most: usize, linked_at: impl Fn(&Pair) -> Micros) {
    found.sort_by_key(|pair| std::cmp::Reverse(linked_at(pair)));
    found.truncate(most);
}

fn path_row(columns: &[(Side, ArrayRef)], pair: &Pair) -> Result<Vec<ArrayRef>> {
    let edge = |side: Side| if side == Side::Near { pair.near } else { pair.far };
    columns.iter().map(|(side, column)| Ok(take(column, &UInt32Array::from(vec![edge(*side)]), None)?)).collect()
}
