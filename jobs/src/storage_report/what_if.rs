//! Computes what another `retention` of a stream would free, from the collector's plan with that retention.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind, Retention, collectable};
use committed::registry::Registry;
use committed::retention::least_retention;
use definitions::durations::format_duration_parts;
use serde::Serialize;
use types::Result;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;

use super::Usage;
use crate::collect::{clock_behind, reads, retentions, without_staging};

/// The retentions whose effect is shown, in days, where the views over the stream allow them.
pub(super) const RETENTIONS_DAYS: [u32; 4] = [7, 30, 90, 365];
pub(super) const DAY: Duration = Duration::from_hours(24);

/// What a shorter `retention` would free.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WouldFree {
    pub retention: String,
    pub files: u64,
    pub bytes: i64,
}

/// Returns what other retentions would free of each live stream at the time `now`. One plan serves all streams: what is
/// freed of one does not depend on the retention of another.
pub(super) fn would_free(
    state: &CatalogState,
    registry: &Registry,
    (now, is_event_clock): (Micros, bool),
) -> Result<BTreeMap<Arc<str>, Vec<WouldFree>>> {
    let (state, reads) = (without_staging(state, registry), reads(registry));
    let actual = retentions(&state, registry, (now, is_event_clock))?;
    let mut freed: BTreeMap<Arc<str>, Vec<WouldFree>> = BTreeMap::new();
    for kept in RETENTIONS_DAYS.map(|days| DAY * days) {
        let mut shorter: BTreeMap<Arc<str>, Retention> = BTreeMap::new();
        for record in state.live(DefinitionKind::Stream) {
            let stream = &record.name;
            let assumed = Retention { kept, clock_behind: clock_behind(&state, record, is_event_clock, now) };
            let is_allowed = least_retention(registry, stream).is_some_and(|least| kept >= least);
            if is_allowed && actual.get(stream).is_none_or(|actual| assumed < *actual) {
                shorter.insert(stream.clone(), assumed);
            }
        }
        if shorter.is_empty() {
            continue;
        }
        let mut assumed = actual.clone();
        assumed.extend(shorter.clone());
        let marked = collectable(&state, &reads, &assumed, now).mark_for_deletion;
        let mut of_stream: BTreeMap<&Arc<str>, Vec<&FileRecord>> = BTreeMap::new();
        for file in marked.iter().filter_map(|path| state.files.get(path)).filter(|file| is_retained(file)) {
            if let Some(stream) = &file.subject {
                of_stream.entry(stream).or_default().push(file);
            }
        }
        for stream in shorter.into_keys() {
            let Usage { files, bytes, .. } = Usage::sum(of_stream.remove(&stream).unwrap_or_default());
            freed.entry(stream).or_default().push(WouldFree { retention: format_duration_parts(kept), files, bytes });
        }
    }
    Ok(freed)
}

fn is_retained(file: &FileRecord) -> bool {
    matches!(file.kind, FileKind::Archive | FileKind::DeadLetters)
}
