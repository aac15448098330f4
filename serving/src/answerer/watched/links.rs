//! The same for a linked view, where an event changes the rows of keys that it does not name: those whose near edges
//! lead to the node of a far edge. They are found by an index of the near edges, which an alert keeps from round to
//! round.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::alerts::AlertPlan;
use engine::plan::links::LinkPlan;
use engine::states::{SortedRun, StateRows};
use engine::walk::{CancelCheck, EdgeStarts, ReverseEdges, Walked};
use types::tiles::{Level, Micros};
use types::{Error, Result};

use super::WatchedRows;
use crate::ServingClock;
use crate::answerer::edge_layers::ViewEdges;
use crate::answerer::key_range::KeyRange;
use crate::answerer::{KeyPart, StateSource};
use crate::read_view::{LoadedView, ReadView};

/// If more keys than this may have changed, all are looked at.
const MOST_KEYS: usize = 100_000;

/// The near edges of a linked view by the nodes that they lead to, for each chunk of its state rows. It takes 16 bytes
/// for each edge of a chunk, and is empty for another view.
#[derive(Debug)]
pub struct ReverseIndex {
    /// A chunk stays in memory as long as it is here, so that no other one has its address.
    chunks: HashMap<ChunkAddress, ReverseEdges>,
    /// Their bytes, and those of the chunks that are still to be indexed.
    reserved: MemoryReservation,
}

/// Where the encoded keys of a chunk are, and how many.
type ChunkAddress = (usize, usize);

impl ReverseIndex {
    /// An empty index, which takes its memory from this pool.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        Self { chunks: HashMap::new(), reserved: MemoryConsumer::new("ReverseIndex").register(pool) }
    }

    /// Drops the chunks that the view does not have any more. Returns those that are not indexed yet, and takes the
    /// memory for all of them at once: an index that has no room in the end must not keep it from others meanwhile.
    ///
    /// `None` if there is no room: then the index is empty, because a part of it is of no use.
    ///
    /// `cancel_check` is called before the edges of each such chunk are counted.
    ///
    /// Errors: `Unavailable` while the snapshot is being copied, and those of `cancel_check`.
    pub fn lacking(&mut self, read_view: &ReadView, view: &LoadedView, cancel_check: &CancelCheck<'_>) -> Result<Option<Vec<StateRows>>> {
        if view.live.plan.links().is_none() {
            return Ok(Some(Vec::new()));
        }
        let of_snapshot = view.snapshot.as_ref().map_or(Ok(Vec::new()), |snapshot| snapshot.runs())?;
        let of_layers = view.layers.iter().flat_map(|layer| layer.run.chunks());
        let fresh = read_view.fresh_of(&view.live).map(|rows| &**rows);
        let chunks = of_snapshot.into_iter().flat_map(SortedRun::chunks).chain(of_layers).chain(fresh);
        let mut present: HashMap<ChunkAddress, &StateRows> =
            chunks.filter(|rows| !rows.is_empty()).map(|rows| (address(rows), rows)).collect();
        self.chunks.retain(|address, _| present.remove(address).is_some());
        let lacking: Vec<StateRows> = present.into_values().cloned().collect();
        let mut needed_bytes: usize = self.chunks.values().map(ReverseEdges::bytes).sum();
        for rows in &lacking {
            cancel_check()?;
            needed_bytes += ReverseEdges::bytes_for(&view.live.codec, rows)?;
        }
        if self.reserved.try_resize(needed_bytes).is_err() {
            self.chunks = HashMap::new();
            self.reserved.free();
            return Ok(None);
        }
        Ok(Some(lacking))
    }

    /// Indexes a chunk that was lacking.
    pub fn add(&mut self, view: &LoadedView, rows: StateRows) -> Result<()> {
        self.chunks.insert(address(&rows), ReverseEdges::new(&view.live.codec, links(view)?, rows)?);
        Ok(())
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.reserved.size()
    }
}

fn address(rows: &StateRows) -> ChunkAddress {
    (rows.keys().value_offsets().as_ptr().addr(), rows.len())
}

/// As many parts, each with about as many of the keys.
pub(super) fn parts(count: u32) -> Vec<KeyPart> {
    (0..count).map(|part| KeyPart { part, parts: count, range: KeyRange::default() }).collect()
}

/// The encoded keys of a linked view that have near edges, to be taken part by part.
#[derive(Debug)]
pub struct LinkedKeys {
    /// Those of layers and fresh states, which have no buckets, by part. They are read once.
    of_layers: Vec<BTreeSet<Vec<u8>>>,
}

