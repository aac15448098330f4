//! Answering a linked view: from group keys along live near edges to nodes, and along their live far edges to end
//! points.
//!
//! ```text
//! keys --near edges--> nodes (the join keys) --far edges--> pairs --ends, states x copies--> values --project--> rows
//! ```
//!
//! Base and fresh edges are walked together, each layer's rows found by the beginning of their keys. Near edges are
//! held all at once (of at most `max_degree` nodes for a key), far edges a batch of nodes at a time: memory is bounded
//! by the degree, not by the pairs.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;

use crate::plan::ViewPlan;
use crate::plan::links::{ConditionIndex, LinkPlan, Side};
use crate::states::values::{FailedValue, Values};
use crate::states::{KeyCodec, Probe};
use types::Result;
use types::tiles::{Micros, RowTime, Span};

mod alive;
mod degree;
mod edge_starts;
mod edge_times;
mod edges;
mod estimate;
mod ids;
mod layers;
mod live;
mod meet;
mod merge;
mod node_index;
mod paths;
mod reverse;
mod revived;
mod scan;
mod seen;

use degree::Threshold;
use edges::{EdgeSet, NodeRows, batches};
use meet::{Meeting, MeetingEdge, NodeNumber};
use merge::{MergedPairs, Merging};

pub use edge_starts::EdgeStarts;
pub use edge_times::EdgeTimes;
pub use layers::{EdgeLayers, LayerRows, NodeProbe, PartChunk, SnapshotEdges, TierEdges};
pub use node_index::NodeIndex;
pub use reverse::ReverseEdges;
pub use seen::{LinkedView, NoEdges};

/// Near edges that are held at once, of as many keys as that is.
const NEAR_EDGES: usize = 65_536;
/// Far edges that are held at once.
const FAR_EDGES: usize = 262_144;

/// What a walk is of.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    pub plan: &'a ViewPlan,
    pub codec: &'a KeyCodec,
    pub links: &'a LinkPlan,
    pub layers: &'a dyn EdgeLayers,
    pub t: Micros,
    /// Whether events of later tiles count too.
    row_time: RowTime,
    cancel_check: &'a CancelCheck<'a>,
}

/// Called with an index of the keys asked, and the beginning of encoded edges that its row is made of.
pub(crate) type Touched<'t> = dyn FnMut(usize, &[u8]) + 't;

/// Called before each batch of edges: an error ends the walk.
pub type CancelCheck<'c> = dyn Fn() -> Result<()> + Sync + 'c;

/// What a walk found, in the order of the keys asked.
pub struct Walked {
    pub rows: RecordBatch,
    /// Which keys have a row.
    pub found: Vec<bool>,
    /// Of which keys a node had more neighbours than are followed: their values are estimates.
    pub estimated: Vec<bool>,
    /// Values that could not be computed, of the rows that exist.
    pub failed: Vec<FailedValue>,
}

impl<'a> Walk<'a> {
    /// Creates a walk that answers at `t` and is never cancelled.
    pub fn new(plan: &'a ViewPlan, codec: &'a KeyCodec, links: &'a LinkPlan, layers: &'a dyn EdgeLayers, t: Micros) -> Self {
        Self { plan, codec, links, layers, t, row_time: t.into(), cancel_check: &|| Ok(()) }
    }

    /// The same, ended by an error of `cancel_check`.
    pub fn cancelled_by(self, cancel_check: &'a CancelCheck<'a>) -> Self {
        Self { cancel_check, ..self }
    }

    /// The same without the events that lie after the hop of the walk's time ([`RowTime::up_to`]), where edges keep
    /// tiles.
    #[must_use]
    pub fn up_to_its_time(self) -> Self {
        Self { row_time: RowTime::up_to(self.t), ..self }
    }

    /// The rows of these group keys (a column each, in the order of the view's keys). Keys are walked together as long
    /// as their near edges are few.
    pub fn rows(&self, groups: &[ArrayRef], rows: usize, wanted: &[usize]) -> Result<Walked> {
        self.rows_at(groups, &vec![self.t; rows], wanted, &mut |_, _| {})
    }

