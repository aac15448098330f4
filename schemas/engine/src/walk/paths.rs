//! The paths behind a linked view's row: which node links which end points, with both events' times and the columns in
//! which it counts. Those that count in a column come first, each newest first.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, ListBuilder, RecordBatch, StringBuilder, UInt32Array, new_empty_array};
use arrow::compute::{SortColumn, concat, lexsort_to_indices, take};
use arrow::datatypes::{Field, Schema, TimestampMicrosecondType};

use crate::plan::links::{Both, ConditionIndex, KeyColumn, Side};
use crate::walk::Walk;
use crate::walk::edges::EdgeSet;
use crate::walk::ids::{EndIds, Numbers, apart, end_columns};
use crate::walk::live::LiveEdges;
use crate::walk::meet::{Meeting, Pair};
use types::Result;
use types::sql_types::timestamp_type;
use types::tiles::Micros;

mod counted;

use counted::{Counted, places};

/// Pairs that are held at once.
const PAIRS: usize = 65_536;

/// What decides where a path is listed, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    counts_nowhere: bool,
    /// Since when it links: the older of its edges' times.
    linked_at: Reverse<Micros>,
    /// The ranks of its edges by their keys. Far edges of one near edge meet it together, so they are ranked together.
    near: u32,
    far: u32,
}

struct Path {
    place: Place,
    row: Vec<ArrayRef>,
    /// The columns in which it counts: indices of the plan's.
    counted_in: Vec<usize>,
}

