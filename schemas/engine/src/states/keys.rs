//! The encoded keys of a view's state rows.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use arrow::datatypes::FieldRef;

use crate::plan::ViewPlan;
use crate::states::nodes::NodeCodec;
use crate::states::tuples::TupleCodec;
use types::{Error, Result};

/// Encodes keys as bytes that sort like the keys, NULLs first.
#[derive(Debug)]
pub struct KeyCodec {
    keys: TupleCodec,
    /// Set if the keys are edges of a linked view.
    nodes: Option<Arc<NodeCodec>>,
}

impl KeyCodec {
    /// Creates the codec of keys that are not edges.
    pub fn new(keys: &[FieldRef]) -> Result<Self> {
        Ok(Self { keys: TupleCodec::new(keys)?, nodes: None })
    }

    /// The codec of a view's state rows.
    pub fn for_plan(plan: &ViewPlan) -> Result<Self> {
        let nodes = plan.links().map(|links| NodeCodec::new(&plan.keys, &links.layout).map(Arc::new)).transpose()?;
        Ok(Self { nodes, ..Self::new(&plan.keys)? })
    }

    /// If the keys are edges: the codec of the nodes from which they are walked.
    pub fn nodes(&self) -> Result<&Arc<NodeCodec>> {
        self.nodes.as_ref().ok_or_else(|| Error::internal("a walk over keys that are no edges"))
    }

    /// Returns the bytes that determine each row's bucket: its key, or for an edge the node from which it is walked.
    pub fn places(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        match &self.nodes {
            Some(nodes) => nodes.places(columns, rows),
            None => self.encode(columns, rows),
        }
    }

    /// Returns one encoded key per row. A view without keys has empty ones.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        self.keys.encode(columns, rows)
    }

    /// Returns the columns that [`KeyCodec::decode`] returns for the encoded keys of these.
    pub(super) fn canonical<'c>(&self, columns: &'c [ArrayRef]) -> Cow<'c, [ArrayRef]> {
        self.keys.canonical(columns)
    }

    /// Returns the key columns that were encoded.
    pub fn decode<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        self.keys.decode(keys)
    }
}
