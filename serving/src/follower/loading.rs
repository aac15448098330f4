//! Loading a catalog state: each view's snapshot and layers; going on where one of them is damaged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use catalog::{CatalogState, DefinitionKind};
use committed::building::BuildProgress;
use committed::damage::{Finder, report_damage};
use committed::lacking::MissingStates;
use committed::registry::{LiveView, Registry};
use engine::fresh::ViewVersion;
use tracing::warn;
use types::vector::Vector;
use types::{Error, ErrorKind, Result, failpoint};

use super::Follower;
use super::asking::newest_run;
use crate::copy::SnapshotCopy;
use crate::layers::{self, LayerSource, RebuildBudget, Refreshed};
use crate::read_view::{BuildingView, Loaded, LoadedView};

/// A sink's worker waits for the node, which waits for the worker.
const WENT_BACK: &str = "if the catalog was restored from an earlier copy, answers go on once workers have counted the log up to \
    where they were: start the process again if that does not happen soon, or where a sink is stalled";

impl Follower {
    /// Loads the catalog's present state and makes it the one that queries read. While a file of a view that is served
    /// does not come (`Unavailable`), the state before stays: an answer that is a little older is better than none.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let _one = self.0.refreshing.lock().await;
        self.load().await
    }

    /// The same, until every view is loaded that no run has to build: for a node that may not refresh again.
    pub(crate) async fn refresh_all(&self) -> Result<()> {
        self.refresh().await?;
        while self.loaded().is_some_and(|loaded| loaded.is_postponed(self.0.settings.max_rebuilt_events)) {
            self.refresh().await?;
        }
        Ok(())
    }

    /// By one at a time.
    async fn load(&self) -> Result<()> {
        let before = self.loaded();
        let read_at = Instant::now();
        let state = self.0.catalog.state().await?;
        if let Some(before) = &before
            && !state.vector().covers(&before.vector)
        {
            return Err(Error::unavailable("the catalog's vector moved backwards")
                .with("before", &before.vector)
                .with("after", state.vector())
                .with("help", WENT_BACK));
        }
        let registry = self.registry_of(before.as_deref(), &state).await?;
        let budget = RebuildBudget::new(self.0.settings.max_rebuilt_events);
        let damaged = Mutex::new(Vec::new());
        let outcomes = self.load_views(before.as_deref(), &registry, &state, &damaged, &budget).await?;
        let LoadedViews { mut views, building, failed, late } = outcomes;
        self.give_up_copies(&mut views);
        let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
        damaged.extend(failed.values().map(Error::copied));
        self.report(&state, &damaged).await;
        let vector = state.vector();
        metrics::gauge!("basestream_serving_catalog_revision").set(state.revision as f64);
        show_dead_letters(before.as_deref().map(|before| &*before.state), &state);
        metrics::gauge!("basestream_serving_views_building").set(building.len() as f64);
        let loaded = Arc::new(Loaded { state, registry, vector: vector.clone(), views, building, failed });
        if loaded.is_postponed(budget.of_view) {
            self.0.look_again.notify_one();
        }
        self.0.changed_views.note(before.as_deref(), &loaded, Instant::now());
        self.use_from_now_on(&loaded, read_at);
        // What it replaces is freed after the lock, which every query takes.
        let replaced = self.0.loaded.write().unwrap_or_else(PoisonError::into_inner).replace(loaded);
        // Releases the read view before, which the next query would do, for nodes that get none.
        self.read_view()?;
        drop(replaced);
        self.0.moved.send_replace(());
        if let Some(fresh) = &self.0.fresh {
            fresh.release(&vector);
        }
        failpoint::hit("serving.loaded")?;
        late.map_or(Ok(()), Err)
    }

    /// The definitions of a state: planned anew if they are others than before.
    async fn registry_of(&self, before: Option<&Loaded>, state: &CatalogState) -> Result<Arc<Registry>> {
        match before {
            Some(before) if !before.registry.is_stale(state) => Ok(before.registry.clone()),
            Some(before) => Ok(Arc::new(before.registry.following(state, &self.0.functions).await?)),
            None => Ok(Arc::new(Registry::load(state, &self.0.functions).await?)),
        }
    }

    /// Loads the views that this node answers. One that cannot be loaded does not keep the others from being served.
    ///
    /// Errors: `Unavailable` if a view that is served already cannot be loaded at the moment: it stays as it was
    /// loaded.
    async fn load_views(
        &self,
        before: Option<&Loaded>,
        registry: &Registry,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
        budget: &RebuildBudget,
    ) -> Result<LoadedViews> {
        let mut loaded = LoadedViews::default();
        for live in registry.views.iter().filter(|live| self.0.settings.views.contains(live)) {
            let version = live.view_version();
            let known = before.map_or(KnownVersion::Nothing, |before| before.known(&version));
            match self.load_view(live, known, state, damaged, budget).await {
                Ok(LoadOutcome::Served(view)) => drop(loaded.views.insert(version, view)),
                Ok(LoadOutcome::Building(view)) => drop(loaded.building.insert(version, view)),
                Err(error) => {
                    match OnFailure::decide(error.kind(), known.is_served()) {
                        OnFailure::KeepStateBefore => return Err(error.with("view", &live.name)),
                        OnFailure::ServeOthersAndFail => loaded.late = Some(error.copied()),
                        OnFailure::ServeOthers => {}
                    }
                    warn!(view = %live.name, %error, "a view could not be loaded; the others are served");
                    metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
                    loaded.failed.insert(version, error);
                }
            }
        }
        Ok(loaded)
    }

    async fn load_view(
        &self,
        live: &LiveView,
        known: KnownVersion<'_>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
        budget: &RebuildBudget,
    ) -> Result<LoadOutcome> {
        let (snapshot, lost) = self.load_snapshot(live, known, state, damaged).await?;
        let cut = match (&snapshot, state.snapshot(&live.name, live.version)) {
            (Some(copy), Some(published)) if copy.manifest.run == published.run => published.cut.clone(),
            (Some(copy), _) => cut_of_earlier(copy, known),
            (None, _) => Vector::new(),
        };
        let held = known.view().map(|known| known.layers.as_slice()).unwrap_or_default();
        let source = LayerSource { storage: &self.0.storage, session: &self.0.session, damaged, budget, is_served: known.is_served() };
        let refreshed = layers::refresh(held, known.lacking(), &source, live, state, &cut).await?;
        let loaded = |layers| LoadedView::new(live.clone(), snapshot, cut, lost, layers);
        Ok(match refreshed {
            Refreshed::Whole(layers) => LoadOutcome::Served(loaded(layers)),
            Refreshed::Short { layers, lacking, events } => {
                LoadOutcome::Building(self.building(loaded(layers), known, state, lacking, events))
            }
        })
    }

    fn building(
        &self,
        held: LoadedView,
        known: KnownVersion<'_>,
        state: &CatalogState,
        lacking: MissingStates,
        events: i64,
    ) -> BuildingView {
        let now = (self.0.wall)();
        let progress = BuildProgress::from_state(state, &held.live, now);
        let since = match known {
            KnownVersion::Building(before) => before.since,
            KnownVersion::Nothing | KnownVersion::Served(_) => {
                let (view, version) = (&held.live.name, held.live.version);
                warn!(%view, version, events, "the states of a view have to be computed from the archive: it is \
                    answered once a run has built it");
                now
            }
        };
        let last_error = newest_run(state, &held.live).and_then(|run| run.error.clone());
        BuildingView { held, lacking, events_lacking: events, progress, last_error, since }
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
            // Boxed to keep the common future small.
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

/// The view versions of a state, as far as they could be loaded.
#[derive(Default)]
struct LoadedViews {
    views: BTreeMap<ViewVersion, LoadedView>,
    building: BTreeMap<ViewVersion, BuildingView>,
    failed: BTreeMap<ViewVersion, Error>,
    /// The last failure that may pass by itself.
    late: Option<Error>,
}

/// What became of a view version.
enum LoadOutcome {
    Served(LoadedView),
    Building(BuildingView),
}

/// What is done where a view version cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnFailure {
    /// The state before stays for every view: an answer that is a little older is better than none.
    KeepStateBefore,
    /// The other views are served from the new state, and the refresh ends with the error: it may pass by itself.
    ServeOthersAndFail,
    /// The other views are served from the new state: another try would fail too.
    ServeOthers,
}

