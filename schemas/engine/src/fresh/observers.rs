//! Observers, which see each layer when it is published by a worker of this process or a mirrored one. They do not see
//! merges of layers, so they see each event once.

use std::fmt;
use std::sync::{Arc, Weak};

use super::FreshLayer;

/// Called on the thread that publishes, after readers see the layer.
pub type LayerObserver<S> = dyn Fn(&FreshLayer<S>) + Send + Sync;

/// They stay as long as somebody else holds them.
pub(super) struct Observers<S>(Vec<Weak<LayerObserver<S>>>);

impl<S> Default for Observers<S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S> Observers<S> {
    pub(super) fn add(&mut self, observer: &Arc<LayerObserver<S>>) {
        self.0.retain(|known| known.strong_count() > 0);
        self.0.push(Arc::downgrade(observer));
    }

    pub(super) fn living(&self) -> Vec<Arc<LayerObserver<S>>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}

impl<S> fmt::Debug for Observers<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}
