//! Ranges of encoded keys. All keys of a view are walked bucket by bucket of its snapshot, and within a bucket range by
//! range: runs are sorted by key, so that a range costs its own rows. Layers have no buckets: their rows are read once
//! for each bucket.

use std::ops::Range;
use std::sync::Arc;

use engine::states::StateRows;

/// Keys sampled for each range: the rows of a range differ by a small part from those of another.
const SAMPLES: usize = 64;

/// The encoded keys from one, included, to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyRange {
    from: Option<Arc<[u8]>>,
    to: Option<Arc<[u8]>>,
}

impl KeyRange {
    /// Ranges that follow one another and hold all keys. Each has about as many of these keys.
    pub(super) fn split(mut sampled: Vec<&[u8]>, count: usize) -> Vec<KeyRange> {
        sampled.sort_unstable();
        let quantile = |index: usize| sampled.get(index * sampled.len() / count).map(|key| Arc::<[u8]>::from(*key));
        let mut bounds: Vec<Arc<[u8]>> = (1..count).filter_map(quantile).collect();
        bounds.dedup();
        let from = std::iter::once(None).chain(bounds.iter().cloned().map(Some));
        let to = bounds.iter().cloned().map(Some).chain([None]);
        from.zip(to).map(|(from, to)| KeyRange { from, to }).collect()
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.from.as_ref().is_none_or(|from| **from <= *key) && self.to.as_ref().is_none_or(|to| *key < **to)
    }

    /// The rows of these keys.
    pub(super) fn rows_in(&self, chunk: &StateRows) -> Range<usize> {
        let first = |key: &Arc<[u8]>| chunk.first_from(key);
        self.from.as_ref().map_or(0, first)..self.to.as_ref().map_or(chunk.len(), first)
    }
}

/// How many rows lie between two whose keys are sampled, if `rows` rows are split into `count` ranges.
pub(super) fn sampling_step(rows: usize, count: usize) -> usize {
    (rows / count.saturating_mul(SAMPLES).max(1)).max(1)
}

/// The keys of every `step`-th row.
pub(super) fn sampled<'a>(chunks: impl Iterator<Item = &'a StateRows>, step: usize) -> Vec<&'a [u8]> {
    let (mut keys, mut row) = (Vec::new(), step / 2);
    for chunk in chunks {
        while row < chunk.len() {
            keys.push(chunk.keys().value(row));
            row += step;
        }
        row -= chunk.len();
    }
    keys
}

#[cfg(test)]
mod tests;
