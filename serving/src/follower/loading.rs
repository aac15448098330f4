//! Loading a catalog state: each view's snapshot and layers; going on where one of them is damaged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{CatalogState, DefinitionKind};
use committed::damage::{Finder, report_damage};
use committed::registry::{LiveView, Registry};
use engine::fresh::ViewVersion;
use tracing::warn;
use types::files::FileKind;
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint};

use super::Follower;
use crate::layers::{self, LayerSource};
use crate::read_view::{Loaded, LoadedView};

impl Follower {
    /// Loads the catalog's present state and makes it the one that queries read. While a file of a view that is served
    /// does not come (`Unavailable`), the state before stays: an answer that is a little older is better than none.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let _one = self.0.refreshing.lock().await;
        self.load().await
    }

    /// By one at a time.
    async fn load(&self) -> Result<()> {
        let before = self.loaded();
        let state = self.0.catalog.state().await?;
        if let Some(before) = &before
            && !state.vector().covers(&before.vector)
        {
            return Err(Error::corrupt("the catalog's vector moved backwards")
                .with("before", &before.vector)
                .with("after", state.vector()));
        }
        let registry = match &before {
            Some(before) if !before.registry.is_stale(&state) => before.registry.clone(),
            _ => Arc::new(Registry::load(&state, &self.0.functions).await?),
        };
        let mut views: BTreeMap<ViewVersion, LoadedView> = BTreeMap::new();
        let mut late = None;
        let mut failed: BTreeMap<ViewVersion, Error> = BTreeMap::new();
        let damaged = Mutex::new(Vec::new());
        for live in registry.views.iter().filter(|live| self.0.settings.views.contains(&live.name)) {
            let version = (live.name.clone(), live.version);
            let known = before.as_ref().and_then(|before| before.views.get(&version));
            match self.load_view(live, known, &state, &damaged).await {
                Ok(view) => {
                    views.insert(version, view);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable && known.is_some() => return Err(error.with("view", &live.name)),
                Err(error) => {
                    warn!(view = %live.name, %error, "a view could not be loaded; the others are served");
                    metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
                    late = Some(error.copied()).filter(|error| error.kind() == ErrorKind::Unavailable).or(late);
                    failed.insert(version, error);
                }
            }
        }
        let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
        damaged.extend(failed.values().map(Error::copied));
        self.report(&state, &damaged).await;
        let vector = state.vector();
        metrics::gauge!("basestream_serving_catalog_revision").set(state.revision as f64);
        show_dead_letters(&state);
        let loaded = Arc::new(Loaded { state, registry, vector: vector.clone(), views, failed });
        self.use_from_now_on(&loaded);
        // What it replaces is freed after the lock, which every question takes.
        let replaced = self.0.loaded.write().unwrap_or_else(PoisonError::into_inner).replace(loaded);
        // Releases the read view before, which the next question would do, for nodes that get none.
        self.read_view()?;
        drop(replaced);
        if let Some(fresh) = &self.0.fresh {
            fresh.release(&vector);
        }
        failpoint::hit("serving.loaded")?;
        late.map_or(Ok(()), Err)
    }

    async fn load_view(
        &self,
        live: &LiveView,
        known: Option<&LoadedView>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
    ) -> Result<LoadedView> {
        let (snapshot, lost) = self.load_snapshot(live, known, state, damaged).await?;
        let cut = match (&snapshot, state.snapshot(&live.name, live.version)) {
            (Some(copy), Some(published)) if copy.manifest.run == published.run => published.cut.clone(),
            (Some(copy), _) => copy.manifest.cut.clone(),
            (None, _) => Vector::new(),
        };
        let held = known.map(|known| known.layers.as_slice()).unwrap_or_default();
        let source = LayerSource { storage: &self.0.storage, session: &self.0.session, damaged };
        let layers = layers::refresh(held, &source, live, state, &cut).await?;
        Ok(LoadedView { live: live.clone(), snapshot, cut, lost, layers })
    }

    /// Records damage that an answer met in the catalog, and hands the answer on.
    pub(crate) async fn report_damage<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Corrupt
            && let Some(loaded) = self.loaded()
        {
            Box::pin(self.report(&loaded.state, &[error.copied()])).await;
        }
        answer
    }

    /// After an error of a query: true when a snapshot that it read from turned out to be damaged while it was copied.
    /// A state without it is loaded then, and the query can be asked again.
    pub(crate) async fn reload_without_damaged(&self, read: &Loaded, error: &Error) -> Result<bool> {
        if error.kind() != ErrorKind::Corrupt || !read.is_damaged() {
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

    async fn report(&self, state: &CatalogState, damaged: &[Error]) {
        let finder = Finder { name: &self.0.settings.name, now: (self.0.wall)() };
        report_damage(&self.0.catalog, &self.0.storage, state, damaged, finder).await;
    }
}

/// How many dead letters each stream keeps.
fn show_dead_letters(state: &CatalogState) {
    let mut kept: BTreeMap<&Arc<str>, i64> = state.live(DefinitionKind::Stream).map(|stream| (&stream.name, 0)).collect();
    for file in state.readable(FileKind::DeadLetters) {
        if let Some(stream) = &file.subject {
            *kept.entry(stream).or_default() += file.rows;
        }
    }
    for (stream, rows) in kept {
        metrics::gauge!("basestream_serving_dead_letters", "stream" => stream.to_string()).set(rows as f64);
    }
}
