//! A read view: one catalog state, the layers that belong to it, and one time. A query, also over several views, reads
//! from one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use catalog::CatalogState;
use committed::building::BuildProgress;
use committed::lacking::MissingStates;
use committed::registry::{LiveView, Registry};
use engine::fresh::{FreshLayer, ViewVersion};
use types::failures::Failures;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::copy::SnapshotCopy;
use crate::layers::LayerRun;

/// What a node has loaded of one catalog state.
#[derive(Debug)]
pub struct Loaded {
    pub state: Arc<CatalogState>,
    pub registry: Arc<Registry>,
    pub vector: Vector,
    pub views: BTreeMap<ViewVersion, LoadedView>,
    /// Those that a run has to build first.
    pub building: BTreeMap<ViewVersion, BuildingView>,
    /// Why the others could not be loaded.
    pub failed: BTreeMap<ViewVersion, Error>,
}

/// A view version's snapshot and what was committed after its cut.
#[derive(Debug, Clone)]
pub struct LoadedView {
    pub live: LiveView,
    pub snapshot: Option<Arc<SnapshotCopy>>,
    /// The vector up to which the snapshot holds the view's states: its manifest's, or later where runs found nothing
    /// new.
    pub cut: Vector,
    /// The published snapshot, where it could not be loaded or its states cannot be read.
    pub lost: Option<LostSnapshot>,
    pub layers: Vec<LayerRun>,
    pub(crate) kept_tiles: KeptTiles,
}

/// A view version that a node does not answer: too many of its states would have to be computed from the archive.
#[derive(Debug, Clone)]
pub struct BuildingView {
    /// What is loaded of it, and which checkpoints lack its states.
    pub held: LoadedView,
    pub lacking: MissingStates,
    /// The events that would have to be read.
    pub events_lacking: i64,
    /// How far its run is.
    pub progress: BuildProgress,
    /// Why its last run failed.
    pub last_error: Option<String>,
    /// When this node found it so.
    pub since: Micros,
}

/// A published snapshot that a node answers without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSnapshot {
    pub run: Uuid,
    /// When loading it was tried.
    pub at: Micros,
    /// True if its states are of another format, which no further try changes. Otherwise it could not be loaded.
    pub is_foreign: bool,
}

/// What a query reads from.
#[derive(Debug, Clone)]
pub struct ReadView {
    pub loaded: Arc<Loaded>,
    /// The views that are answered by another version than the served one, with that version.
    pub versions: BTreeMap<Arc<str>, u32>,
    pub fresh: Vec<Arc<FreshLayer>>,
    /// The committed vector with the fresh layers' ends: the answer's position.
    pub vector: Vector,
    /// Now, by the node's clock.
    pub now: Micros,
    pub clock: ServingClock,
    /// Until when each partition is complete.
    pub complete_to: Arc<BTreeMap<PartitionId, Micros>>,
    /// True if it was read before and is kept, because what could be read now is older.
    pub is_kept: bool,
}

/// Identifies what a read view reads: read views with the same one differ in their time alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadViewId(Arc<()>);

