//! The inputs and tools of a run between its start and its publication, and the snapshot that it makes.

use std::sync::Arc;

use catalog::{CatalogState, RunRecord, SnapshotFiles};
use committed::registry::{LiveView, Registry};
use datafusion::prelude::SessionContext;
use storage::{Manifest, Tier, read_manifest};
use tracing::warn;
use types::failures::Failures;
use types::{Error, ErrorKind, Result, Strategy};

use crate::basis::{Basis, addable, gaps_before};
use crate::bucket_count::bucket_count;
use crate::bucket_partitioner::ShuffleContext;
use crate::context::RunContext;
use crate::decide::RunInputs;
use crate::join::CopiedTier;
use crate::layer::{Batch, RunSettings};
use crate::memory::PeakPool;
use crate::mode::RunMode;
use crate::request::RunRequest;
use crate::run_leases::RunLeases;
use crate::session::open_session;
use crate::write::{Rows, SnapshotWriter, Written};

/// A snapshot that is written but not published yet.
pub(crate) struct NewSnapshot {
    pub(crate) manifest: Manifest,
    pub(crate) files: SnapshotFiles,
    /// The run's record, with what it read and wrote.
    pub(crate) run: RunRecord,
    /// Of a linked view: the copies of its tiers, for the next run.
    pub(crate) copies: Vec<CopiedTier>,
}

/// A run in progress: its inputs and its tools.
pub(crate) struct Attempt<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) state: &'a Arc<CatalogState>,
    /// The settings of the run, with its limits.
    pub(crate) settings: RunSettings,
    pub(crate) run: RunRecord,
    pub(crate) view: LiveView,
    /// The manifest of the published snapshot, if there is one that can be read.
    pub(crate) before: Option<Manifest>,
    pub(crate) inputs: RunInputs,
    /// Whether other runs of the version continue meanwhile.
    pub(crate) is_concurrent: bool,
    /// Of a linked view: copies of tiers of the snapshot that the run adds to. `None`: the last run in this process may
    /// have left some.
    pub(crate) copies: Option<Vec<CopiedTier>>,
    pub(crate) pool: Arc<PeakPool>,
    pub(crate) session: SessionContext,
}

impl<'a> Attempt<'a> {
    /// Reads the run's inputs, and decides on the basis of its snapshot. If that is the archive, other runs of the
    /// version may continue meanwhile, provided they can add to the existing snapshot.
    pub(crate) async fn prepare(
        batch: &'a Batch,
        state: &'a Arc<CatalogState>,
        run: RunRecord,
        request: &RunRequest,
        context: &RunContext<'_>,
    ) -> Result<(Attempt<'a>, Basis)> {
        let registry = Registry::load(state, &batch.functions).await?;
        let view = view_of(&registry, &run)?.clone();
        let before = manifest_before(batch, state, &view).await?;
        let inputs = RunInputs::at_cut(state, &run, (&view, before.as_ref()), request.t)?;
        let mut basis = Basis::decide(state, &view, before.as_ref(), (inputs.t, request.mode), (context.clock)());
        let mut is_concurrent = false;
        if let (Basis::Archive(_), Some(addable)) = (&basis, addable(state, &view, before.as_ref(), inputs.t)) {
            let is_asked_for = request.mode == RunMode::Full;
            is_concurrent = (is_asked_for || !request.leaves_full_every) && context.leases.acquire_recompute(&inputs.cut).await?;
            if is_concurrent {
                context.note_strategy(Strategy::Full);
                context.step_aside(&batch.catalog, &run).await?;
            } else if is_asked_for {
                return Err(recomputed_already(&view));
            } else {
                basis = Basis::Snapshot(Box::new(addable.clone()));
            }
        }
        let strategy = basis.strategy(&view, request.mode);
        context.note_strategy(strategy);
        let run = RunRecord { strategy: Some(strategy), ..run };
        let mut settings = batch.settings.clone();
        if let Some(limit) = request.concurrency.memory_limit_bytes.filter(|_| is_concurrent) {
            settings.memory_limit_bytes = settings.memory_limit_bytes.min(limit);
        }
        let pool = Arc::new(PeakPool::new(settings.memory_limit_bytes));
        let session = open_session(&settings, &batch.storage, &batch.functions, pool.clone())?;
        Ok((Attempt { batch, state, settings, run, view, before, inputs, is_concurrent, copies: None, pool, session }, basis))
    }

