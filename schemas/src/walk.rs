//! Answering a linked view: from group keys along live near edges to nodes, and along their live far edges to end points.
//!
//! ```text
//! keys --near edges--> nodes (the join keys) --far edges--> pairs --ends, states x copies--> values --project--> rows
//! ```
//!
//! Base and fresh edges are walked together, each layer's rows found by the beginning of their keys. Near edges are held all at once
//! (at most `max_degree` for a key), far edges a batch of nodes at a time: memory is bounded by the degree, not by the pairs.

use std::collections::HashMap;

use crate::error::Result;
use crate::plan::links::{Ends, LinkPlan, Side};
use crate::registry::LiveView;
use crate::states::answer::project;
use crate::tiles::Micros;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;

mod degree;
mod edges;
mod estimate;
mod layers;
mod merge;
mod pairs;
mod paths;
mod scan;

use degree::Threshold;
use edges::{EdgeSet, Ids, NodeAt};
use merge::Merging;
use pairs::Pair;

pub use layers::{Buckets, EdgeLayers, LayerRows};

/// Near edges that are held at once, of as many keys as that is.
const NEAR_EDGES: usize = 65_536;
/// Far edges that are held at once.
const FAR_EDGES: usize = 262_144;
/// Pairs that are handed on at once.
const PAIRS: usize = 65_536;

/// What a walk is of.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    pub view: &'a LiveView,
    pub links: &'a LinkPlan,
    pub layers: &'a dyn EdgeLayers,
    pub t: Micros,
}

/// What a walk found, in the order of the keys asked.
pub struct Walked {
    pub rows: RecordBatch,
    /// Which keys have a row.
    pub found: Vec<bool>,
    /// Nodes had more neighbours than are followed: their values are estimates.
    pub estimated: bool,
}

impl<'a> Walk<'a> {
    pub fn new(view: &'a LiveView, links: &'a LinkPlan, layers: &'a dyn EdgeLayers, t: Micros) -> Self {
        Self { view, links, layers, t }
    }

    /// The rows of these group keys (a column each, in the order of the view's keys). Keys are walked together as long as their near
    /// edges are few.
    pub fn rows(&self, groups: &[ArrayRef], rows: usize, wanted: &[usize]) -> Result<Walked> {
        let at = self.keys_at(groups, rows)?;
        let together = batches(&at, NEAR_EDGES);
        if together.len() < 2 {
            return self.rows_together(groups, &at, wanted);
        }
        let (mut parts, mut found, mut estimated) = (Vec::with_capacity(together.len()), Vec::with_capacity(rows), false);
        for keys in together {
            let of_keys: Vec<ArrayRef> = groups.iter().map(|group| group.slice(keys.start, keys.len())).collect();
            let answers = self.rows_together(&of_keys, &at[keys], wanted)?;
            parts.push(answers.rows);
            found.extend(answers.found);
            estimated |= answers.estimated;
        }
        let rows = concat_batches(&parts[0].schema(), &parts)?;
        Ok(Walked { rows, found, estimated })
    }

    fn rows_together(&self, groups: &[ArrayRef], at: &[NodeAt], wanted: &[usize]) -> Result<Walked> {
        let rows = at.len();
        let near = EdgeSet::gather(self, Side::Near, at)?;
        let mut merging = Merging::new(self, &near, wanted, rows)?;
        let nodes = self.nodes(&near)?;
        let mut thresholds = near.thresholds(rows);
        self.thin(&near, &nodes, &mut thresholds)?;
        merging.estimate(&thresholds);
        for batch in batches(&nodes.at, FAR_EDGES) {
            let mut far = EdgeSet::gather(self, Side::Far, &nodes.at[batch.clone()])?;
            if thresholds.iter().any(Threshold::samples_far) {
                far.hash(self)?;
            }
            merging.hold_far(&far)?;
            self.pair(&near, &nodes.from[batch], &far, &thresholds, &mut |pairs| merging.take(&near, &far, pairs))?;
        }
        let (values, found) = merging.finish(groups)?;
        let estimated = thresholds.iter().any(Threshold::is_sampled);
        Ok(Walked { rows: project(&self.view.plan, &values, wanted)?, found, estimated })
    }

