//! Pairs of edges that meet in a node.

/// A near and a far edge that meet, and the key that the near edge leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) group: u32,
    pub(super) near: u32,
    pub(super) far: u32,
}