impl PartialEq for ReadViewId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What `t` is without `as_of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingClock {
    Wall,
    Event,
}

impl ReadView {
    /// Returns the version of a view that answers here: the one that is served or will be once it is built, unless
    /// [`ReadView::versions`] names another.
    pub fn live(&self, name: &str) -> Result<&LiveView> {
        let registry = &self.loaded.registry;
        let other = self.versions.get(name).and_then(|version| registry.view(name, *version));
        other.or_else(|| registry.served(name)).ok_or_else(|| registry.no_view(name))
    }

    pub fn view(&self, name: &str) -> Result<&LoadedView> {
        let (live, loaded) = self.live_and_loaded(name)?;
        if !self.has_fresh_states_of(live) {
            let message = format!("the speed layer does not keep version {} of the view \"{name}\" yet: try again", live.version);
            return Err(Error::unavailable(message));
        }
        Ok(loaded)
    }

    /// The same for a view that [`ReadView::view`] returned before: not every layer is asked again whether it has it.
    pub(crate) fn known_view(&self, name: &str) -> Result<&LoadedView> {
        self.live_and_loaded(name).map(|(_, loaded)| loaded)
    }

    fn live_and_loaded(&self, name: &str) -> Result<(&LiveView, &LoadedView)> {
        let live = self.live(name)?;
        let version = live.view_version();
        let loaded = self.loaded.views.get(&version).ok_or_else(|| self.not_loaded(&version))?;
        Ok((live, loaded))
    }

    /// The served version of a view, where another one answers in its place.
    pub(crate) fn awaited(&self, name: &str) -> Option<&LiveView> {
        self.versions.get(name).and_then(|_| self.loaded.registry.served(name))
    }

    /// Whether this version of a view can be answered at this position.
    pub(crate) fn is_answerable(&self, name: &str, version: u32) -> bool {
        let live = self.loaded.registry.view(name, version);
        live.is_some_and(|live| self.loaded.views.contains_key(&live.view_version()) && self.has_fresh_states_of(live))
    }

    fn has_fresh_states_of(&self, live: &LiveView) -> bool {
        let version = live.view_version();
        self.fresh.iter().all(|layer| layer.covers(&version, |stream| live.plan.reads(stream)))
    }

    /// Whether a query reads the same from another one, apart from the time.
    pub(crate) fn reads_the_same(&self, other: &ReadView) -> bool {
        let same_layers = || self.fresh.iter().zip(&other.fresh).all(|(layer, other)| Arc::ptr_eq(layer, other));
        Arc::ptr_eq(&self.loaded, &other.loaded)
            && self.versions == other.versions
            && self.is_kept == other.is_kept
            && self.fresh.len() == other.fresh.len()
            && same_layers()
            && self.vector == other.vector
            && self.complete_to == other.complete_to
    }

    /// The snapshot that a table of a view reads, where one was published.
    ///
    /// Errors: `Unavailable` for one that could not be loaded: a table without it would be short of its rows.
    pub(crate) fn snapshot_of(&self, table: &str, view: &str) -> Result<Option<&SnapshotCopy>> {
        let loaded = self.view(view)?;
        match &loaded.snapshot {
            None if self.loaded.state.snapshot(view, loaded.live.version).is_some() => {
                Err(lacks_snapshot(table, view, "the last run's snapshot could not be loaded"))
            }
            snapshot => Ok(snapshot.as_deref()),
        }
    }

    /// The same position and time, with this version of a view in the place of the one that answers.
    ///
    /// Errors: `NotFound` if the version is not live.
    pub fn with_version(&self, name: &str, version: u32) -> Result<ReadView> {
        let Some(live) = self.loaded.registry.view(name, version) else {
            return Err(Error::not_found(format!("version {version} of the view \"{name}\" is not kept")));
        };
        let mut read_view = self.clone();
        read_view.versions.insert(live.name.clone(), version);
        Ok(read_view)
    }

    /// The same position and time with the served version of every view, whether or not it can be answered: sinks and
    /// alerts are planned over these.
    pub(crate) fn with_served_versions(self) -> ReadView {
        ReadView { versions: BTreeMap::new(), ..self }
    }

    /// The same without what is not checkpointed yet. A partition of which all that is read is committed stays as
    /// complete as it is read.
    pub(crate) fn committed(&self) -> ReadView {
        let committed = &self.loaded.vector;
        let is_committed = |id: &PartitionId| self.vector.get(id) == committed.get(id);
        let complete_to = self.complete_to.iter().filter(|(id, _)| is_committed(id)).map(|(id, time)| (id.clone(), *time));
        ReadView { fresh: Vec::new(), vector: committed.clone(), complete_to: Arc::new(complete_to.collect()), ..self.clone() }
    }

    fn not_loaded(&self, version: &ViewVersion) -> Error {
        let name = &version.name;
        if let Some(building) = self.loaded.building.get(version) {
            return building.refusal(self.now);
        }
        match self.loaded.failed.get(version) {
            Some(error) if error.kind() == ErrorKind::Corrupt => {
                error.copied().with("view", name).with("help", "`basestream repair` rebuilds what is damaged")
            }
            Some(error) if error.kind() == ErrorKind::Input => {
                let failed =
                    Error::unavailable(format!("the view \"{name}\" fails on one of its events and cannot be queried until it is changed"));
                let help = "guard its expressions (`nullif`, `CASE`, `try_cast`) or leave `on_error = 'refuse'` \
                    out, and run `basestream apply`";
                failed.with("help", help).caused_by(error.copied())
            }
            Some(error) => Error::unavailable(format!("the view \"{name}\" could not be loaded: try again")).caused_by(error.copied()),
            None => Error::unavailable(format!("the view \"{name}\" is being loaded: try again")),
        }
    }

    /// The fresh rows of a view version.
    pub fn fresh_of<'a>(&'a self, view: &'a LiveView) -> impl Iterator<Item = &'a Arc<engine::states::StateRows>> + 'a {
        let version = view.view_version();
        self.fresh.iter().filter_map(move |layer| layer.states.get(&version))
    }

    /// The events that a view leaves out because it fails on them, up to the read view's position.
    pub fn failures_of<'a>(&'a self, view: &'a LoadedView) -> impl Iterator<Item = &'a Failures> + 'a {
        let version = view.live.view_version();
        let fresh = self.fresh.iter().filter_map(move |layer| layer.failures.get(&version));
        view.failures().chain(fresh.map(|failures| &**failures))
    }

    /// The greatest event time of all accepted events of the view's streams, before WHERE.
    pub fn max_event_time(&self, view: &LiveView) -> Option<Micros> {
        self.newest_event(|stream| view.plan.reads(stream))
    }

    /// The greatest event time of all accepted events of some streams.
    pub fn newest_event(&self, is_of: impl Fn(&str) -> bool) -> Option<Micros> {
        let committed = self.loaded.state.partitions.values().filter(|p| is_of(&p.id.stream)).filter_map(|p| p.max_event_time);
        let fresh = self.fresh.iter().flat_map(|layer| &layer.max_event_time).filter(|(stream, _)| is_of(stream)).map(|(_, time)| *time);
        committed.chain(fresh).max()
    }

    /// The view's time when the query names none.
    pub fn t_of(&self, view: &LiveView) -> Micros {
        match self.clock {
            ServingClock::Wall => self.now,
            ServingClock::Event => self.max_event_time(view).unwrap_or_default(),
        }
    }

    /// Every event the log accepted before this time is counted: the minimum over the partitions of these views'
    /// streams.
    pub fn complete_to_of(&self, view: &LiveView) -> Option<Micros> {
        self.complete_partitions(|stream| view.plan.reads(stream)).map(|(_, complete_to)| complete_to).min().flatten()
    }

    /// The same for each partition of the view's streams that has a commit or that a worker of this process, or of one
    /// that it follows, reads. The log may have others. `None`: not known.
    pub fn complete_to_by_partition(&self, view: &LiveView) -> BTreeMap<PartitionId, Option<Micros>> {
        let partitions = self.complete_partitions(|stream| view.plan.reads(stream));
        partitions.map(|(id, complete_to)| (id.clone(), complete_to)).collect()
    }

    /// Until when each known partition of the streams that are read is complete.
    pub(crate) fn complete_partitions<'a>(
        &'a self,
        reads: impl Fn(&str) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = (&'a PartitionId, Option<Micros>)> {
        let partitions = &self.loaded.state.partitions;
        let committed = partitions.keys().filter(move |id| reads(&id.stream));
        let committed = committed.map(|id| (id, self.complete_to_of_partition(id)));
        let others = self.complete_to.keys().filter(move |id| reads(&id.stream) && !partitions.contains_key(*id));
        let others = others.filter_map(|id| Some((id, Some(self.complete_to_of_partition(id)?))));
        committed.chain(others)
    }

    /// Until when a partition is complete; `None` if that is not known.
    pub fn complete_to_of_partition(&self, id: &PartitionId) -> Option<Micros> {
        let read = self.complete_to.get(id).copied();
        match self.loaded.state.partitions.get(id) {
            // What is read is further than what is committed, unless the partition has gone to a process that is not
            // followed.
            Some(known) => known.complete_to.max(read),
            // Where nothing is read yet, the time may be one of the topic before.
            None => read.filter(|_| self.vector.get(id) > Offset::ZERO || !self.loaded.registry.moved.contains(&id.stream)),
        }
    }
}

/// The error for a table that cannot be read without a snapshot, or without a part of it.
pub(crate) fn lacks_snapshot(table: &str, view: &str, what: &str) -> Error {
    let error = Error::unavailable(format!("\"{table}\" cannot be read: {what}"));
    error.with("help", format_args!("`basestream batch run {view}` makes a new one"))
}

/// The error for a mistake of a query over the version before of a changed view that is none over the served version.
pub(crate) fn only_served_version_answers(mistake: &Error) -> Error {
    let message = format!("a view has changed, and its version before, which still answers, cannot answer this: {mistake}");
    Error::unavailable(message).with("help", "try again in a second")
}

impl Loaded {
    /// Why the served version of a view cannot be queried, if it cannot.
    pub fn refusal(&self, view: &str) -> Option<&Error> {
        let served = self.registry.served(view)?;
        self.failed.get(&served.view_version())
    }

    /// True when a snapshot turned out to be damaged while it was copied.
    pub(crate) fn is_damaged(&self) -> bool {
        self.views.values().any(|view| view.snapshot.as_ref().is_some_and(|copy| copy.damage().is_some()))
    }
}

impl BuildingView {
    fn refusal(&self, now: Micros) -> Error {
        let (live, progress) = (&self.held.live, &self.progress);
        let message = format!("the view \"{}\" is being built from {} archived events: {}", live.name, progress.events, progress.text(now));
        let mut error = Error::unavailable(message).with("view", &live.name).with("version", live.version);
        for (field, value) in self.fields(now) {
            error = error.with(field, value);
        }
        if let Some(last) = &self.last_error {
            error = error.with("last_error", last);
        }
        let help = format!(
            "ask again later: a scheduler (`basestream up` or `basestream scheduler`) builds it; without one, \
             `basestream batch run {}` does",
            live.name
        );
        error.with("help", help)
    }

    /// How far it is, as numbers; without `seconds_left` while that is not known.
    pub fn fields(&self, now: Micros) -> Vec<(&'static str, i64)> {
        let BuildProgress { events, events_read, .. } = self.progress;
        let known = [("percent", self.progress.percent()), ("events_read", events_read), ("events", events)];
        known.into_iter().chain(self.progress.seconds_left(now).map(|seconds| ("seconds_left", seconds))).collect()
    }
}

impl LoadedView {
    pub fn new(
        live: LiveView,
        snapshot: Option<Arc<SnapshotCopy>>,
        cut: Vector,
        lost: Option<LostSnapshot>,
        layers: Vec<LayerRun>,
    ) -> LoadedView {
        LoadedView { live, snapshot, cut, lost, layers, kept_tiles: KeptTiles::default() }
    }

    /// The events that the view leaves out because it fails on them, part by part: the snapshot's, then those after its
    /// cut.
    pub fn failures(&self) -> impl Iterator<Item = &Failures> {
        let of_snapshot = self.snapshot.iter().map(|snapshot| &snapshot.manifest.failures);
        of_snapshot.chain(self.layers.iter().map(|layer| &*layer.failures))
    }

    /// The snapshot, while some of it is not copied yet.
    pub(crate) fn copying(&self) -> Option<&SnapshotCopy> {
        self.snapshot.as_deref().filter(|copy| !copy.is_whole())
    }

    /// True when states answer at `t`: it is at or past the greatest event time they hold, and no tile it needs was
    /// dropped.
    pub(crate) fn answers_at(&self, t: Micros, max_event_time: Option<Micros>) -> bool {
        max_event_time.is_none_or(|newest| t >= newest) && self.keeps(t)
    }

    /// True when the snapshot has every tile that an answer at `t` needs: it was made for `t` or an earlier time.
    pub fn keeps(&self, t: Micros) -> bool {
        let Some(snapshot) = &self.snapshot else { return true };
        let plan = &self.live.plan;
        let has_tiles = || {
            snapshot.manifest.floors.iter().all(|(level, kept)| match kept {
                None => true,
                Some(kept) => plan.floor(*level, t).is_some_and(|need| *kept <= need),
            })
        };
        self.kept_tiles.suffice(t, || has_tiles() && snapshot.manifest.edges_from.keeps(&plan.edges_from(t)))
    }
}

/// From when on a snapshot is known to have the tiles that answers need. What suffices at one time suffices at every
/// later one, because no edge of a range moves back as time passes.
#[derive(Debug)]
pub(crate) struct KeptTiles {
    /// They suffice at all times after this one.
    after: AtomicI64,
}

impl KeptTiles {
    fn suffice(&self, t: Micros, examined: impl FnOnce() -> bool) -> bool {
        if self.after.load(Ordering::Relaxed) < t {
            return true;
        }
        let suffice = examined();
        if suffice {
            self.after.fetch_min(t.saturating_sub(1), Ordering::Relaxed);
        }
        suffice
    }
}

impl Default for KeptTiles {
    fn default() -> KeptTiles {
        KeptTiles { after: AtomicI64::new(Micros::MAX) }
    }
}

/// A copy of a view may get another snapshot.
impl Clone for KeptTiles {
    fn clone(&self) -> KeptTiles {
        KeptTiles::default()
    }
}

#[cfg(test)]
mod tests;
