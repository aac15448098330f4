//! Near and far edges that meet in a node.

use std::ops::Range;

use crate::plan::links::{Both, Side};
use crate::walk::degree::Threshold;
use crate::walk::edges::EdgeSet;
use crate::walk::ids::DistinctEnds;

/// A node that a walk comes to, by its place among them. Edges and keys have numbers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeNumber(pub(super) u32);

impl NodeNumber {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A near and a far edge that meet, and the key that the near edge leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) group: u32,
    pub(super) near: u32,
    pub(super) far: u32,
    /// The node they meet in.
    pub(super) node: NodeNumber,
}

impl Pair {
    /// A side's edge.
    pub(super) fn edge(&self, side: Side) -> u32 {
        match side {
            Side::Near => self.near,
            Side::Far => self.far,
        }
    }
}

/// Whether all of these end points of a near and a far edge differ.
#[inline]
pub(super) fn differ(apart: &[DistinctEnds<'_>], near: u32, far: u32) -> bool {
    apart.iter().all(|ends| ends.near.differs(near as usize, ends.far, far as usize))
}

/// A near edge, the node that it leads to, and the far edges of that.
pub(super) struct MeetingEdge {
    pub(super) near: u32,
    pub(super) node: NodeNumber,
    pub(super) far: Range<u32>,
}

/// Near edges, in the order of their keys and of the nodes they lead to.
pub(super) struct Meeting<'a> {
    pub(super) near: &'a EdgeSet<'a>,
    pub(super) far: &'a EdgeSet<'a>,
    pub(super) edges: &'a [MeetingEdge],
    pub(super) thresholds: &'a [Threshold],
}

impl Meeting<'_> {
    /// Hands on the pairs of live edges whose end points differ, in the order of the keys, and of each key node after
    /// node.
    #[inline]
    pub(super) fn pairs(&self, live: Both<&[bool]>, apart: &[DistinctEnds<'_>], mut take: impl FnMut(Pair)) {
        for MeetingEdge { near, node, far } in self.edges.iter().filter(|edge| live.near[edge.near as usize]) {
            let group = self.near.node[*near as usize];
            let threshold = &self.thresholds[group as usize];
            for far in far.clone().filter(|far| live.far[*far as usize]) {
                if differ(apart, *near, far) && threshold.keeps(self.far.hash_of(far as usize)) {
                    take(Pair { group, near: *near, far, node: *node });
                }
            }
        }
    }
}
