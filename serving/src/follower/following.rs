//! Following the catalog: looks whether it moved, loads what it says, has snapshots copied.

use std::time::{Duration, Instant};

use catalog::Revision;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::{ErrorKind, Result};

use super::Follower;

/// How long to wait after a catalog state that could not be read or loaded.
const AFTER_A_FAILURE: Duration = Duration::from_secs(1);

impl Follower {
    /// Until `stop`.
    pub(super) async fn follow(&self, stop: &CancellationToken) {
        // The state that is loaded is looked at once more: not all of it may have been there.
        let mut seen = None;
        let mut wait = self.0.settings.poll;
        loop {
            self.copy_the_rest(stop);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.look_again.notified() => seen = None,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.0.settings.poll;
            // All of it may be dropped: a state is read only once all of it is loaded, and half a copy goes with its
            // folder.
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = self.check_catalog(&mut seen) => looked,
            };
            let failed_before = self.0.loads.outage().is_some();
            self.0.loads.note(&looked);
            match looked {
                Ok(()) if failed_before => info!("the catalog and the storage answer again"),
                Ok(()) => {}
                Err(error) => {
                    wait = wait.max(AFTER_A_FAILURE);
                    match error.kind() {
                        ErrorKind::Unavailable if failed_before => debug!(%error, "the catalog or the storage does not answer"),
                        ErrorKind::Unavailable => warn!(%error, "the catalog or the storage did not answer; serving what is loaded"),
                        _ => warn!(%error, "a catalog state could not be loaded; serving the previous one"),
                    }
                }
            }
        }
    }

    pub(super) async fn check_catalog(&self, seen: &mut Option<Revision>) -> Result<()> {
        let asked_at = Instant::now();
        let revision = self.0.catalog.revision().await?;
        self.note_revision(revision, asked_at);
        if *seen != Some(revision) {
            self.refresh().await?;
            *seen = Some(revision);
        }
        self.ask_for_runs().await
    }

    /// Begins to fetch the rest of each snapshot.
    fn copy_the_rest(&self, stop: &CancellationToken) {
        let Some(loaded) = self.loaded() else { return };
        let followed = loaded.views.values().filter(|view| !self.is_fetched_as_asked(view.live.status));
        for copy in followed.filter_map(|view| view.snapshot.as_ref()) {
            copy.fetch_in_background(&self.0.look_again, stop);
        }
    }
}
