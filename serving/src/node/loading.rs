//! Loading a catalog state: each view's snapshot and layers; going on where one of them is damaged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind, SnapshotRecord};
use committed::damage::{Finder, report_damage};
use committed::registry::{LiveView, Registry};
use engine::fresh::ViewVersion;
use storage::read_manifest;
use tracing::{info, warn};
use types::files::FileKind;
use types::tiles::Micros;
use types::{Error, ErrorKind, Result, failpoint};

use super::Node;
use crate::copy::SnapshotCopy;
use crate::layers::{self, LayerSource};
use crate::stand::{Loaded, LoadedView, LostSnapshot};

/// How long a snapshot that could not be loaded is left alone.
const LOAD_AGAIN: Duration = Duration::from_secs(30);

impl Node {
    /// Loads the catalog's present state and makes it the one that queries stand on. While a file of a view that is served does not
    /// come (`Unavailable`), the state before stays: an answer that is a little older is better than none.
    pub async fn refresh(&self) -> Result<()> {
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
            return Err(Error::corrupt("the catalog's vector went back").with("before", &before.vector).with("after", state.vector()));
        }
        let registry = match &before {
            Some(before) if !before.registry.is_stale(&state) => before.registry.clone(),
            _ => Arc::new(Registry::load(&state, &self.0.functions).await?),
        };
        let mut views: BTreeMap<ViewVersion, LoadedView> = BTreeMap::new();
        let mut late = None;
        let mut failed: BTreeMap<ViewVersion, Error> = BTreeMap::new();
        let damaged = Mutex::new(Vec::new());
        for live in &registry.views {
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
        let loaded = Arc::new(Loaded { state: Arc::new(state), registry, vector: vector.clone(), views, failed });
        self.lock_stood().push(Arc::downgrade(&loaded));
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
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
        let cut = snapshot.as_ref().map(|snapshot| snapshot.manifest.cut.clone()).unwrap_or_default();
        let held = known.map(|known| known.layers.as_slice()).unwrap_or_default();
        let source = LayerSource { storage: &self.0.storage, session: &self.0.session, damaged };
        let layers = layers::refresh(held, &source, live, state, &cut).await?;
        Ok(LoadedView { live: live.clone(), snapshot, lost, layers })
    }

    /// The published snapshot. One that cannot be loaded is answered without: from the one before, where this node still has it, and
    /// the checkpoints after its cut, or from all checkpoints.
    async fn load_snapshot(
        &self,
        live: &LiveView,
        known: Option<&LoadedView>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
    ) -> Result<(Option<Arc<SnapshotCopy>>, Option<LostSnapshot>)> {
        let Some(record) = state.snapshot(&live.name, live.version) else { return Ok((None, None)) };
        let known_copy = known.and_then(|known| known.snapshot.clone());
        let damage = known_copy.as_ref().filter(|copy| copy.manifest.run == record.run).and_then(|copy| copy.damage().map(Error::copied));
        let held = known_copy.filter(|copy| copy.damage().is_none());
        if held.as_ref().is_some_and(|copy| copy.manifest.run == record.run) {
            return Ok((held, None));
        }
        let now = (self.0.wall)();
        let known_lost = known.and_then(|known| known.lost).filter(|lost| lost.run == record.run);
        if let Some(lost) = known_lost.filter(|lost| now.saturating_sub(lost.at) < LOAD_AGAIN.as_micros() as Micros) {
            return Ok((held, Some(lost)));
        }
        let opened = match damage {
            Some(error) => Err(error),
            None => self.open_snapshot(live, record, state, self.0.settings.at_once && known.is_none()).await,
        };
        let error = match opened {
            Ok(copy) => return Ok((copy, None)),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        warn!(view = %live.name, run = %record.run, %error, "a snapshot cannot be loaded; answering without it");
        metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
        damaged.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        Ok((held, Some(LostSnapshot { run: record.run, at: now })))
    }

    /// `None`: its states are of another format.
    async fn open_snapshot(
        &self,
        live: &LiveView,
        record: &SnapshotRecord,
        state: &CatalogState,
        at_once: bool,
    ) -> Result<Option<Arc<SnapshotCopy>>> {
        let file = state.files.iter().find(|file| file.kind == FileKind::Manifest && file.path == record.manifest);
        let file =
            file.ok_or_else(|| Error::corrupt("the catalog names no file of a snapshot's manifest").with("manifest", &record.manifest))?;
        let manifest = read_manifest(&self.0.storage, file).await?;
        if manifest.stamp != live.plan.stamp {
            warn!(view = %live.name, "the snapshot's states are of another format; answering from the archive until the next run");
            return Ok(None);
        }
        let (storage, cache) = (&self.0.storage, &self.0.settings.cache);
        let copy = match at_once {
            true => SnapshotCopy::begin(storage, manifest, live, cache),
            false => SnapshotCopy::open(storage, manifest, live, cache).await?,
        };
        info!(view = %live.name, version = live.version, run = %record.run, rows = copy.manifest.rows, "serving a new snapshot");
        Ok(Some(Arc::new(copy)))
    }

    /// Tells the catalog of damage that an answer met, and hands the answer on.
    pub(crate) async fn telling<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Corrupt
            && let Some(loaded) = self.loaded()
        {
            Box::pin(self.report(&loaded.state, &[error.copied()])).await;
        }
        answer
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

    async fn report(&self, state: &CatalogState, damaged: &[Error]) {
        let finder = Finder { name: &self.0.settings.name, now: (self.0.wall)() };
        report_damage(&self.0.catalog, &self.0.storage, state, damaged, finder).await;
    }
}

/// How many dead letters each stream keeps.
fn show_dead_letters(state: &CatalogState) {
    let mut kept: BTreeMap<&Arc<str>, i64> = state.live(DefinitionKind::Stream).map(|stream| (&stream.name, 0)).collect();
    for file in state.files.iter().filter(|file| file.kind == FileKind::DeadLetters && !file.marked_for_deletion) {
        if let Some(stream) = &file.subject {
            *kept.entry(stream).or_default() += file.rows;
        }
    }
    for (stream, rows) in kept {
        metrics::gauge!("basestream_serving_dead_letters", "stream" => stream.to_string()).set(rows as f64);
    }
}
