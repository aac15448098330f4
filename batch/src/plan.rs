//! Estimates what a run would read and write, from the catalog and the manifest of the previous snapshot.

use std::sync::Arc;

use catalog::{CatalogState, CheckpointRecord, RunRecord, checkpoints_after, draft_to_resume};
use committed::lacking::{MissingStates, SplitCheckpoints, archive_files_read, events_of, split_lacking};
use committed::registry::{LiveView, Registry};
use serde::Serialize;
use storage::{Manifest, Tier};
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::Vector;
use types::{Result, Strategy};

use crate::attempt::{manifest_before, view_of};
use crate::basis::{Basis, is_compared, is_lost};
use crate::decide::{RunInputs, RunTime, version_to_run};
use crate::due_tiers::first_due;
use crate::from_checkpoints::countable;
use crate::increment::is_nothing_new;
use crate::layer::Batch;
use crate::mode::RunMode;
use crate::segments::StatesFrom;

/// What a run would do now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunPlan {
    pub view: Arc<str>,
    pub version: u32,
    pub strategy: Strategy,
    /// Why it would not add to the previous snapshot.
    pub why: Option<String>,
    /// Whether it would be skipped because nothing is new.
    pub skipped: bool,
    pub cut: Vector,
    /// The number of checkpoints whose states it would gather: those since the last run's cut, or all. 0 for a
    /// recomputation.
    pub checkpoints: usize,
    /// The number of archived events whose states it would read or compute.
    pub events: i64,
    /// How many of these events an earlier run had already read before it ended early: this run would continue from
    /// there.
    pub resumed: i64,
    /// How many of these events would be read from the log.
    pub replayed: i64,
    pub states_objects: FileTotals,
    pub archive: FileTotals,
    /// The parts of the snapshot that it would merge into one.
    pub merged: FileTotals,
    /// What the comparison would read in addition to the new snapshot: the previous one, and the states since its cut.
    /// Zero if nothing would be compared.
    pub compared: FileTotals,
    /// An estimate of what it would write; `None` for a first run. An incremental run would write at most this, apart
    /// from its join.
    pub written_bytes: Option<i64>,
}

/// How many files there are, and their size together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FileTotals {
    pub files: usize,
    pub bytes: i64,
}

impl<'f> FromIterator<&'f FileRecord> for FileTotals {
    fn from_iter<I: IntoIterator<Item = &'f FileRecord>>(files: I) -> Self {
        files.into_iter().fold(FileTotals::default(), |sum, file| FileTotals { files: sum.files + 1, bytes: sum.bytes + file.bytes })
    }
}

impl Batch {
    /// Returns what a run of a view would do now. Nothing is written. `compare`: as in
    /// [`RunRequest`](crate::RunRequest).
    ///
    /// Errors: `NotFound` for an unknown view; `Unavailable` if the storage does not answer.
    pub async fn plan(&self, view: &str, t: RunTime, (mode, compare): (RunMode, bool), now: Micros) -> Result<RunPlan> {
        let state = self.catalog.state().await?;
        let version = version_to_run(&state, view)?;
        let run = RunRecord { cut: Some(state.vector()), ..RunRecord::requested(view.into(), version) };
        let registry = Registry::load(&state, &self.functions).await?;
        let live = view_of(&registry, &run)?;
        let before = manifest_before(self, &state, live).await?;
        let inputs = RunInputs::at_cut(&state, &run, (live, before.as_ref()), t)?;
        let basis = Basis::decide(&state, live, before.as_ref(), (inputs.t, mode), now);
        let (from, strategy) = (StatesFrom::decide(live, mode), basis.strategy(live, mode));
        let is_recomputed = !matches!(basis, Basis::Snapshot(_));
        let comparable = before.as_ref().filter(|before| compare && is_recomputed && is_compared(&state, live, before, (inputs.t, mode)));
        let compared = comparable.map(|before| compared_files(&state, live, before)).unwrap_or_default();
        let plan = match basis {
            Basis::Archive(why) => RunPlan {
                why: Some(why.to_owned()),
                events: inputs.archive(&state, live).iter().map(|file| file.rows).sum(),
                archive: inputs.archive(&state, live).iter().collect(),
                written_bytes: before.map(|before| before.state_files().map(|file| file.bytes).sum()),
                resumed: draft_to_resume(&state, &live.name, version, now).map_or(0, |draft| draft.events),
                ..empty(live, strategy, inputs.cut)
            },
            Basis::Checkpoints(why) => RunPlan {
                why: Some(why.to_owned()),
                written_bytes: before.map(|before| before.state_files().map(|file| file.bytes).sum()),
                ..plan_of_checkpoints(&state, live, countable(&state, live, &inputs), from, strategy, inputs.cut)
            },
            Basis::Snapshot(before) => incremental(&state, live, &before, from, strategy, inputs)?,
        };
        Ok(RunPlan { compared, ..plan })
    }
}

