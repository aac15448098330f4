//! The rows of views that are computed in one pass over the events.

use arrow::array::ArrayRef;
use committed::registry::LiveView;
use engine::states::bucket_of;
use types::{Error, Result};

/// Some of the rows that events see: those whose states are in memory at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Portion {
    All,
    /// The rows of linked views. A walk over links may lead to any edge.
    Linked,
    /// Rows of the other views whose keys hash to this bucket.
    Bucket {
        bucket: u32,
        buckets: u32,
    },
}

/// Why the rows of a portion were not computed.
#[derive(Debug)]
pub(super) enum PortionError {
    /// Their states, or the keys, need more than the memory limit.
    Exceeds(Error),
    Failed(Error),
}

impl From<Error> for PortionError {
    fn from(error: Error) -> PortionError {
        PortionError::Failed(error)
    }
}

impl Portion {
    pub(super) fn has_view(self, live: &LiveView) -> bool {
        let is_linked = live.plan.links().is_some();
        match self {
            Portion::All => true,
            Portion::Linked => is_linked,
            Portion::Bucket { .. } => !is_linked,
        }
    }

    /// Whether the row of a key is in the portion, which has its view.
    pub(super) fn has_key(self, key: &[u8]) -> bool {
        match self {
            Portion::All | Portion::Linked => true,
            Portion::Bucket { bucket, buckets } => bucket_of(key, buckets) == bucket,
        }
    }

    /// Returns those of the events with these keys whose rows are in the portion, which has the view.
    pub(super) fn events(self, live: &LiveView, keys: &[ArrayRef], events: usize) -> Result<Vec<u32>> {
        let all = 0..events as u32;
        match self {
            Portion::All | Portion::Linked => Ok(all.collect()),
            Portion::Bucket { .. } => {
                let encoded = live.codec.encode(keys, events)?;
                Ok(all.filter(|event| self.has_key(encoded.value(*event as usize))).collect())
            }
        }
    }
}