impl LinkedKeys {
    /// `cancel_check` is called before each chunk of states.
    ///
    /// Errors: `Unavailable` while the snapshot is being copied, and those of `cancel_check`.
    pub fn new(read_view: &ReadView, view: &LoadedView, parts: &[KeyPart], cancel_check: &CancelCheck<'_>) -> Result<LinkedKeys> {
        let source = StateSource::new(read_view, view, None);
        let edges = ViewEdges::new(&source, &view.live)?;
        let walk = view.live.walk(links(view)?, &edges, 0).cancelled_by(cancel_check);
        Ok(LinkedKeys { of_layers: walk.keys_by_part(&edges.chunks_without_parts(), parts.len() as u32)? })
    }

    /// The keys of one of the parts, once.
    ///
    /// Errors: likewise.
    pub fn take_part(
        &mut self,
        read_view: &ReadView,
        view: &LoadedView,
        part: &KeyPart,
        cancel_check: &CancelCheck<'_>,
    ) -> Result<Vec<Arc<[u8]>>> {
        let KeyPart { part, parts, .. } = *part;
        let source = StateSource::new(read_view, view, None);
        let edges = ViewEdges::new(&source, &view.live)?;
        let walk = view.live.walk(links(view)?, &edges, 0).cancelled_by(cancel_check);
        let mut keys = walk.keys_among(&edges.snapshot_chunks_of_part(part, parts), part, parts)?;
        keys.append(&mut self.of_layers[part as usize]);
        Ok(keys.into_iter().map(Arc::from).collect())
    }
}

/// The rows of these encoded keys.
pub(super) fn rows_of_keys(
    read_view: &ReadView,
    view: &LoadedView,
    alert: &AlertPlan,
    (keys, t): (&[&[u8]], Micros),
    cancel_check: &CancelCheck<'_>,
) -> Result<WatchedRows> {
    let source = StateSource::new(read_view, view, None);
    let edges = ViewEdges::new(&source, &view.live)?;
    let walk = view.live.walk(links(view)?, &edges, t).up_to_its_time().cancelled_by(cancel_check);
    let groups = view.live.decoded_keys(keys)?;
    let Walked { rows, found, .. } = walk.rows(&groups, keys.len(), &alert.wanted)?;
    // An event that is dated in the future is not waited for: it counts, as in a lookup.
    let horizon = match read_view.clock {
        ServingClock::Wall => read_view.now,
        ServingClock::Event => Micros::MAX,
    };
    let times = walk.edge_times(&groups, keys.len(), alert.ranges(), horizon)?;
    let hop = alert.hop().unwrap_or(Level::Second1);
    Ok(WatchedRows {
        rows,
        found,
        changes: times.iter().map(|times| times.changes).collect(),
        since: times.iter().map(|times| times.last_seen.map_or(Micros::MIN, |seen| hop.floor(seen))).collect(),
    })
}

/// The keys whose rows may have changed by these new state rows since they were looked at, at `t`. `None` if they are
/// too many.
pub(super) fn keys_changed_by(
    read_view: &ReadView,
    view: &LoadedView,
    (added, t): (&[&StateRows], Micros),
    index: &ReverseIndex,
    cancel_check: &CancelCheck<'_>,
) -> Result<Option<BTreeSet<Arc<[u8]>>>> {
    let (live, links) = (&view.live, links(view)?);
    let source = StateSource::new(read_view, view, None);
    let edges = ViewEdges::new(&source, live)?;
    let mut starts = EdgeStarts::default();
    let walk = live.walk(links, &edges, t).cancelled_by(cancel_check);
    for (chunk, rows) in added.iter().zip(walk.revived(added)?) {
        starts.add(&live.codec, links, chunk, rows)?;
    }
    let mut keys: BTreeSet<Arc<[u8]>> = starts.near.iter().map(|key| Arc::from(key.as_slice())).collect();
    for chunk in index.chunks.values() {
        cancel_check()?;
        chunk.add_keys(&live.codec, links, &starts.far, &mut keys)?;
        if keys.len() > MOST_KEYS {
            return Ok(None);
        }
    }
    Ok(Some(keys))
}

fn links(view: &LoadedView) -> Result<&LinkPlan> {
    let links = view.live.plan.links().map(|links| &**links);
    links.ok_or_else(|| Error::internal("a view without a JOIN has no edges").with("view", &view.live.name))
}

#[cfg(test)]
mod tests;
