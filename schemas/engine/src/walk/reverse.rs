//! From nodes back to the group keys whose near edges lead to them. Edges are sorted by what they leave, so that
//! finding them by what they lead to takes an index.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;

use crate::plan::links::LinkPlan;
use crate::states::buckets::bucket_hash;
use crate::states::{KeyCodec, StateRows};
use types::Result;

/// The near edges among some sorted state rows, by the nodes that they lead to. It takes 16 bytes for each.
#[derive(Debug)]
pub struct ReverseEdges {
    rows: StateRows,
    by_node: Vec<IndexedEdge>,
}

/// The hash of a node, and the first row of an edge that leads to it; sorted by both.
type IndexedEdge = (u64, u32);

/// Edges whose nodes are encoded together.
const TOGETHER: usize = 65_536;

impl ReverseEdges {
    /// Indexes the near edges among these rows.
    pub fn new(codec: &KeyCodec, links: &LinkPlan, rows: StateRows) -> Result<ReverseEdges> {
        let nodes = codec.nodes()?;
        let near = nodes.near_rows(rows.batch())?;
        let mut by_node: Vec<IndexedEdge> = Vec::with_capacity(first_rows(&rows, near.clone()).count());
        for from in near.clone().step_by(TOGETHER) {
            let part = from..near.end.min(from + TOGETHER);
            let columns = rows.batch().columns()[links.layout.via.clone()].iter();
            let via: Vec<ArrayRef> = columns.map(|key| key.slice(part.start, part.len())).collect();
            let reached = nodes.far(&via, part.len())?;
            by_node.extend(first_rows(&rows, part).map(|row| (bucket_hash(reached.value(row - from)), row as u32)));
        }
        by_node.sort_unstable();
        Ok(ReverseEdges { rows, by_node })
    }

    /// The bytes that an index of these rows takes.
    pub fn bytes_for(codec: &KeyCodec, rows: &StateRows) -> Result<usize> {
        let near = codec.nodes()?.near_rows(rows.batch())?;
        Ok(first_rows(rows, near).count() * size_of::<IndexedEdge>())
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.by_node.len() * size_of::<IndexedEdge>()
    }

    /// Adds the keys, as the prefixes of their near edges, from which an edge leads to one of these nodes, and perhaps
    /// others.
    pub fn add_keys(&self, codec: &KeyCodec, links: &LinkPlan, nodes: &HashSet<Vec<u8>>, keys: &mut BTreeSet<Arc<[u8]>>) -> Result<()> {
        let mut leading: Vec<u32> = Vec::new();
        for node in nodes {
            let hash = bucket_hash(node);
            let from = self.by_node.partition_point(|(known, _)| *known < hash);
            leading.extend(self.by_node[from..].iter().take_while(|(known, _)| *known == hash).map(|(_, row)| *row));
        }
        if leading.is_empty() {
            return Ok(());
        }
        let count = leading.len();
        let rows = UInt32Array::from(leading);
        let columns = self.rows.batch().columns()[links.layout.groups.clone()].iter();
        let groups = columns.map(|key| Ok(take(key, &rows, None)?)).collect::<Result<Vec<ArrayRef>>>()?;
        let prefixes = codec.nodes()?.near(&groups, count)?;
        keys.extend(prefixes.iter().flatten().map(Arc::from));
        Ok(())
    }
}

/// The first row of each edge that begins among these rows.
fn first_rows(rows: &StateRows, among: Range<usize>) -> impl Iterator<Item = usize> {
    let keys = rows.keys();
    among.filter(move |row| *row == 0 || keys.value(*row) != keys.value(*row - 1))
}