    /// The same for keys with times of their own, at which all ranges have the edges that they have at the walk's time.
    /// `touched` is called with every node that a key's row is made of.
    pub(crate) fn rows_at(&self, groups: &[ArrayRef], times: &[Micros], wanted: &[usize], touched: &mut Touched<'_>) -> Result<Walked> {
        let rows = times.len();
        let keys = self.find_keys(groups, rows)?;
        let together = batches(&keys, NEAR_EDGES);
        if together.len() < 2 {
            return self.rows_together(groups, times, &keys, wanted, touched);
        }
        let (mut parts, mut found, mut estimated) =
            (Vec::with_capacity(together.len()), Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut failed = Vec::new();
        for batch in together {
            let of_keys: Vec<ArrayRef> = groups.iter().map(|group| group.slice(batch.start, batch.len())).collect();
            let from = batch.start;
            let answers =
                self.rows_together(&of_keys, &times[batch.clone()], &keys[batch], wanted, &mut |key, node| touched(from + key, node))?;
            parts.push(answers.rows);
            failed.extend(answers.failed.into_iter().map(|value| FailedValue { row: from + value.row, ..value }));
            found.extend(answers.found);
            estimated.extend(answers.estimated);
        }
        let rows = concat_batches(&parts[0].schema(), &parts)?;
        Ok(Walked { rows, found, estimated, failed })
    }

    /// The edges of every range that a row at `t` depends on. Rows at two times with the same edges differ only in what
    /// is computed from the time itself.
    pub fn spans_at(plan: &ViewPlan, links: &LinkPlan, t: Micros) -> Vec<Span> {
        let of_pairs = links.ranges.iter().flat_map(|range| [Side::Near, Side::Far].map(|side| range.range(side).at(t)));
        plan.ranges.iter().map(|range| range.at(t)).chain(of_pairs).collect()
    }

    /// The same as [`Walk::rows`] where that takes at most `budget` edges; `None` where it takes more. Nothing is
    /// merged before that is known.
    pub fn rows_within(&self, budget: usize, groups: &[ArrayRef], rows: usize, wanted: &[usize]) -> Result<Option<Walked>> {
        let keys = self.find_keys(groups, rows)?;
        if keys.iter().map(|key| key.rows).sum::<usize>() > budget {
            return Ok(None);
        }
        let reached = self.reach(&keys, &mut |_, _| {})?;
        if reached.edges() > budget {
            return Ok(None);
        }
        self.answer(groups, &vec![self.t; rows], &reached, wanted).map(Some)
    }

    fn rows_together(
        &self,
        groups: &[ArrayRef],
        times: &[Micros],
        keys: &[NodeRows<'a>],
        wanted: &[usize],
        touched: &mut Touched<'_>,
    ) -> Result<Walked> {
        (self.cancel_check)()?;
        self.answer(groups, times, &self.reach(keys, touched)?, wanted)
    }

    /// The first hop: the near edges of these keys, and the nodes they lead to.
    fn reach(&self, keys: &[NodeRows<'a>], touched: &mut Touched<'_>) -> Result<Reached<'a>> {
        let near = EdgeSet::gather(self, Side::Near, keys.iter())?;
        let nodes = self.nodes(&near, touched)?;
        Ok(Reached { keys: keys.len(), near, nodes })
    }

    /// The second hop: the far edges of the nodes, merged into rows.
    fn answer(&self, groups: &[ArrayRef], times: &[Micros], reached: &Reached<'a>, wanted: &[usize]) -> Result<Walked> {
        let Reached { keys, near, nodes } = reached;
        let mut thresholds = near.thresholds(*keys);
        self.thin(near, nodes, &mut thresholds)?;
        let mut merging = Merging::new(self, near, wanted, &thresholds)?;
        self.meet(near, nodes, &thresholds, &mut |meeting| merging.take(meeting))?;
        let MergedPairs { values, flaws, found } = merging.finish(groups, times)?;
        let estimated = thresholds.iter().map(Threshold::is_sampled).collect();
        let (rows, mut failed) = Values::from_batch(&values).with_flaws(flaws).project(self.plan, wanted)?;
        failed.retain(|value| found[value.row]);
        Ok(Walked { rows, found, estimated, failed })
    }

    /// Finds the near edges that leave these keys.
    fn find_keys(&self, groups: &[ArrayRef], rows: usize) -> Result<Vec<NodeRows<'a>>> {
        let codec = self.codec.nodes()?;
        let (prefixes, places) = (codec.near(groups, rows)?, codec.near_places(groups, rows)?);
        let node = |row: usize| NodeProbe { prefix: Probe::new(prefixes.value(row)), place: places.value(row) };
        Ok(NodeRows::find_all(self, &(0..rows).map(node).collect::<Vec<_>>()))
    }

    /// The nodes that live near edges lead to, with the edges that do.
    fn nodes(&self, near: &EdgeSet<'_>, touched: &mut Touched<'_>) -> Result<Nodes<'a>> {
        let codec = self.codec.nodes()?;
        let prefixes = codec.far(&near.keys(self, &self.links.layout.via)?, near.len())?;
        let live = near.live(self, ConditionIndex::NONE, self.links.longest_range())?;
        let (mut probes, mut reached) = (Vec::new(), Vec::new());
        let mut known: hashbrown::HashMap<&[u8], NodeNumber> = hashbrown::HashMap::with_capacity(near.len());
        for edge in (0..near.len()).filter(|edge| live[*edge]) {
            let prefix = prefixes.value(edge);
            touched(near.node[edge] as usize, prefix);
            let next = NodeNumber(probes.len() as u32);
            let node = *known.entry(prefix).or_insert(next);
            if node == next {
                probes.push(NodeProbe { prefix: Probe::new(prefix), place: prefix });
            }
            reached.push(ReachedNode { edge: edge as u32, node });
        }
        reached.sort_by_key(|reached| (near.node[reached.edge as usize], reached.node));
        Ok(Nodes { by_number: NodeRows::find_all(self, &probes), reached })
    }