impl Walk<'_> {
    /// The first `most` paths that leave one key: its group keys, the join keys, the end points, when either edge was
    /// last seen, and the names of the columns in which it counts. With `of`, an index of the plan's columns, only
    /// those that count there.
    ///
    /// Paths that count in a column come before those that count in none. Of these the newest come first; a path is as
    /// old as its older edge, because before that there was no link. Paths of the same age are in the order of their
    /// join keys, near end points and far end points, whichever layers their edges are in.
    pub fn paths(&self, groups: &[ArrayRef], most: usize, of: Option<usize>) -> Result<RecordBatch> {
        let layout = &self.links.layout;
        let near = EdgeSet::gather(self, Side::Near, self.find_keys(groups, 1)?.iter())?;
        let nodes = self.nodes(&near, &mut |_, _| {})?;
        let thresholds = near.thresholds(1);
        let near_live = LiveEdges::at_places(self, &near, places(self.links, Side::Near))?;
        let near_ranks = self.ranks(&near, layout.via.clone().chain(layout.near_ends.clone()))?;
        let mut first: Vec<Path> = Vec::new();
        self.meet(&near, &nodes, &thresholds, &mut |meeting| {
            first.extend(self.first_paths(meeting, &near_live, &near_ranks, most, of)?);
            first.sort_by_key(|path| path.place);
            first.truncate(most);
            Ok(())
        })?;
        self.path_batch(&first)
    }

    /// The same of a meeting's pairs, by where its near edges are live, and by their ranks.
    fn first_paths(
        &self,
        meeting: &Meeting<'_>,
        near_live: &LiveEdges,
        near_ranks: &[u32],
        most: usize,
        of: Option<usize>,
    ) -> Result<Vec<Path>> {
        let (links, near, far) = (self.links, meeting.near, meeting.far);
        let far_live = LiveEdges::at_places(self, far, places(links, Side::Far))?;
        let far_ranks = self.ranks(far, links.layout.far_ends.clone())?;
        let mut numbers = Numbers::default();
        let near_ends = EndIds::number(self, &mut numbers, near, end_columns(links, links.aggregates.iter(), Side::Near))?;
        let far_ends = EndIds::number(self, &mut numbers, far, end_columns(links, links.aggregates.iter(), Side::Far))?;
        let ends = Both { near: &near_ends, far: &far_ends };
        let counted = Counted::new(self, Both { near: near_live, far: &far_live }, ends)?;
        let linked_at = linked_at(near.seen(self)?, far.seen(self)?);
        let existing = (ConditionIndex::NONE, links.existence);
        let live = Both { near: near_live.at(existing)?, far: far_live.at(existing)? };
        let mut found: Vec<(Place, Pair)> = Vec::new();
        meeting.pairs(live, &apart(links, &links.apart, ends)?, |pair| {
            if of.is_none_or(|column| counted.counts(column, &pair)) {
                let place = Place {
                    counts_nowhere: of.is_none() && !counted.counts_anywhere(&pair),
                    linked_at: Reverse(linked_at(&pair)),
                    near: near_ranks[pair.near as usize],
                    far: far_ranks[pair.far as usize],
                };
                found.push((place, pair));
            }
            if found.len() >= PAIRS.max(2 * most) {
                keep_first(&mut found, most);
            }
        });
        keep_first(&mut found, most);
        let columns = self.path_columns(near, far)?;
        let path = |(place, pair): &(Place, Pair)| -> Result<Path> {
            Ok(Path { place: *place, row: path_row(&columns, pair)?, counted_in: counted.columns(pair) })
        };
        found.iter().map(path).collect()
    }

    /// The rank of each edge in the order of these key columns.
    fn ranks(&self, edges: &EdgeSet<'_>, columns: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
        let keys = columns
            .map(|column| Ok(SortColumn { values: edges.key(self, KeyColumn(column))?, options: None }))
            .collect::<Result<Vec<_>>>()?;
        let mut ranks = vec![0; edges.len()];
        if keys.is_empty() {
            return Ok(ranks);
        }
        for (rank, edge) in lexsort_to_indices(&keys, None)?.values().iter().enumerate() {
            ranks[*edge as usize] = rank as u32;
        }
        Ok(ranks)
    }

    /// What a path says of its edges: of the near one, or of the far one.
    fn path_columns(&self, near: &EdgeSet<'_>, far: &EdgeSet<'_>) -> Result<Vec<(Side, ArrayRef)>> {
        let layout = &self.links.layout;
        let of_near = layout.groups.clone().chain(layout.via.clone()).chain(layout.near_ends.clone());
        let mut columns = of_near.map(|column| Ok((Side::Near, near.key(self, KeyColumn(column))?))).collect::<Result<Vec<_>>>()?;
        for column in layout.far_ends.clone() {
            columns.push((Side::Far, far.key(self, KeyColumn(column))?));
        }
        columns.extend([(Side::Near, near.seen(self)?.clone()), (Side::Far, far.seen(self)?.clone())]);
        Ok(columns)
    }

    fn path_batch(&self, paths: &[Path]) -> Result<RecordBatch> {
        let layout = &self.links.layout;
        let keys = layout.groups.clone().chain(layout.via.clone()).chain(layout.near_ends.clone()).chain(layout.far_ends.clone());
        let mut fields: Vec<Field> = keys.map(|key| self.plan.keys[key].as_ref().clone()).collect();
        for name in ["near_at", "far_at"] {
            fields.push(Field::new(name, timestamp_type(), true));
        }
        let column = |(index, field): (usize, &Field)| -> Result<ArrayRef> {
            let values: Vec<&dyn Array> = paths.iter().map(|path| path.row[index].as_ref()).collect();
            match values.is_empty() {
                true => Ok(new_empty_array(field.data_type())),
                false => Ok(concat(&values)?),
            }
        };
        let mut columns = fields.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
        let counted_in = self.counted_in(paths);
        fields.push(Field::new("counted_in", counted_in.data_type().clone(), false));
        columns.push(Arc::new(counted_in));
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }

    /// The names of the columns in which each path counts.
    fn counted_in(&self, paths: &[Path]) -> ListArray {
        let mut names = ListBuilder::new(StringBuilder::new());
        for path in paths {
            for column in &path.counted_in {
                names.values().append_value(self.plan.columns[*column].field.name());
            }
            names.append(true);
        }
        names.finish()
    }
}

/// Since when a pair links, by when near and far edges were last seen.
fn linked_at(near_seen: &ArrayRef, far_seen: &ArrayRef) -> impl Fn(&Pair) -> Micros {
    let (near_seen, far_seen) = (near_seen.as_primitive::<TimestampMicrosecondType>(), far_seen.as_primitive::<TimestampMicrosecondType>());
    move |pair: &Pair| near_seen.value(pair.near as usize).min(far_seen.value(pair.far as usize))
}

fn keep_first(found: &mut Vec<(Place, Pair)>, most: usize) {
    found.sort_by_key(|(place, _)| *place);
    found.truncate(most);
}

fn path_row(columns: &[(Side, ArrayRef)], pair: &Pair) -> Result<Vec<ArrayRef>> {
    columns.iter().map(|(side, column)| Ok(take(column, &UInt32Array::from(vec![pair.edge(*side)]), None)?)).collect()
}
