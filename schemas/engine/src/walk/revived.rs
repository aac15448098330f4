//! Which edges of new state rows may change a row: an edge that is seen again while it is live in every range changes
//! none, but for the time at which it leaves.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, BinaryArray};

use crate::plan::links::{EdgeKind, Side};
use crate::states::{NodeCodec, Probe, StateRows};
use crate::walk::alive::timestamps;
use crate::walk::{LayerRows, NodeProbe, Walk};
use types::Result;
use types::tiles::Micros;

/// New edges that are looked for together.
const TOGETHER: usize = 16_384;

impl Walk<'_> {
    /// For each chunk of new state rows, which are among the walk's layers, the rows whose edges may change a row of
    /// the view: at the walk's time, the other layers do not have the edge in every range and under every condition.
    pub fn revived(&self, added: &[&StateRows]) -> Result<Vec<Vec<u32>>> {
        match self.links.kind {
            EdgeKind::Full => Ok(added.iter().map(|chunk| (0..chunk.len() as u32).collect()).collect()),
            EdgeKind::Liveness => added.iter().map(|chunk| self.revived_in(chunk, added)).collect(),
        }
    }

    fn revived_in(&self, chunk: &StateRows, added: &[&StateRows]) -> Result<Vec<u32>> {
        let codec = self.codec.nodes()?;
        let near = codec.near_rows(chunk.batch())?;
        let keys = &chunk.batch().columns()[..self.plan.keys.len()];
        let places = self.codec.places(keys, chunk.len())?;
        let mut revived = Vec::new();
        for (side, of_side) in [(Side::Near, near.clone()), (Side::Far, near.end..chunk.len())] {
            for from in of_side.clone().step_by(TOGETHER) {
                (self.cancel_check)()?;
                let rows = from..of_side.end.min(from + TOGETHER);
                let prefixes = self.prefixes(codec, side, chunk, &rows)?;
                let probe = |row: usize| NodeProbe { prefix: Probe::new(prefixes.value(row - rows.start)), place: places.value(row) };
                let layers = self.layers.edges_of(&rows.clone().map(probe).collect::<Vec<_>>());
                for (row, layers) in rows.clone().zip(layers) {
                    if !self.is_live_in(side, (chunk, row), &layers, added)? {
                        revived.push(row as u32);
                    }
                }
            }
        }
        Ok(revived)
    }

    /// The nodes that these edges leave.
    fn prefixes(&self, codec: &NodeCodec, side: Side, chunk: &StateRows, rows: &Range<usize>) -> Result<BinaryArray> {
        let layout = &self.links.layout;
        let columns = match side {
            Side::Near => layout.groups.clone(),
            Side::Far => layout.via.clone(),
        };
        let keys: Vec<ArrayRef> = chunk.batch().columns()[columns].iter().map(|key| key.slice(rows.start, rows.len())).collect();
        match side {
            Side::Near => codec.near(&keys, rows.len()),
            Side::Far => codec.far(&keys, rows.len()),
        }
    }

    /// Whether the edge of a new row is live without the new rows, wherever the new row makes it live.
    fn is_live_in(&self, side: Side, (chunk, row): (&StateRows, usize), layers: &[LayerRows<'_>], added: &[&StateRows]) -> Result<bool> {
        let key = chunk.keys().value(row);
        let is_added = |rows: &StateRows| added.iter().any(|chunk| std::ptr::eq(*chunk, rows));
        let rows_of_edge = |rows: &StateRows| {
            let from = rows.first_from(key);
            from..from + (from..rows.len()).take_while(|row| rows.keys().value(*row) == key).count()
        };
        let before: Vec<(&StateRows, Range<usize>)> =
            layers.iter().filter(|layer| !is_added(layer.rows)).map(|layer| (layer.rows, rows_of_edge(layer.rows))).collect();
        for condition in self.links.conditions.iter().filter(|condition| condition.side.is_none_or(|of| of == side)) {
            let column = self.plan.state_offset(condition.state);
            if timestamps(chunk.batch(), column)?.is_null(row) {
                continue;
            }
            let mut last: Option<Micros> = None;
            for (rows, range) in &before {
                let seen = timestamps(rows.batch(), column)?;
                last = range.clone().filter(|row| seen.is_valid(*row)).map(|row| seen.value(row)).max().max(last);
            }
            let is_live = |from: Option<Micros>| last.is_some_and(|last| from.is_none_or(|from| from <= last));
            if !self.links.ranges.iter().all(|range| is_live(range.range(side).at(self.t).from)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
