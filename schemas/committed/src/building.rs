//! How far a view version is built by its run.

use catalog::{ArchiveBounds, CatalogState, RunRecord, RunStatus, archive_files};
use types::tiles::Micros;

use crate::registry::LiveView;

/// How far a version is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildProgress {
    /// Of these archived events
    pub events: i64,
    /// the run under way has read this many,
    pub events_read: i64,
    /// or an earlier one, which ended early, had read this many of them.
    pub resumed: i64,
    /// When that run began; `None` while none runs.
    pub began: Option<Micros>,
}

impl BuildProgress {
    /// The events are those up to the running run's cut, or all while none runs. Files are left out in which every
    /// event is too old to count.
    pub fn from_state(state: &CatalogState, view: &LiveView, now: Micros) -> BuildProgress {
        let of_version = |run: &&RunRecord| run.status == RunStatus::Running && run.view == view.name && run.version == view.version;
        let run = state.runs.iter().find(of_version);
        let streams = view.streams();
        let of_view = state.partitions.values().filter(|partition| streams.contains(&partition.id.stream));
        let newest = of_view.filter_map(|partition| partition.max_event_time).max();
        // Whichever clock the run prunes by: it keeps nothing that is older.
        let t = newest.map_or(now, |newest| newest.min(now));
        let bounds = ArchiveBounds { cut: run.and_then(|run| run.cut.as_ref()), oldest: view.plan.oldest_kept(t), newest: None };
        let events = archive_files(state, &streams, bounds).iter().map(|file| file.rows).sum();
        let events_read = run.map_or(0, |run| run.events_read.clamp(0, events));
        let resumed = run.and_then(|run| run.draft.as_ref()).map_or(0, |draft| draft.resumed.clamp(0, events_read));
        BuildProgress { events, events_read, resumed, began: run.and_then(|run| run.started_at) }
    }

    /// Below 100: what is read is still to be written.
    pub fn percent(&self) -> i64 {
        (i128::from(self.events_read) * 100 / i128::from(self.events.max(1))).min(99) as i64
    }

    /// By the pace so far; `None` before the first events are read.
    pub fn seconds_left(&self, now: Micros) -> Option<i64> {
        let elapsed = now.saturating_sub(self.began?).max(0);
        let left = i128::from(self.events - self.events_read) * i128::from(elapsed);
        let read = self.events_read - self.resumed;
        (read > 0).then(|| i64::try_from(left / i128::from(read) / 1_000_000).unwrap_or(i64::MAX))
    }

    /// `43 %, about 2 min`; `waits for its run`.
    pub fn text(&self, now: Micros) -> String {
        match (self.began, self.seconds_left(now)) {
            (None, _) => "waits for its run".to_owned(),
            (Some(_), None) => format!("{} %", self.percent()),
            (Some(_), Some(seconds)) => format!("{} %, about {}", self.percent(), for_seconds(seconds)),
        }
    }
}

fn for_seconds(seconds: i64) -> String {
    match seconds {
        0..=99 => format!("{} s", seconds.max(1)),
        100..=7_199 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h", (seconds + 1_800) / 3_600),
    }
}

#[cfg(test)]
mod tests;
