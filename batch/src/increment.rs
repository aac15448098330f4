//! An incremental run: adds the states of the checkpoints since the last cut to the previous snapshot, as a delta, and
//! merges tiers that are due.
//!
//! ```text
//! checkpoints since the cut --segments--> delta ------------------------------------+
//! tiers of the snapshot before --those that are due--> merged into one tier --------+--> snapshot
//!                              \--the others, as they are---------------------------+
//! ```
//!
//! A linked view's tiers are edges, and its snapshot has a join over them as well (`linked`).

use std::sync::Arc;

use catalog::{CheckpointRecord, RunRecord, SnapshotFiles, checkpoints_after};
use committed::lacking::events_of;
use committed::registry::LiveView;
use storage::{LeftOut, Manifest, MaterialisedJoin, Tier};
use tracing::info;
use types::failures::Failures;
use types::tiles::{EdgesFrom, Micros};
use types::{ErrorKind, Result};

use crate::attempt::{Attempt, NewSnapshot};
use crate::basis::{greater, is_lost_to, later};
use crate::bucket_count::delta_bucket_count;
use crate::bucket_partitioner::BucketRows;
use crate::context::RunContext;
use crate::due_tiers::{first_due, is_outlived};
use crate::join::{CopiedTier, LocalTier};
use crate::linked::{LinkedRun, is_join_due};
use crate::segments::{States, StatesFrom, at_levels, states_bytes, states_of};
use crate::tiers::tier_rows;
use crate::write::{Rows, Written};

/// The outcome of an incremental run.
pub(crate) enum Incremented {
    Snapshot(Box<NewSnapshot>),
    /// The previous snapshot holds everything up to the cut.
    Nothing,
    /// The run has to recompute from the archive, for this reason.
    NotPossible(String),
}

/// Makes a snapshot of the one `before` and the checkpoints since, whose states are taken `from` there.
pub(crate) async fn increment(attempt: &Attempt<'_>, before: Manifest, from: StatesFrom, context: &RunContext<'_>) -> Result<Incremented> {
    let checkpoints = checkpoints_after(attempt.state, &attempt.view.streams(), &before.cut)?;
    let is_lost = |path: &str| is_lost_to(attempt.run.id, attempt.state, path);
    if is_nothing_new(&checkpoints, &attempt.view, (&before, attempt.inputs.t), is_lost) {
        return Ok(Incremented::Nothing);
    }
    let events = events_of(attempt.state, &attempt.view, &checkpoints);
    let buckets = delta_bucket_count(events, &attempt.settings, before.parts());
    let prepare = at_levels(attempt, EdgesFrom::default());
    let States { buckets: states, failures, .. } = match states_of(attempt, &checkpoints, from, buckets, prepare, context).await {
        // A recomputation spills where a segment that is computed from the archive cannot.
        Err(error) if error.kind() == ErrorKind::Limit => return Ok(Incremented::NotPossible(error.to_string())),
        read => read?,
    };
    let linked = LinkedRun::begin(attempt, &before).await?;
    let tiers: Vec<&Tier> = before.tiers().collect();
    let (kept, due) = tiers.split_at(first_due(&before, &attempt.view, attempt.inputs.t));
    let mut output = TierOutput { attempt, context, linked: linked.as_ref(), written: Written::default(), expired: 0 };
    let merged = match due {
        [] => None,
        due => Some(output.merge(due, before.parts()).await?),
    };
    let delta = output.write(states, Rows::Events).await?;
    info!(view = %attempt.view.name, run = %attempt.run.id, checkpoints = checkpoints.len(), merged = due.len(),
        rows = output.written.rows, "the states since the last cut are written");
    let NewTiers { tiers, joined, carried_over, copies } = output.assemble(&before, kept, merged, delta).await?;
    let TierOutput { written, expired, .. } = output;
    // Only where tiers are merged, edges are left out.
    let edges_from = if due.is_empty() { before.edges_from } else { later(&before.edges_from, &attempt.inputs.edges_from) };
    let added = SnapshotAddition { events, expired, failures, edges_from };
    let manifest = Manifest { joined, ..added.manifest(attempt, &before, tiers, (context.clock)()) };
    let merged_bytes: i64 = due.iter().map(|tier| tier.bytes()).sum();
    let bytes_read = states_bytes(attempt, &checkpoints) + merged_bytes;
    let run = RunRecord { events_read: events, bytes_read, ..attempt.record_with(&written) };
    let files = SnapshotFiles { written: written.files, carried_over };
    Ok(Incremented::Snapshot(Box::new(NewSnapshot { manifest, files, run, copies })))
}

/// The addition of the new snapshot to the previous one.
struct SnapshotAddition {
    events: i64,
    /// The number of events of links that were left out because no window reaches them any more.
    expired: i64,
    /// The events that the view fails on.
    failures: Failures,
    edges_from: EdgesFrom,
}

impl SnapshotAddition {
    /// Returns the manifest of the new snapshot with these tiers, without its join.
    fn manifest(self, attempt: &Attempt<'_>, before: &Manifest, mut tiers: Vec<Tier>, made_at: Micros) -> Manifest {
        let deltas = if tiers.is_empty() { Vec::new() } else { tiers.split_off(1) };
        let base = tiers.pop().unwrap_or_default();
        let mut failures = before.failures.clone();
        failures.extend(&self.failures);
        Manifest {
            format: Manifest::format_of(&self.edges_from, &deltas),
            rows: base.rows() + deltas.iter().map(Tier::rows).sum::<i64>(),
            base,
            deltas,
            floors: greater(&before.floors, &attempt.inputs.floors),
            edges_from: self.edges_from,
            left_out: left_out(before),
            recomputed_at: Some(before.recomputed_at.unwrap_or(before.made_at)),
            events: before.events + self.events,
            expired: before.expired + self.expired,
            failures,
            ..attempt.empty_manifest(made_at)
        }
    }
}

