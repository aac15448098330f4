//! Definitions that change while a worker follows the log.

use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, CatalogState, Revision};
use committed::registry::Registry;
use tracing::warn;
use types::{ErrorKind, Result};

use super::Worker;
use crate::speed::POLL_INTERVAL;
use crate::views::Views;

impl Worker<'_> {
    /// Looks, once a second, whether definitions changed; true when the subscription has to begin again.
    pub(super) async fn poll_definitions(&mut self) -> Result<bool> {
        if self.polled_at.elapsed() < POLL_INTERVAL {
            return Ok(false);
        }
        self.polled_at = Instant::now();
        let state = match changed_since(&self.speed.catalog, self.revision).await {
            Ok(Some(state)) => state,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                warn!(%error, "the catalog did not answer; keeping the current definitions");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        // Only now: a state that could not be read is asked for again.
        self.revision = state.revision;
        if !self.registry.is_stale(&state) {
            return Ok(false);
        }
        let registry = Registry::load(&state, &self.speed.functions).await?;
        if streams_of(&registry) != streams_of(&self.registry) {
            // What is under way is decoded as before, and goes to the views as they were: the next subscription knows the new ones.
            return Ok(true);
        }
        // A section stands for whole epochs: the new views begin with the next one.
        self.checkpoint().await?;
        self.views = Views::new(&registry, self.session).await?;
        self.registry = registry;
        Ok(false)
    }
}

/// The catalog's state, unless it is still that of `revision`.
async fn changed_since(catalog: &Catalog, revision: Revision) -> Result<Option<CatalogState>> {
    match catalog.revision().await? == revision {
        true => Ok(None),
        false => catalog.state().await.map(Some),
    }
}

fn streams_of(registry: &Registry) -> Vec<(&Arc<str>, u32)> {
    registry.streams.iter().map(|(name, stream)| (name, stream.version)).collect()
}
