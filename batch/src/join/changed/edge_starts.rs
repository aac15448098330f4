//! The keys and nodes that changed edges start from.

use std::collections::HashSet;
use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use committed::registry::LiveView;
use engine::plan::links::LinkPlan;
use engine::states::StateRows;
use types::Result;

/// Keys and nodes with changed edges, as the prefixes of the edges' keys.
#[derive(Debug, Default)]
pub(in crate::join) struct Changed {
    /// Keys of one part: a key's near edges are in the same bucket.
    pub(in crate::join) near: HashSet<Vec<u8>>,
    /// Nodes of any part.
    pub(in crate::join) far: HashSet<Vec<u8>>,
}

impl Changed {
    /// Records the keys and nodes that these edges leave from.
    pub(super) fn add(&mut self, view: &LiveView, links: &LinkPlan, chunk: &StateRows, rows: Vec<u32>) -> Result<()> {
        let codec = view.codec.nodes()?;
        let near_rows = codec.near_rows(chunk.batch())?.end;
        let (near, far): (Vec<u32>, Vec<u32>) = rows.into_iter().partition(|row| (*row as usize) < near_rows);
        let taken = |columns: &Range<usize>, rows: &[u32]| -> Result<Vec<ArrayRef>> {
            let rows = UInt32Array::from(rows.to_vec());
            chunk.batch().columns()[columns.clone()].iter().map(|key| Ok(take(key, &rows, None)?)).collect()
        };
        let groups = codec.near(&taken(&links.layout.groups, &near)?, near.len())?;
        let nodes = codec.far(&taken(&links.layout.via, &far)?, far.len())?;
        self.near.extend(groups.iter().flatten().map(<[u8]>::to_vec));
        self.far.extend(nodes.iter().flatten().map(<[u8]>::to_vec));
        Ok(())
    }
}