    /// The same run on a later catalog state, with its version as that says.
    pub(crate) fn on<'b>(
        &'b self,
        state: &'b Arc<CatalogState>,
        view: LiveView,
        before: Option<Manifest>,
        inputs: RunInputs,
    ) -> Attempt<'b> {
        Attempt {
            batch: self.batch,
            state,
            settings: self.settings.clone(),
            run: self.run.clone(),
            view,
            before,
            inputs,
            is_concurrent: false,
            copies: None,
            pool: self.pool.clone(),
            session: self.session.clone(),
        }
    }

    /// The number of archived events that a recomputation reads, perhaps with others in the same files.
    pub(crate) fn archived_events(&self) -> i64 {
        self.inputs.archive(self.state, &self.view).iter().map(|file| file.rows).sum()
    }

    /// The number of buckets for all states of this many events.
    pub(crate) fn bucket_count(&self, events: i64) -> u32 {
        bucket_count(events, self.settings.events_per_bucket)
    }

    /// The context for partitioning states into this many buckets.
    pub(crate) fn shuffle(&self, buckets: u32) -> ShuffleContext {
        ShuffleContext {
            plan: self.view.plan.clone(),
            floors: self.inputs.floors.clone(),
            edges_from: self.inputs.edges_from,
            codec: self.view.codec.clone(),
            buckets,
            threads: self.settings.thread_count(),
            temp_dir: self.settings.temp_dir.clone(),
            pool: self.pool.clone(),
            limit_bytes: self.settings.memory_limit_bytes,
        }
    }

    /// The writer of a tier: it sorts and merges each bucket and, depending on `rows`, rolls it up.
    pub(crate) fn writer(&self, rows: Rows) -> SnapshotWriter {
        SnapshotWriter {
            storage: self.batch.storage.clone(),
            plan: self.view.plan.clone(),
            codec: self.view.codec.clone(),
            version: self.view.version,
            run: self.run.id,
            rows,
            is_concurrent: self.is_concurrent,
            floors: self.inputs.floors.clone(),
            limit_bytes: self.settings.memory_limit_bytes,
            threads: self.settings.thread_count(),
            context: self.session.task_ctx(),
        }
    }

    /// The run's record, with the counts of what was written.
    pub(crate) fn record_with(&self, written: &Written) -> RunRecord {
        RunRecord { rows_written: written.rows, bytes_written: written.bytes, ..self.run.clone() }
    }

    /// A manifest of this run that names no files.
    pub(crate) fn empty_manifest(&self, made_at: i64) -> Manifest {
        Manifest {
            format: 1,
            view: self.view.name.clone(),
            version: self.view.version,
            run: self.run.id,
            cut: self.inputs.cut.clone(),
            stamp: self.view.plan.stamp.clone(),
            base: Tier::default(),
            deltas: Vec::new(),
            floors: self.inputs.floors.clone(),
            edges_from: self.inputs.edges_from,
            left_out: None,
            max_event_time: self.inputs.max_event_time,
            made_at,
            recomputed_at: None,
            gaps: gaps_before(self.state, &self.view, &self.inputs.cut),
            events: 0,
            expired: 0,
            rows: 0,
            failures: Failures::default(),
            joined: None,
        }
    }
}

/// Refuses a requested recomputation, before it has a record, if another run already recomputes the version
/// concurrently. All other checks are left to the attempt.
///
/// Errors: `Conflict`.
pub(crate) async fn refuse_second_recomputation(batch: &Batch, request: &RunRequest, version: u32, leases: &RunLeases) -> Result<()> {
    if request.mode != RunMode::Full || !leases.is_recomputed_by_another().await? {
        return Ok(());
    }
    let state = batch.catalog.state().await?;
    let registry = Registry::load(&state, &batch.functions).await?;
    let run = RunRecord { cut: Some(state.vector()), ..RunRecord::requested(request.view.clone(), version) };
    let Ok(view) = view_of(&registry, &run) else { return Ok(()) };
    let before = manifest_before(batch, &state, view).await?;
    let inputs = RunInputs::at_cut(&state, &run, (view, before.as_ref()), request.t)?;
    match addable(&state, view, before.as_ref(), inputs.t) {
        Some(_) => Err(recomputed_already(view)),
        None => Ok(()),
    }
}

fn recomputed_already(view: &LiveView) -> Error {
    Error::conflict(format!("version {} of the view \"{}\" is being recomputed already", view.version, view.name))
}

/// Returns the view version of a run.
pub(crate) fn view_of<'r>(registry: &'r Registry, run: &RunRecord) -> Result<&'r LiveView> {
    let unknown = || Error::not_found(format!("the view \"{}\" has no live version {} that keeps states", run.view, run.version));
    registry.view(&run.view, run.version).ok_or_else(unknown)
}

/// Reads the manifest of the published snapshot. `None` if there is none, or it is damaged. Its cut is the catalog's,
/// which skipped runs have advanced: checkpoints are compacted up to there.
///
/// Errors: `Unavailable` if the storage does not answer: a recomputation would cost much, and the next attempt little.
pub(crate) async fn manifest_before(batch: &Batch, state: &CatalogState, view: &LiveView) -> Result<Option<Manifest>> {
    let Some(record) = state.snapshot(&view.name, view.version) else { return Ok(None) };
    let Some(file) = state.files.get(&record.manifest) else { return Ok(None) };
    match read_manifest(&batch.storage, file).await {
        Ok(manifest) => Ok(Some(Manifest { cut: record.cut.clone(), ..manifest })),
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        Err(error) => {
            warn!(view = %view.name, %error, "the manifest of the previous snapshot cannot be read");
            Ok(None)
        }
    }
}