    /// Where the near edges that leave these keys are found.
    fn keys_at(&self, groups: &[ArrayRef], rows: usize) -> Result<Vec<NodeAt>> {
        let codec = self.view.codec.nodes()?;
        let (prefixes, places) = (codec.near(groups, rows)?, codec.near_places(groups, rows)?);
        Ok((0..rows).map(|row| NodeAt::measured(self, prefixes.value(row), places.value(row))).collect())
    }

    /// The nodes that live near edges lead to, with the edges that do.
    fn nodes(&self, near: &EdgeSet<'_>) -> Result<Nodes> {
        let codec = self.view.codec.nodes()?;
        let via = &near.keys[self.links.layout.via.clone()];
        let prefixes = codec.far(via, near.len())?;
        let live = near.live(self, 0, &self.links.ranges[self.links.existence])?;
        let mut nodes = Nodes::default();
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        for edge in (0..near.len()).filter(|edge| live[*edge]) {
            let prefix = prefixes.value(edge);
            let next = nodes.at.len();
            let node = *known.entry(prefix).or_insert(next);
            if node == next {
                nodes.at.push(NodeAt::measured(self, prefix, prefix));
                nodes.from.push(Vec::new());
            }
            nodes.from[node].push(edge as u32);
        }
        Ok(nodes)
    }

    /// Where a node has more neighbours than are followed, every key that reaches it sees the same sample of end points: those whose
    /// hash is under the least threshold of its nodes.
    fn thin(&self, near: &EdgeSet<'_>, nodes: &Nodes, thresholds: &mut [Threshold]) -> Result<()> {
        for (node, from) in nodes.at.iter().zip(&nodes.from).filter(|(node, _)| node.rows > self.links.max_degree) {
            let Some(most) = degree::far_threshold(self, node)? else { continue };
            for edge in from {
                let threshold = &mut thresholds[near.node[*edge as usize] as usize];
                threshold.far = threshold.far.min(most);
            }
        }
        Ok(())
    }

    /// Tells the pairs of near and far edges that meet and whose end points differ where WHERE says so, a bounded number at a time.
    fn pair(
        &self,
        near: &EdgeSet<'_>,
        from: &[Vec<u32>],
        far: &EdgeSet<'_>,
        thresholds: &[Threshold],
        take: &mut dyn FnMut(&[Pair]) -> Result<()>,
    ) -> Result<()> {
        let apart: Vec<(Ids, Ids)> = self.links.apart.iter().map(|at| ends_of(&self.links.ends[*at], near, far)).collect::<Result<_>>()?;
        let mut pairs = Vec::with_capacity(PAIRS.min(far.len() * 2));
        for edge in 0..far.len() {
            for other in &from[far.node[edge] as usize] {
                let group = near.node[*other as usize];
                let differ = apart.iter().all(|(near, far)| near.differs(*other as usize, far, edge));
                if !differ || !thresholds[group as usize].keeps(far, edge) {
                    continue;
                }
                pairs.push(Pair { group, near: *other, far: edge as u32 });
                if pairs.len() == PAIRS {
                    take(&pairs)?;
                    pairs.clear();
                }
            }
        }
        if pairs.is_empty() { Ok(()) } else { take(&pairs) }
    }
}

/// The end points of both sides as numbers: equal where the values are.
fn ends_of(ends: &Ends, near: &EdgeSet<'_>, far: &EdgeSet<'_>) -> Result<(Ids, Ids)> {
    let mut numbers = HashMap::new();
    Ok((Ids::of(&near.keys[ends.near], &mut numbers)?, Ids::of(&far.keys[ends.far], &mut numbers)?))
}

/// Nodes, each once, with the near edges that lead to it.
#[derive(Default)]
struct Nodes {
    at: Vec<NodeAt>,
    from: Vec<Vec<u32>>,
}

/// Runs of nodes that have about so many edges together.
fn batches(nodes: &[NodeAt], edges: usize) -> Vec<std::ops::Range<usize>> {
    let (mut batches, mut from, mut held) = (Vec::new(), 0, 0);
    for (index, node) in nodes.iter().enumerate() {
        if held > 0 && held + node.rows > edges {
            batches.push(from..index);
            (from, held) = (index, 0);
        }
        held += node.rows;
    }
    if from < nodes.len() {
        batches.push(from..nodes.len());
    }
    batches
}
#[cfg(test)]
mod tests;
