//! Finds the edges that change when a run adds a delta to a snapshot: those of the delta, and those of the snapshot
//! over which the edge of a window has passed since.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use committed::registry::LiveView;
use engine::plan::links::{EdgeKind, LinkPlan};
use engine::states::{SortedRun, StateRows, bucket_of, tiles};
use engine::walk::{EdgeStarts, SnapshotEdges};
use types::Result;
use types::tiles::Micros;

use super::JoinTimes;
use super::compare::{Edge, LastSeen, Passed, edges, passed, side};

/// The previous snapshot, and the run's addition to it.
pub(in crate::join) struct Added {
    view: LiveView,
    links: Arc<LinkPlan>,
    before: SnapshotEdges,
    delta: SnapshotEdges,
    passed_edges: PassedEdges,
}

/// The times over which the edges of ranges have passed, for either side of the join.
enum PassedEdges {
    /// An edge changes if it is live now and was not, or was and is not.
    Liveness { near: Vec<Edge>, far: Vec<Edge> },
    /// A row changes if its tile was passed over.
    Full { near: Vec<Passed>, far: Vec<Passed> },
}

impl Added {
    pub(in crate::join) fn new(
        view: &LiveView,
        links: &Arc<LinkPlan>,
        before: SnapshotEdges,
        delta: SnapshotEdges,
        times: JoinTimes,
    ) -> Added {
        let passed_edges = match links.kind {
            EdgeKind::Liveness => {
                PassedEdges::Liveness { near: edges(links, |range| range.near, times), far: edges(links, |range| range.far, times) }
            }
            EdgeKind::Full => {
                PassedEdges::Full { near: passed(links, |range| range.near, times), far: passed(links, |range| range.far, times) }
            }
        };
        Added { view: view.clone(), links: links.clone(), before, delta, passed_edges }
    }

    /// The runs in which edges may have changed, and whether each is of the delta.
    pub(in crate::join) fn runs(&self) -> Vec<(Arc<SortedRun>, bool)> {
        let runs = |edges: &SnapshotEdges| edges.0.iter().flat_map(|tier| tier.0.iter().map(|(run, _)| run.clone())).collect::<Vec<_>>();
        let before = if self.passed_edges.is_empty() { Vec::new() } else { runs(&self.before) };
        runs(&self.delta).into_iter().map(|run| (run, true)).chain(before.into_iter().map(|run| (run, false))).collect()
    }

    /// Returns what changed among the edges of a run.
    pub(in crate::join) fn changed_in(&self, run: &SortedRun, is_added: bool) -> Result<EdgeStarts> {
        let mut found = EdgeStarts::default();
        for chunk in run.chunks() {
            let rows = match &self.passed_edges {
                PassedEdges::Full { .. } if is_added => (0..chunk.len() as u32).collect(),
                PassedEdges::Full { near, far } => passed_rows(chunk, near, far)?,
                PassedEdges::Liveness { near, far } => self.changed_edges(chunk, is_added, near, far)?,
            };
            if !rows.is_empty() {
                found.add(&self.view.codec, &self.links, chunk, rows)?;
            }
        }
        Ok(found)
    }

    /// Returns the rows of the edges that are live now and were not, or were and are not.
    fn changed_edges(&self, chunk: &StateRows, is_added: bool, near: &[Edge], far: &[Edge]) -> Result<Vec<u32>> {
        let seen = LastSeen::from_rows(&self.view, &self.links, chunk)?;
        let edges_of = |row: usize| if seen.far.value(row) { far } else { near };
        let may_change = |row: &usize| is_added || edges_of(*row).iter().any(|edge| edge.passes(&seen, *row));
        let rows: Vec<u32> = (0..chunk.len()).filter(may_change).map(|row| row as u32).collect();
        if rows.is_empty() {
            return Ok(rows);
        }
        let numbers = UInt32Array::from(rows.clone());
        let keys = chunk.batch().columns()[..self.view.plan.keys.len()].iter();
        let keys: Vec<ArrayRef> = keys.map(|key| Ok(take(key, &numbers, None)?)).collect::<Result<_>>()?;
        let places = self.view.codec.places(&keys, rows.len())?;
        let mut changed = Vec::new();
        for (at, row) in rows.into_iter().enumerate() {
            let key = chunk.keys().value(row as usize);
            let was = self.last_seen(&self.before, key, places.value(at))?;
            let added = self.last_seen(&self.delta, key, places.value(at))?;
            let differs = edges_of(row as usize).iter().any(|edge| {
                let (was, added) = (was[edge.condition], added[edge.condition]);
                is_live(was, edge.before) != is_live(was.max(added), edge.now)
            });
            if differs {
                changed.push(row);
            }
        }
        Ok(changed)
    }

    /// Returns when an edge was last seen, under each condition.
    fn last_seen(&self, edges: &SnapshotEdges, key: &[u8], place: &[u8]) -> Result<Vec<Option<Micros>>> {
        let mut last = vec![None; self.links.conditions.len()];
        for tier in &edges.0 {
            let (run, _) = &tier.0[bucket_of(place, tier.0.len() as u32) as usize];
            for (chunk, rows) in run.find(key) {
                let seen = LastSeen::from_rows(&self.view, &self.links, chunk)?;
                for (last, times) in last.iter_mut().zip(&seen.last) {
                    let newest = rows.clone().filter(|row| times.is_valid(*row)).map(|row| times.value(row)).max();
                    *last = newest.max(*last);
                }
            }
        }
        Ok(last)
    }
}

impl PassedEdges {
    fn is_empty(&self) -> bool {
        match self {
            PassedEdges::Liveness { near, far } => near.iter().chain(far).all(|edge| edge.before == edge.now),
            PassedEdges::Full { near, far } => near.is_empty() && far.is_empty(),
        }
    }
}

impl Edge {
    /// Whether a range's left edge has passed over the time at which an edge was last seen.
    fn passes(&self, seen: &LastSeen<'_>, row: usize) -> bool {
        let last = seen.last[self.condition];
        let last = last.is_valid(row).then(|| last.value(row));
        is_live(last, self.before) != is_live(last, self.now)
    }
}

fn is_live(last: Option<Micros>, from: Option<Micros>) -> bool {
    last.is_some_and(|last| from.is_none_or(|from| from <= last))
}

fn passed_rows(chunk: &StateRows, near: &[Passed], far: &[Passed]) -> Result<Vec<u32>> {
    let (is_far, tiles) = (side(chunk)?, tiles(chunk.batch())?);
    let is_passed = |row: &usize| {
        let passed = if is_far.value(*row) { far } else { near };
        passed.iter().any(|passed| passed.contains(&tiles[*row]))
    };
    Ok((0..chunk.len()).filter(is_passed).map(|row| row as u32).collect())
}
