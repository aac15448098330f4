//! Rebuilds what can be rebuilt without a user: states objects that were found damaged. (A damaged snapshot makes a run
//! due; a damaged archive file is left to `repair`.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batch::{Batch, RebuildOutcome};
use catalog::CatalogState;
use committed::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use types::files::FileKind;
use types::tiles::Micros;

/// How long to wait before retrying a file that could not be rebuilt.
const AGAIN: Duration = Duration::from_secs(60);

/// When each file was last tried.
#[derive(Debug, Default)]
pub struct Tried(Mutex<BTreeMap<String, Micros>>);

/// Returns the damaged states objects to rebuild at `now`: those that were not tried recently.
fn rebuildable<'s>(state: &'s CatalogState, tried: &BTreeMap<String, Micros>, now: Micros) -> Vec<&'s str> {
    let is_states = |path: &str| state.files.get(path).is_some_and(|file| file.kind == FileKind::States && !file.marked_for_deletion);
    let is_rested = |path: &str| tried.get(path).is_none_or(|at| now.saturating_sub(*at) >= AGAIN.as_micros() as Micros);
    state.damages.iter().map(|damage| damage.path.as_str()).filter(|path| is_states(path) && is_rested(path)).collect()
}

impl Tried {
    /// Returns the files to rebuild now, which are tried from now on.
    pub(super) fn due(&self, state: &CatalogState, now: Micros) -> Vec<String> {
        let mut tried = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|path, _| state.damages.iter().any(|damage| damage.path == *path));
        let due: Vec<String> = rebuildable(state, &tried, now).into_iter().map(str::to_owned).collect();
        tried.extend(due.iter().map(|path| (path.clone(), now)));
        due
    }
}

/// Rebuilds these files one at a time, beside the runs, until `stop`. Failures are logged and retried later.
pub(super) async fn rebuild_states(
    batch: Batch,
    state: Arc<CatalogState>,
    registry: Registry,
    paths: Vec<String>,
    stop: CancellationToken,
) {
    let rebuilding = async {
        for path in paths {
            match batch.rebuild_states(&state, &registry, &path).await {
                Ok(RebuildOutcome::Whole) => warn!(file = path, "a file that was reported as damaged is intact"),
                Ok(_) => {}
                Err(error) => warn!(file = path, %error, "a damaged states object could not be rebuilt; trying again later"),
            }
        }
    };
    // What is dropped has written files that nothing names.
    tokio::select! {
        () = stop.cancelled() => {}
        () = rebuilding => {}
    }
}

#[cfg(test)]
mod tests {
    use catalog::DamageRecord;
    use types::files::FileRecord;

    use super::*;

    fn file(path: &str, kind: FileKind) -> FileRecord {
        FileRecord {
            path: path.into(),
            kind,
            checkpoint: None,
            run: None,
            subject: None,
            bytes: 1,
            rows: 1,
            checksum: 1,
            min_event_time: None,
            max_event_time: None,
            marked_for_deletion: false,
        }
    }

    #[test]
    fn states_that_are_damaged_are_rebuilt_and_after_a_failure_a_minute_later() {
        let damage = |path: &str| DamageRecord { path: path.into(), error: "x".into(), found_by: "y".into(), found_at: 0 };
        let state = CatalogState {
            files: [
                file("a", FileKind::States),
                file("b", FileKind::Archive),
                FileRecord { marked_for_deletion: true, ..file("c", FileKind::States) },
            ]
            .into_iter()
            .collect(),
            damages: ["a", "b", "c"].map(damage).to_vec(),
            ..CatalogState::default()
        };
        assert_eq!(rebuildable(&state, &BTreeMap::new(), 0), ["a"]);
        let tried = BTreeMap::from([("a".to_owned(), 5)]);
        assert_eq!(rebuildable(&state, &tried, 60_000_004), Vec::<&str>::new());
        assert_eq!(rebuildable(&state, &tried, 60_000_005), ["a"]);
    }
}