/// The files of a snapshot, and the states objects that were committed since.
fn compared_files(state: &CatalogState, live: &LiveView, before: &Manifest) -> FileTotals {
    let checkpoints = checkpoints_after(state, &live.streams(), &before.cut).unwrap_or_default();
    let states: FileTotals = checkpoints.iter().flat_map(|checkpoint| state.readable_of(checkpoint.id, FileKind::States)).collect();
    let of_tiers = before.tiers().map(Tier::bytes).sum::<i64>();
    FileTotals { files: states.files + before.state_files().count(), bytes: states.bytes + of_tiers }
}

fn incremental(
    state: &CatalogState,
    live: &LiveView,
    before: &Manifest,
    from: StatesFrom,
    strategy: Strategy,
    inputs: RunInputs,
) -> Result<RunPlan> {
    let checkpoints = checkpoints_after(state, &live.streams(), &before.cut)?;
    let skipped = is_nothing_new(&checkpoints, live, (before, inputs.t), |path| is_lost(state, path));
    let tiers: Vec<&Tier> = before.tiers().collect();
    let due = if skipped { &[] } else { &tiers[first_due(before, live, inputs.t)..] };
    let merged = FileTotals { files: due.iter().map(|tier| tier.files.len()).sum(), bytes: due.iter().map(|tier| tier.bytes()).sum() };
    let plan = plan_of_checkpoints(state, live, checkpoints, from, strategy, inputs.cut);
    let written = merged.bytes + plan.states_objects.bytes + plan.archive.bytes;
    // What is replayed from the log may be of any size.
    let written_bytes = (plan.replayed == 0).then_some(written);
    Ok(RunPlan { skipped, merged, written_bytes, ..plan })
}

/// Plans what a run reads of these checkpoints.
fn plan_of_checkpoints(
    state: &CatalogState,
    live: &LiveView,
    checkpoints: Vec<&CheckpointRecord>,
    from: StatesFrom,
    strategy: Strategy,
    cut: Vector,
) -> RunPlan {
    let (count, events) = (checkpoints.len(), events_of(state, live, &checkpoints));
    let SplitCheckpoints { stored, lacking: to_compute } = match from {
        StatesFrom::Events(_) => SplitCheckpoints { stored: Vec::new(), lacking: checkpoints },
        StatesFrom::Stored | StatesFrom::StoredOrLog => split_lacking(state, live, &MissingStates::default(), checkpoints),
    };
    let states_objects = stored.iter().flat_map(|checkpoint| state.readable_of(checkpoint.id, FileKind::States)).collect();
    let (archive, replayed) = match from.reads_log() {
        true => (FileTotals::default(), events_of(state, live, &to_compute)),
        false => (to_compute.iter().flat_map(|checkpoint| archive_files_read(state, live, checkpoint.id)).collect(), 0),
    };
    RunPlan { checkpoints: count, events, replayed, states_objects, archive, ..empty(live, strategy, cut) }
}

fn empty(live: &LiveView, strategy: Strategy, cut: Vector) -> RunPlan {
    RunPlan {
        view: live.name.clone(),
        version: live.version,
        strategy,
        why: None,
        skipped: false,
        cut,
        checkpoints: 0,
        events: 0,
        resumed: 0,
        replayed: 0,
        states_objects: FileTotals::default(),
        archive: FileTotals::default(),
        merged: FileTotals::default(),
        compared: FileTotals::default(),
        written_bytes: None,
    }
}
