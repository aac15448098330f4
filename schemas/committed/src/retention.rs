//! How long a stream's archive is kept.

use std::time::Duration;

use definitions::StreamDefinition;
use types::tiles::{Micros, micros};

use crate::registry::{LiveView, Registry};

/// Returns how long a stream's archive is kept; `None`: for ever.
///
/// A stream's `retention` is as long as the views over it count its events. A version of a view that was replaced, and
/// is kept, may count them for longer: then they stay as long as it does.
pub fn archive_kept(registry: &Registry, stream: &StreamDefinition) -> Option<Duration> {
    let kept = stream.retention?;
    Some(kept.max(least_retention(registry, &stream.name)?))
}

/// Returns how long live versions of views count a stream's events; `None`: for ever.
pub fn least_retention(registry: &Registry, stream: &str) -> Option<Duration> {
    let readers = registry.views.iter().filter(|view| view.plan.reads(stream));
    readers.map(|view| view.plan.counts_for(stream)).try_fold(Duration::ZERO, |longest, counted| Some(longest.max(counted?)))
}

/// Whether an answer of a view at `t` counts events of a stream from so long ago that the archive need not have them
/// any more. `now` is the time by which the stream's events age.
pub fn reaches_past_archive(registry: &Registry, view: &LiveView, stream: &StreamDefinition, t: Micros, now: Micros) -> bool {
    let Some(kept) = archive_kept(registry, stream) else { return false };
    view.plan.counts_from(&stream.name, t).is_none_or(|from| from < now.saturating_sub(micros(kept)))
}

#[cfg(test)]
mod tests;