/// Whether the previous snapshot holds everything, the passing of time has not changed it, and its join is undamaged.
pub(crate) fn is_nothing_new(
    checkpoints: &[&CheckpointRecord],
    view: &LiveView,
    (before, t): (&Manifest, Micros),
    is_lost: impl Fn(&str) -> bool,
) -> bool {
    let has_lost_part = before.joined.iter().flat_map(|joined| &joined.files).any(|file| is_lost(&file.path));
    checkpoints.is_empty() && !has_lost_part && !is_outlived(before, view, t) && !is_join_due(view, before.joined.as_ref(), t)
}

/// The events left out by the recomputation that made the present base.
fn left_out(before: &Manifest) -> Option<LeftOut> {
    let of_base = || before.joined.as_ref().map(|joined| LeftOut { cut: before.cut.clone(), t: joined.t });
    before.left_out.clone().or_else(of_base)
}

/// Drops tiers without rows, except for the base.
fn not_empty<T>(tiers: impl Iterator<Item = T>, tier: impl Fn(&T) -> &Tier) -> Vec<T> {
    tiers.enumerate().filter(|(place, one)| *place == 0 || !tier(one).files.is_empty()).map(|(_, one)| one).collect()
}

/// The output of a run.
struct TierOutput<'r> {
    attempt: &'r Attempt<'r>,
    context: &'r RunContext<'r>,
    linked: Option<&'r LinkedRun>,
    written: Written,
    /// The number of events of links that were left out because no window reaches them any more.
    expired: i64,
}

/// The tiers of the new snapshot, oldest first, and its join.
struct NewTiers {
    tiers: Vec<Tier>,
    /// The join of a linked view.
    joined: Option<MaterialisedJoin>,
    /// The paths of files that the new snapshot shares with the previous one.
    carried_over: Vec<String>,
    /// Of a linked view: the local copies of the tiers, for the next run.
    copies: Vec<CopiedTier>,
}

/// A tier, and for a linked view its local copy.
#[derive(Clone)]
struct WrittenTier {
    tier: Tier,
    copied: Option<Arc<LocalTier>>,
}

impl WrittenTier {
    fn with_copy(self) -> Option<CopiedTier> {
        Some(CopiedTier { tier: self.tier, copy: self.copied? })
    }
}

impl TierOutput<'_> {
    /// Merges tiers of a snapshot of this many `parts` into one.
    async fn merge(&mut self, tiers: &[&Tier], parts: u32) -> Result<WrittenTier> {
        let attempt = self.attempt;
        let rows = tiers.iter().map(|tier| tier.rows()).sum();
        let buckets = delta_bucket_count(rows, &attempt.settings, parts);
        let (rows, expired) = tier_rows(attempt, tiers, attempt.inputs.edges_from, buckets).await?;
        self.expired += expired;
        self.write(rows, Rows::Tiers).await
    }

    /// Puts together the tiers that are kept, the merged one and the delta, and writes the join over them.
    async fn assemble(&mut self, before: &Manifest, kept: &[&Tier], merged: Option<WrittenTier>, delta: WrittenTier) -> Result<NewTiers> {
        let mut carried_over: Vec<String> = kept.iter().flat_map(|tier| &tier.files).map(|file| file.path.clone()).collect();
        match (self.linked, delta.copied.clone()) {
            (Some(linked), Some(copied)) => {
                let added = merged.into_iter().chain([delta]).filter_map(WrittenTier::with_copy);
                let copies = not_empty(linked.kept_tiers(kept.len()).into_iter().chain(added), |copied| &copied.tier);
                let join = linked.join(self.attempt, before, &copies, &copied).await?;
                carried_over.extend(join.carried_over);
                self.written.add(join.files);
                let tiers = copies.iter().map(|copied| copied.tier.clone()).collect();
                Ok(NewTiers { tiers, joined: Some(join.joined), carried_over, copies })
            }
            _ => {
                let added = merged.into_iter().chain([delta]).map(|written| written.tier);
                let tiers = not_empty(kept.iter().copied().cloned().chain(added), |tier| tier);
                Ok(NewTiers { tiers, joined: None, carried_over, copies: Vec::new() })
            }
        }
    }

    async fn write(&mut self, states: Vec<BucketRows>, rows: Rows) -> Result<WrittenTier> {
        let bucket_count = states.len() as u32;
        let already = self.written.rows;
        let progress = |rows: i64| (self.context.progress)(already + rows);
        let local = self.linked.map(|linked| &linked.local);
        let mut written = self.attempt.writer(rows).write(states, local, &progress).await?;
        self.written.rows += written.rows;
        self.written.bytes += written.bytes;
        self.written.files.append(&mut written.files);
        let tier = Tier { bucket_count, files: written.buckets, pruned_at: Some(self.attempt.inputs.t) };
        let copied = match local {
            Some(local) => Some(Arc::new(local.mapped(bucket_count, written.local).await?)),
            None => None,
        };
        Ok(WrittenTier { tier, copied })
    }
}
