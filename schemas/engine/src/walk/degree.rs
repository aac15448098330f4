//! Nodes with more neighbours than are followed: a walk takes those with the smallest hash, at both hops alike.
//!
//! Bottom-k sampling (Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC 2007): the k smallest of
//! uniform hashes are a uniform sample without replacement, and the one after them, as a fraction of the hashes' range,
//! the share of neighbours that is kept: with it, and not the k-th, what is divided by the share is unbiased.

use std::collections::{BinaryHeap, HashSet};
use std::ops::Range;

use arrow::array::{Array, ArrayRef, BinaryArray};
use xxhash_rust::xxh3::xxh3_64;

use crate::plan::links::{Both, Side};
use crate::states::StateRows;
use crate::walk::alive::LongestRange;
use crate::walk::{LayerRows, Walk};
use types::Result;

/// Rows whose neighbours are hashed at once.
const ROWS: usize = 8_192;

/// A key's walk follows what hashes below these, at either hop. `u64::MAX`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) near: u64,
    pub(super) far: u64,
}

impl Threshold {
    pub(super) fn is_sampled(&self) -> bool {
        self.near != u64::MAX || self.far != u64::MAX
    }

    pub(super) fn samples_far(&self) -> bool {
        self.far != u64::MAX
    }

    /// The shares of neighbours that are followed.
    pub(super) fn shares(&self) -> Both<f64> {
        let share = |most: u64| if most == u64::MAX { 1.0 } else { (most as f64 / u64::MAX as f64).max(f64::MIN_POSITIVE) };
        Both { near: share(self.near), far: share(self.far) }
    }

    /// Whether a far edge with this hash is followed; an edge without one is.
    pub(super) fn keeps(&self, hash: Option<u64>) -> bool {
        self.far == u64::MAX || hash.is_none_or(|hash| hash < self.far)
    }
}

/// The smallest hash of a node's live neighbours that is not followed; `None` when all are. Holds as many hashes as are
/// followed, and one, however many there are.
pub(super) fn threshold(walk: &Walk<'_>, side: Side, layers: &[LayerRows<'_>]) -> Result<Option<u64>> {
    let (most, longest) = (walk.links.max_degree, LongestRange::on_side(walk, side));
    let (mut smallest, mut known) = (BinaryHeap::with_capacity(most + 2), HashSet::with_capacity(most + 2));
    for LayerRows { rows, range, .. } in layers {
        let alive = longest.alive(rows)?;
        for from in range.clone().step_by(ROWS) {
            let hashes = hashes_of(walk, side, rows, from..(from + ROWS).min(range.end))?;
            for hash in hashes.into_iter().enumerate().filter(|(at, _)| alive.holds(from + at)).map(|(_, hash)| hash) {
                if smallest.len() > most && smallest.peek().is_some_and(|greatest| hash > *greatest) {
                    continue;
                }
                if known.insert(hash) {
                    smallest.push(hash);
                }
                if smallest.len() > most + 1
                    && let Some(greatest) = smallest.pop()
                {
                    known.remove(&greatest);
                }
            }
        }
    }
    Ok(if smallest.len() > most { smallest.peek().copied() } else { None })
}

/// Which of these rows lead to a neighbour that is followed.
pub(super) fn followed(walk: &Walk<'_>, side: Side, rows: &StateRows, range: Range<usize>, most: u64) -> Result<Vec<bool>> {
    let mut followed = Vec::with_capacity(range.len());
    for from in range.clone().step_by(ROWS) {
        followed.extend(hashes_of(walk, side, rows, from..(from + ROWS).min(range.end))?.into_iter().map(|hash| hash < most));
    }
    Ok(followed)
}

fn hashes_of(walk: &Walk<'_>, side: Side, rows: &StateRows, range: Range<usize>) -> Result<Vec<u64>> {
    let ends = &rows.batch().columns()[leads_to(walk, side).clone()];
    let ends: Vec<ArrayRef> = ends.iter().map(|key| key.slice(range.start, range.len())).collect();
    hashes(walk, side, &ends, range.len())
}

/// The key columns that say what an edge leads to: the join keys of a near edge, the end points of a far one.
pub(super) fn leads_to<'a>(walk: &Walk<'a>, side: Side) -> &'a Range<usize> {
    match side {
        Side::Near => &walk.links.layout.via,
        Side::Far => &walk.links.layout.far_ends,
    }
}

/// The hash of what each edge leads to.
pub(super) fn hashes(walk: &Walk<'_>, side: Side, ends: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let codec = walk.codec.nodes()?;
    let encoded: BinaryArray = match side {
        Side::Near => codec.via(ends, rows)?,
        Side::Far => codec.far_ends(ends, rows)?,
    };
    Ok((0..rows).map(|row| xxh3_64(encoded.value(row))).collect())
}
