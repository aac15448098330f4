//! From nodes back to the group keys whose near edges lead to them. Edges are sorted by what they leave, so that
//! finding them by what they lead to takes an index.

use std::collections::{BTreeSet, HashSet};
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
    /// The hash of a node, and the first row of an edge that leads to it; sorted.
    by_node: Vec<(u64, u32)>,
}

impl ReverseEdges {
    pub fn new(codec: &KeyCodec, links: &LinkPlan, rows: StateRows) -> Result<ReverseEdges> {
        let nodes = codec.nodes()?;
        let near = nodes.near_rows(rows.batch())?;
        let columns = rows.batch().columns()[links.layout.via.clone()].iter();
        let via: Vec<ArrayRef> = columns.map(|key| key.slice(near.start, near.len())).collect();
        let reached = nodes.far(&via, near.len())?;
        let is_first = |row: &usize| *row == 0 || rows.keys().value(*row) != rows.keys().value(*row - 1);
        let mut by_node: Vec<(u64, u32)> = near.filter(is_first).map(|row| (bucket_hash(reached.value(row)), row as u32)).collect();
        by_node.sort_unstable();
        Ok(ReverseEdges { rows, by_node })
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
