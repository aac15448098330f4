//! Serving a view while its snapshot is still being copied, and going on where a bucket of it turns out to be damaged.

use schemas::catalog::Catalog;
use schemas::fresh::Fresh;
use schemas::functions::Functions;
use schemas::storage::ObjectStorage;
use schemas::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use super::{Clock, Node, NodeSettings};
use crate::stand::Loaded;

impl Node {
    /// [`Node::open`], answering before any snapshot is copied: what a lookup needs is fetched then, the rest by [`Node::run`]. A
    /// snapshot that takes the place of another is copied whole before it is used.
    pub async fn open_at_once(
        catalog: Catalog,
        storage: ObjectStorage,
        functions: Functions,
        fresh: Option<Fresh>,
        settings: NodeSettings,
        wall: Clock,
    ) -> Result<Node> {
        Node::new(catalog, storage, functions, fresh, settings, wall, true)?.loading().await
    }

    /// Has the rest of each snapshot fetched.
    pub(super) fn copy_the_rest(&self, stop: &CancellationToken) {
        let Some(loaded) = self.loaded() else { return };
        for copy in loaded.views.values().filter_map(|view| view.snapshot.as_ref()) {
            copy.fetch_in_background(&self.0.damaged, stop);
        }
    }

    /// After an error of a question: true when a snapshot that it stood on turned out to be damaged while it was copied. The node then
    /// stands on a state without it, and the question can be asked again.
    pub(crate) async fn goes_on_without(&self, stood_on: &Loaded, error: &Error) -> Result<bool> {
        if error.kind() != ErrorKind::Corrupt || !stood_on.is_damaged() {
            return Ok(false);
        }
        let _one = self.0.refreshing.lock().await;
        let is_damaged = || self.loaded().is_some_and(|now| now.is_damaged());
        if is_damaged() {
            // In a box: every lookup would carry it.
            let outcome = Box::pin(self.load()).await;
            if is_damaged() {
                outcome?;
            }
        }
        Ok(true)
    }
}