    /// Where a node has more neighbours than are followed, every key that reaches it sees the same sample of end
    /// points: those whose hash is under the least threshold of its nodes.
    fn thin(&self, near: &EdgeSet<'_>, nodes: &Nodes<'_>, thresholds: &mut [Threshold]) -> Result<()> {
        if nodes.by_number.iter().all(|node| node.rows <= self.links.max_degree) {
            return Ok(());
        }
        let of_node = nodes.by_number.iter().map(|node| node.threshold(self, Side::Far)).collect::<Result<Vec<_>>>()?;
        for ReachedNode { edge, node } in &nodes.reached {
            if let Some(most) = of_node[node.index()] {
                let threshold = &mut thresholds[near.node[*edge as usize] as usize];
                threshold.far = threshold.far.min(most);
            }
        }
        Ok(())
    }

    /// Brings near edges, in the order of their keys, together with the far edges of their nodes, a bounded number of
    /// these at a time.
    fn meet(&self, near: &EdgeSet<'_>, nodes: &Nodes<'a>, thresholds: &[Threshold], take: &mut Take<'_>) -> Result<()> {
        let mut place: Vec<Option<u32>> = vec![None; nodes.by_number.len()];
        let mut from = 0;
        while from < nodes.reached.len() {
            (self.cancel_check)()?;
            let (mut together, mut held, mut to) = (Vec::new(), 0, from);
            while to < nodes.reached.len() {
                let node = nodes.reached[to].node;
                if place[node.index()].is_none() {
                    let rows = nodes.by_number[node.index()].rows;
                    if held > 0 && held + rows > FAR_EDGES {
                        break;
                    }
                    place[node.index()] = Some(together.len() as u32);
                    together.push(node);
                    held += rows;
                }
                to += 1;
            }
            let mut far = EdgeSet::gather(self, Side::Far, together.iter().map(|node| &nodes.by_number[node.index()]))?;
            if thresholds.iter().any(Threshold::samples_far) {
                far.hash(self)?;
            }
            let of_place = far.edges_of_nodes(together.len());
            let far_edges = |node: NodeNumber| place[node.index()].map_or(0..0, |place| of_place[place as usize].clone());
            let meeting = |reached: &ReachedNode| MeetingEdge { near: reached.edge, node: reached.node, far: far_edges(reached.node) };
            let edges: Vec<MeetingEdge> = nodes.reached[from..to].iter().map(meeting).collect();
            take(&Meeting { near, far: &far, edges: &edges, thresholds })?;
            together.iter().for_each(|node| place[node.index()] = None);
            from = to;
        }
        Ok(())
    }
}

/// What the first hop of a walk found.
struct Reached<'a> {
    keys: usize,
    near: EdgeSet<'a>,
    nodes: Nodes<'a>,
}

impl Reached<'_> {
    /// Near edges, and the far edges that the second hop has to gather.
    fn edges(&self) -> usize {
        self.near.len() + self.nodes.by_number.iter().map(|node| node.rows).sum::<usize>()
    }
}

type Take<'t> = dyn FnMut(&Meeting<'_>) -> Result<()> + 't;

/// Nodes, each once, and the near edges that lead to them, in the order of their keys and nodes.
struct Nodes<'a> {
    by_number: Vec<NodeRows<'a>>,
    reached: Vec<ReachedNode>,
}

/// A near edge, and the node that it leads to.
struct ReachedNode {
    edge: u32,
    node: NodeNumber,
}

#[cfg(test)]
mod tests;
