//! Which streams the views read: a view needs nothing of the others, however far behind its cut is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::vector::Vector;

use crate::{CheckpointRange, CheckpointRecord};

/// The streams that each view version reads. A version that is not known may read any.
#[derive(Debug, Clone, Default)]
pub struct StreamsRead(BTreeMap<(Arc<str>, u32), BTreeSet<Arc<str>>>);

impl FromIterator<((Arc<str>, u32), Vec<Arc<str>>)> for StreamsRead {
    fn from_iter<I: IntoIterator<Item = ((Arc<str>, u32), Vec<Arc<str>>)>>(versions: I) -> Self {
        Self(versions.into_iter().map(|(version, streams)| (version, streams.into_iter().collect())).collect())
    }
}

impl StreamsRead {
    /// Returns what a view version has published up to this cut; without a cut, nothing.
    pub(super) fn published<'s>(&'s self, view: &Arc<str>, version: u32, cut: Option<&'s Vector>) -> Published<'s> {
        Published { streams: self.0.get(&(view.clone(), version)), cut }
    }
}

/// What a view version has published.
pub(super) struct Published<'s> {
    /// `None`: it may read any.
    streams: Option<&'s BTreeSet<Arc<str>>>,
    cut: Option<&'s Vector>,
}

impl Published<'_> {
    /// True if all that the view reads of a checkpoint is before its cut.
    pub(super) fn holds(&self, checkpoint: &CheckpointRecord) -> bool {
        let is_read = |range: &&CheckpointRange| self.streams.is_none_or(|streams| streams.contains(&range.partition.stream));
        let is_before = |range: &CheckpointRange| self.cut.is_some_and(|cut| range.end <= cut.get(&range.partition));
        checkpoint.ranges.iter().filter(is_read).all(is_before)
    }
}
