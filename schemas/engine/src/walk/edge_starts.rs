//! The keys and nodes that changed edges start from.
//!
//! A row depends on its key's near edges, and on the far edges of the nodes they lead to. A changed near edge therefore
//! affects its own key (new near edges with old and new far edges). A changed far edge affects the keys with near edges
//! to its node (old near edges with new far edges).

use std::collections::HashSet;
use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;

use crate::plan::links::LinkPlan;
use crate::states::{KeyCodec, StateRows};
use types::Result;

/// Keys and nodes with changed edges, as the prefixes of the edges' keys.
#[derive(Debug, Default)]
pub struct EdgeStarts {
    /// A key's near edges are in one bucket.
    pub near: HashSet<Vec<u8>>,
    /// Nodes of any bucket.
    pub far: HashSet<Vec<u8>>,
}

impl EdgeStarts {
    /// Records the keys and nodes that these edges leave from.
    pub fn add(&mut self, codec: &KeyCodec, links: &LinkPlan, chunk: &StateRows, rows: Vec<u32>) -> Result<()> {
        let codec = codec.nodes()?;
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