impl OnFailure {
    /// `is_served`: the state before has the view version.
    fn decide(kind: ErrorKind, is_served: bool) -> OnFailure {
        match kind {
            ErrorKind::Unavailable if is_served => OnFailure::KeepStateBefore,
            ErrorKind::Unavailable => OnFailure::ServeOthersAndFail,
            _ => OnFailure::ServeOthers,
        }
    }
}

/// The cut of a snapshot that is not the published one: as it was last loaded, since skipped runs may have advanced it.
fn cut_of_earlier(copy: &SnapshotCopy, known: KnownVersion<'_>) -> Vector {
    let is_it = |view: &&LoadedView| view.snapshot.as_ref().is_some_and(|held| held.manifest.run == copy.manifest.run);
    known.view().filter(is_it).map_or_else(|| copy.manifest.cut.clone(), |view| view.cut.clone())
}

/// What the catalog state before left of a view version.
#[derive(Clone, Copy)]
pub(super) enum KnownVersion<'a> {
    Nothing,
    Served(&'a LoadedView),
    Building(&'a BuildingView),
}

impl<'a> KnownVersion<'a> {
    pub(super) fn view(self) -> Option<&'a LoadedView> {
        match self {
            KnownVersion::Nothing => None,
            KnownVersion::Served(view) => Some(view),
            KnownVersion::Building(view) => Some(&view.held),
        }
    }

    pub(super) fn is_served(self) -> bool {
        matches!(self, KnownVersion::Served(_))
    }

    fn lacking(self) -> MissingStates {
        match self {
            KnownVersion::Building(view) => view.lacking.clone(),
            KnownVersion::Nothing | KnownVersion::Served(_) => MissingStates::default(),
        }
    }
}

