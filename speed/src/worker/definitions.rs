//! Handles definitions that change while a worker follows the log.

use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, CatalogState, DefinitionKind, DefinitionStatus, Revision};
use committed::registry::{LiveStream, Registry};
use tracing::warn;
use types::{Error, ErrorKind, Result};

use super::Worker;
use crate::views::Views;

impl Worker<'_> {
    /// Checks whether definitions changed: now and then, and after a takeover before the first event. Returns true if
    /// the subscription must begin again.
    pub(super) async fn poll_definitions(&mut self) -> Result<bool> {
        if !self.is_behind && self.polled_at.elapsed() < self.poll_interval() {
            return Ok(false);
        }
        self.polled_at = Instant::now();
        let must_begin_again = self.follow_definitions().await?;
        match self.is_behind {
            // Until it begins again, it would decide events by what it has.
            true => Err(Error::conflict("definitions changed before partitions were taken over")),
            false => Ok(must_begin_again),
        }
    }

    async fn follow_definitions(&mut self) -> Result<bool> {
        if self.speed.progress.left_out() != self.left_out {
            // A stream that was left out is tried again.
            return Ok(true);
        }
        let state = match changed_since(&self.speed.catalog, self.revision).await {
            Ok(Some(state)) => state,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                warn!(%error, "the catalog did not answer; keeping the current definitions");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        // Set only now: a state that could not be read is read again.
        self.revision = state.revision;
        self.speed.progress.follow_repairs(&state);
        if self.speed.progress.left_out() != self.left_out {
            return Ok(true);
        }
        if !self.registry.has_other_definitions(&state) {
            self.is_behind = false;
            self.follow_parameters(&state).await?;
            return Ok(false);
        }
        self.check_not_redecoded(&state)?;
        let registry = Registry::load(&state, &self.speed.functions).await?;
        self.speed.progress.note_unplanned(&registry);
        if streams_of(&registry) != streams_of(&self.registry) || self.speed.progress.left_out() != self.left_out {
            // Uncommitted work keeps its decoding and goes to the views as they were: the next subscription has the new
            // ones.
            return Ok(true);
        }
        // A section covers whole epochs, so the new views begin with the next one.
        self.checkpoint().await?;
        if let Some(sinks) = &mut self.sinks {
            sinks.switch_definitions(&registry, &self.epoch.positions()).await?;
        }
        self.views = Views::new(&registry, self.session);
        if let Some(fresh) = &self.speed.fresh {
            fresh.keep(self.views.stamps());
        }
        (self.registry, self.is_behind) = (registry, false);
        Ok(false)
    }

    /// Errors: `Conflict` if a later version of a stream decides its records. A checkpoint would be refused: the
    /// records are decoded by that version, from the committed position on.
    pub(super) fn check_not_redecoded(&self, state: &CatalogState) -> Result<()> {
        match redecoded(state, &self.registry) {
            Some(stream) => Err(Error::conflict("a later version of the stream decides its records").with("stream", stream)),
            None => Ok(()),
        }
    }

    /// Uses the parameter values of a state. Views and their uncommitted states do not depend on them. The records made
    /// from now on do; those already appended stay.
    pub(super) async fn follow_parameters(&mut self, state: &CatalogState) -> Result<()> {
        if self.registry.is_stale(state) && !self.registry.has_other_definitions(state) {
            self.registry = self.registry.following(state, &self.speed.functions).await?;
            self.speed.progress.note_unplanned(&self.registry);
        }
        Ok(())
    }
}

/// Returns the catalog's state, unless it is still the one of `revision`.
async fn changed_since(catalog: &Catalog, revision: Revision) -> Result<Option<Arc<CatalogState>>> {
    match catalog.revision().await? == revision {
        true => Ok(None),
        false => catalog.state().await.map(Some),
    }
}

/// Returns a stream of this registry whose records a later version decides: its archive was decoded again, or it began
/// anew.
fn redecoded<'r>(state: &CatalogState, registry: &'r Registry) -> Option<&'r Arc<str>> {
    let is_redecoded = |name: &Arc<str>, stream: &LiveStream| {
        let record = state.definitions.get(DefinitionKind::Stream, name, stream.version);
        record.is_some_and(|record| record.status == DefinitionStatus::Redecoded)
    };
    registry.streams.iter().find(|(name, stream)| is_redecoded(name, stream)).map(|(name, _)| name)
}

fn streams_of(registry: &Registry) -> Vec<(&Arc<str>, u32)> {
    registry.streams.iter().map(|(name, stream)| (name, stream.version)).collect()
}
