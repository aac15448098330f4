//! Near and far edges that meet in a node.

use std::ops::Range;

use crate::plan::links::Side;
use crate::walk::degree::Threshold;
use crate::walk::edges::EdgeSet;
use crate::walk::ids::Apart;

/// A near and a far edge that meet, and the key that the near edge leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) group: u32,
    pub(super) near: u32,
    pub(super) far: u32,
    /// The node they meet in.
    pub(super) node: u32,
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
pub(super) fn differ(apart: &[Apart<'_>], near: u32, far: u32) -> bool {
    apart.iter().all(|(of_near, of_far)| of_near.differs(near as usize, of_far, far as usize))
}

/// Near edges, in the order of their keys and of the nodes they lead to, each with its node and the far edges of that.
pub(super) struct Meeting<'a> {
    pub(super) near: &'a EdgeSet<'a>,
    pub(super) far: &'a EdgeSet<'a>,
    pub(super) edges: &'a [(u32, u32, Range<u32>)],
    pub(super) thresholds: &'a [Threshold],
}

impl Meeting<'_> {
    /// Tells the pairs of live edges whose end points differ, in the order of the keys, and of each key node after
    /// node.
    #[inline]
    pub(super) fn pairs(&self, (near_live, far_live): (&[bool], &[bool]), apart: &[Apart<'_>], mut take: impl FnMut(Pair)) {
        for (near, node, of_node) in self.edges.iter().filter(|(near, ..)| near_live[*near as usize]) {
            let group = self.near.node[*near as usize];
            let threshold = &self.thresholds[group as usize];
            for far in of_node.clone().filter(|far| far_live[*far as usize]) {
                if differ(apart, *near, far) && threshold.keeps(self.far.hash_of(far as usize)) {
                    take(Pair { group, near: *near, far, node: *node });
                }
            }
        }
    }
}