impl Loaded {
    /// Whether a view was left to the next refresh, whose budget allows it.
    fn is_postponed(&self, budget_of_view: i64) -> bool {
        self.building.values().any(|view| view.events_lacking <= budget_of_view)
    }

    fn known(&self, version: &ViewVersion) -> KnownVersion<'_> {
        let building = || self.building.get(version).map_or(KnownVersion::Nothing, KnownVersion::Building);
        self.views.get(version).map_or_else(building, KnownVersion::Served)
    }
}

/// Shows how many dead letters each stream keeps.
fn show_dead_letters(before: Option<&CatalogState>, state: &CatalogState) {
    for (stream, rows) in kept_dead_letters(before, state) {
        metrics::gauge!("basestream_serving_dead_letters", "stream" => stream.to_string()).set(rows as f64);
    }
}

/// How many dead letters each stream keeps: none, where it is there no more and was there before.
fn kept_dead_letters<'s>(before: Option<&'s CatalogState>, state: &'s CatalogState) -> BTreeMap<&'s Arc<str>, i64> {
    let streams = before.into_iter().chain([state]).flat_map(|state| {
        let live = state.live(DefinitionKind::Stream).map(|stream| &stream.name);
        live.chain(state.files.dead_letters().keys())
    });
    let mut kept: BTreeMap<&Arc<str>, i64> = streams.map(|stream| (stream, 0)).collect();
    kept.extend(state.files.dead_letters().iter().map(|(stream, rows)| (stream, *rows)));
    kept
}

#[cfg(test)]
mod tests;
