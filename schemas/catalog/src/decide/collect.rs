//! Plans which files no state needs any more. A plan is a value: it can be printed before anything is deleted.
//!
//! Collection is a sequence of rounds, each safe to repeat. A round that finds marked files deletes them (`delete`),
//! then commits [`CollectionPlan::delete_commit`]. Any other round commits [`CollectionPlan::marking_commit`]. A plan
//! may be larger than a transaction should be: [`CollectionPlan::deletions`] and [`CollectionPlan::marks`] are the part
//! of it that comes first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use super::reads::{Published, StreamsRead};
use crate::{
    CatalogState, CheckpointRange, CheckpointRecord, Commit, DefinitionKind, DefinitionRecord, Expect, Remove, Revision, RunRecord,
    RunStatus, SnapshotRecord,
};
use types::files::{FileKind, FileRecord, made_at};
use types::tiles::Micros;
use types::uuid_text;
use types::vector::Vector;

/// The minimum time to keep what readers of an earlier state may still read: a snapshot that was replaced or whose
/// version was retired, or a superseded file. A query may have read the catalog just before, and pins only later.
pub(crate) const GRACE: Duration = Duration::from_secs(10 * 60);

/// What a collection would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CollectionPlan {
    /// The state that the plan is based on: marking is refused if anything was committed since.
    pub revision: Revision,
    /// Paths to mark: after that, no transaction may name them.
    pub mark_for_deletion: Vec<String>,
    /// Paths that an earlier collection marked: their files can be deleted.
    pub delete: Vec<String>,
    /// Snapshots of retired view versions that are no longer read.
    pub withdraw: Vec<(Arc<str>, u32)>,
    /// Checkpoints past retention that have no file left.
    #[serde(serialize_with = "uuid_text::list::serialize")]
    pub forget: Vec<Uuid>,
}

impl CollectionPlan {
    /// Whether there is nothing to mark or to delete.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many files, snapshots and checkpoints the plan is about.
    pub fn len(&self) -> usize {
        self.mark_for_deletion.len() + self.delete.len() + self.withdraw.len() + self.forget.len()
    }

    /// Returns the first deletions, `most` at most.
    pub fn deletions(&self, most: usize) -> CollectionPlan {
        let delete = self.delete.iter().take(most).cloned().collect();
        CollectionPlan { revision: self.revision, delete, ..CollectionPlan::default() }
    }

    /// Returns what is marked, forgotten and withdrawn first: all of it, or `most` and at most one view's withdrawn
    /// snapshots more. `state` is the one that the plan is based on.
    ///
    /// A view's snapshots are withdrawn together and with all of their files, so that no state names a snapshot whose
    /// files may be gone. They are withdrawn last, because they say when the view's older files were replaced.
    pub fn marks(&self, state: &CatalogState, most: usize) -> CollectionPlan {
        let withdrawn = self.withdraw.iter().filter_map(|(view, version)| Some((state.snapshot(view, *version)?.run, &**view)));
        let withdrawn: HashMap<Uuid, &str> = withdrawn.collect();
        let mut files_of_views: BTreeMap<&str, Vec<&String>> = self.withdraw.iter().map(|(view, _)| (&**view, Vec::new())).collect();
        let mut part = CollectionPlan { revision: self.revision, ..CollectionPlan::default() };
        for path in &self.mark_for_deletion {
            let run = state.files.get(path).and_then(|file| file.run);
            match run.and_then(|run| withdrawn.get(&run)) {
                Some(&view) => files_of_views.entry(view).or_default().push(path),
                None if part.len() < most => part.mark_for_deletion.push(path.clone()),
                None => {}
            }
        }
        part.forget.extend(self.forget.iter().take(most.saturating_sub(part.len())));
        for (view, files) in files_of_views {
            if part.len() >= most {
                break;
            }
            part.mark_for_deletion.extend(files.into_iter().cloned());
            part.withdraw.extend(self.withdraw.iter().filter(|(of, _)| **of == *view).cloned());
        }
        part
    }

    /// Returns what this and a later transaction did together.
    pub fn and(mut self, later: CollectionPlan) -> CollectionPlan {
        self.revision = later.revision;
        self.mark_for_deletion.extend(later.mark_for_deletion);
        self.delete.extend(later.delete);
        self.withdraw.extend(later.withdraw);
        self.forget.extend(later.forget);
        self
    }

    /// Returns the commit that marks files for deletion by a later collection.
    pub fn marking_commit(&self, id: Uuid) -> Commit {
        let mut remove: Vec<Remove> = self.mark_for_deletion.iter().cloned().map(Remove::MarkForDeletion).collect();
        remove.extend(self.withdraw.iter().map(|(view, version)| Remove::Snapshot { view: view.clone(), version: *version }));
        remove.extend(self.forget.iter().map(|id| Remove::Checkpoint(*id)));
        Commit { id, expect: vec![Expect::Revision(self.revision)], remove, ..Commit::default() }
    }

    /// Returns the commit that removes the rows of deleted files; commit it after the files are gone.
    pub fn delete_commit(&self, id: Uuid) -> Commit {
        Commit { id, remove: self.delete.iter().cloned().map(Remove::File).collect(), ..Commit::default() }
    }
}

/// How long a stream's archive is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retention {
    pub kept: Duration,
    /// How far the clock that events age by is behind the time. Commits age by the time itself: what is archived now
    /// may have happened long ago.
    pub clock_behind: Duration,
}

/// Returns what is no longer needed at `now`. `retention` says how long each stream's archive is kept; a stream that is
/// absent there is kept forever. A view retains only what it reads.
///
/// A lease's pin is the oldest vector that its holder's work depends on: for a serving node, the least of the cuts of
/// the snapshots that its queries read.
pub fn collectable(state: &CatalogState, reads: &StreamsRead, retention: &BTreeMap<Arc<str>, Retention>, now: Micros) -> CollectionPlan {
    let need = FileNeeds::new(state, reads, retention, now);
    let withdraw: Vec<&SnapshotRecord> = state.snapshots.iter().filter(|snapshot| need.is_withdrawable(snapshot)).collect();
    let withdrawn: HashSet<Uuid> = withdraw.iter().map(|snapshot| snapshot.run).collect();
    let (marked_for_deletion, named): (Vec<&FileRecord>, Vec<&FileRecord>) = state.files.iter().partition(|file| file.marked_for_deletion);
    let mark_for_deletion = named.into_iter().filter(|file| match file.kind {
        FileKind::Snapshot | FileKind::Manifest => need.is_replaced_snapshot(file, &withdrawn),
        FileKind::States => need.is_published_everywhere(file),
        FileKind::Archive | FileKind::DeadLetters => need.is_past_retention(file),
        FileKind::Superseded => need.is_superseded_and_unread(file),
    });
    CollectionPlan {
        revision: state.revision,
        mark_for_deletion: mark_for_deletion.map(|file| file.path.clone()).collect(),
        delete: marked_for_deletion.into_iter().map(|file| file.path.clone()).collect(),
        withdraw: withdraw.into_iter().map(|snapshot| (snapshot.view.clone(), snapshot.version)).collect(),
        forget: need.forgettable(),
    }
}

/// A snapshot that replaced another one.
struct Successor<'s> {
    published_at: Micros,
    cut: &'s Vector,
}

impl<'s> Successor<'s> {
    fn current(snapshot: &'s SnapshotRecord) -> Self {
        Self { published_at: snapshot.published_at, cut: &snapshot.cut }
    }
}

/// What is needed: the facts that the methods below share.
pub(super) struct FileNeeds<'s> {
    state: &'s CatalogState,
    retention: &'s BTreeMap<Arc<str>, Retention>,
    now: Micros,
    runs: HashMap<Uuid, &'s RunRecord>,
    /// Pins of unexpired leases.
    leased: Vec<&'s Vector>,
    /// Vectors that work in progress depends on: these pins, and the cuts of running runs.
    pins: Vec<&'s Vector>,
    /// What each live view version has published.
    published: Vec<Published<'s>>,
}

impl<'s> FileNeeds<'s> {
    pub(super) fn new(state: &'s CatalogState, reads: &'s StreamsRead, retention: &'s BTreeMap<Arc<str>, Retention>, now: Micros) -> Self {
        let leases = state.leases.iter().filter(|lease| lease.expires_at > now);
        let leased: Vec<&Vector> = leases.filter_map(|lease| lease.pin.as_ref()).collect();
        let running = state.runs.iter().filter(|run| run.status == RunStatus::Running).filter_map(|run| run.cut.as_ref());
        let live = state.live(DefinitionKind::View);
        let cut_of = |view: &DefinitionRecord| state.snapshot(&view.name, view.version).map(|snapshot| &snapshot.cut);
        Self {
            state,
            retention,
            now,
            runs: state.runs.iter().map(|run| (run.id, run)).collect(),
            pins: leased.iter().copied().chain(running).collect(),
            leased,
            published: live.map(|view| reads.published(&view.name, view.version, cut_of(view))).collect(),
        }
    }

    /// True for a snapshot file whose run is neither in progress nor published, and that no pinned query can still
    /// read.
    fn is_replaced_snapshot(&self, file: &FileRecord, withdrawn: &HashSet<Uuid>) -> bool {
        let Some(run) = file.run else { return false };
        if withdrawn.contains(&run) {
            return true;
        }
        if self.state.snapshots.iter().any(|snapshot| snapshot.run == run) {
            return false;
        }
        match self.runs.get(&run) {
            Some(run) if matches!(run.status, RunStatus::Requested | RunStatus::Running) => false,
            // It was never published, so no query can have read it.
            Some(run) if matches!(run.status, RunStatus::Failed | RunStatus::Dropped | RunStatus::Skipped) => true,
            Some(run) => self.is_behind_readers(self.successor_of(run)),
            // The run is so old that the state does not hold it any more; any version of its view may have replaced it.
            None => {
                let of_view: Vec<_> = self.state.snapshots.iter().filter(|s| Some(&s.view) == file.subject.as_ref()).collect();
                if of_view.is_empty() {
                    return self.pins.is_empty();
                }
                let replaced_by = of_view.iter().map(|snapshot| self.oldest_publication(snapshot)).max();
                replaced_by.is_some_and(|time| self.no_reader_from_before(time))
                    || of_view.into_iter().all(|s| self.is_behind_readers(Some(Successor::current(s))))
            }
        }
    }

    /// The oldest publication of a version that is known. All runs that the state does not hold any more were before
    /// it.
    fn oldest_publication(&self, snapshot: &SnapshotRecord) -> Micros {
        let of_version = |run: &&RunRecord| run.view == snapshot.view && run.version == snapshot.version;
        let published = self.state.runs.iter().filter(of_version).filter(|run| run.status == RunStatus::Succeeded);
        published.filter_map(|run| run.ended_at).min().map_or(snapshot.published_at, |oldest| oldest.min(snapshot.published_at))
    }

    /// Returns what replaced a run's snapshot: the next snapshot of its version, not the current one, which may be only
    /// a moment old in a view that runs often.
    fn successor_of(&self, run: &RunRecord) -> Option<Successor<'s>> {
        let is_next = |other: &&RunRecord| {
            other.status == RunStatus::Succeeded && other.view == run.view && other.version == run.version && other.ended_at > run.ended_at
        };
        let next = self.state.runs.iter().filter(is_next).min_by_key(|other| other.ended_at);
        let next = next.and_then(|next| Some(Successor { published_at: next.ended_at?, cut: next.cut.as_ref()? }));
        next.or_else(|| self.state.snapshot(&run.view, run.version).map(Successor::current))
    }

    /// True if every reader is past the snapshot that `successor` replaced. Without a successor the view version is
    /// gone, and any reader could be one of its last.
    fn is_behind_readers(&self, successor: Option<Successor<'_>>) -> bool {
        match successor {
            Some(successor) => {
                let grace_passed = successor.published_at.saturating_add(GRACE.as_micros() as Micros) <= self.now;
                // A reader of another view may pin an older cut for as long as that view has no newer snapshot.
                grace_passed
                    && (self.pins.iter().all(|pin| pin.covers(successor.cut)) || self.no_reader_from_before(successor.published_at))
            }
            None => self.pins.is_empty(),
        }
    }

    /// True for a retired view version's snapshot if every reader is past its cut, or has read the catalog since the
    /// version was retired.
    fn is_withdrawable(&self, snapshot: &SnapshotRecord) -> bool {
        let definition = self.state.definitions.get(DefinitionKind::View, &snapshot.view, snapshot.version);
        let is_live = definition.is_some_and(|view| view.status.is_live());
        let is_past = |pin: &&Vector| pin.covers(&snapshot.cut) && !snapshot.cut.covers(pin);
        // A query that began before the version was retired may still read it.
        let retired_at = definition.map_or(snapshot.published_at, |view| view.since.max(snapshot.published_at));
        let grace_passed = retired_at.saturating_add(GRACE.as_micros() as Micros) <= self.now;
        let runs = self.state.runs.iter().filter(|run| run.view == snapshot.view && run.version == snapshot.version);
        let is_run_pending = runs.into_iter().any(|run| matches!(run.status, RunStatus::Requested | RunStatus::Running));
        let no_earlier_reader = definition.is_some_and(|view| self.no_reader_from_before(view.since));
        !is_live && grace_passed && !is_run_pending && (self.pins.iter().all(is_past) || no_earlier_reader)
    }

    /// True if no reader of a state from before `time` is left. A reader that takes long pins the empty vector, which
    /// is before everything.
    fn no_reader_from_before(&self, time: Micros) -> bool {
        let grace_passed = time.saturating_add(GRACE.as_micros() as Micros) <= self.now;
        grace_passed && self.pins.iter().all(|pin| !pin.is_empty())
    }

    /// True for a states object whose states every live view's snapshot already holds. Also true if its checkpoint no
    /// longer exists: it was compacted while the object was rebuilt.
    fn is_published_everywhere(&self, file: &FileRecord) -> bool {
        self.checkpoint_of(file).is_none_or(|checkpoint| self.is_below_all(checkpoint))
    }

    /// True for an archive or dead-letter file past its stream's retention whose events every snapshot holds.
    fn is_past_retention(&self, file: &FileRecord) -> bool {
        let Some(checkpoint) = self.checkpoint_of(file) else { return false };
        let Some(retention) = file.subject.as_ref().and_then(|stream| self.retention.get(stream)) else { return false };
        let is_old = |time| self.is_older_than(time, retention.kept.saturating_add(retention.clock_behind));
        // Old events that arrived late are kept as long as new ones: they are used to detect duplicates.
        let is_committed_long_ago = self.is_older_than(checkpoint.committed_at, retention.kept);
        is_committed_long_ago
            && file.max_event_time.is_none_or(is_old)
            && self.is_below_all(checkpoint)
            && checkpoint.ranges.iter().all(|range| self.is_past_duplicates(checkpoint, range, retention.kept))
    }

    /// True if no duplicate of a checkpoint's events can come within `kept` any more, by the timestamps of records. If
    /// record timestamps are near the commit time, the age of the commit is enough. Otherwise the partition's clock
    /// decides.
    fn is_past_duplicates(&self, checkpoint: &CheckpointRecord, range: &CheckpointRange, kept: Duration) -> bool {
        let Some(clock) = range.clock else { return true };
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
        let is_about_the_time = checkpoint.committed_at.saturating_sub(clock) < kept;
        let newest = self.state.partitions.get(&range.partition).and_then(|partition| partition.clock);
        is_about_the_time || newest.is_none_or(|newest| newest > clock.saturating_add(kept))
    }

    /// True for a file whose rows are in another one now, if no reader of a state before that is left: what began
    /// before is done, and what every pin depends on begins after the file. (A pin that holds everything is at 0.)
    fn is_superseded_and_unread(&self, file: &FileRecord) -> bool {
        let (Some(switched_at), Some(checkpoint)) = (file.run.and_then(made_at), self.checkpoint_of(file)) else { return false };
        let grace_ends_at = switched_at.saturating_add(GRACE.as_micros() as Micros);
        let mut running = self.state.runs.iter().filter(|run| run.status == RunStatus::Running);
        let began_after = |run: &RunRecord| run.started_at.is_some_and(|at| at >= grace_ends_at);
        grace_ends_at <= self.now && running.all(began_after) && self.leased.iter().all(|pin| checkpoint.is_within(pin))
    }

    /// Returns the checkpoints without a file that are past the retention of all their streams and in every snapshot.
    fn forgettable(&self) -> Vec<Uuid> {
        let with_files: HashSet<Uuid> = self.state.files.iter().filter_map(|file| file.checkpoint).collect();
        let is_past = |checkpoint: &CheckpointRecord| {
            checkpoint.ranges.iter().all(|range| {
                let retention = self.retention.get(&range.partition.stream);
                retention.is_some_and(|retention| self.is_older_than(checkpoint.committed_at, retention.kept))
            })
        };
        let checkpoints = self.state.checkpoints.iter().filter(|checkpoint| !with_files.contains(&checkpoint.id));
        checkpoints.filter(|checkpoint| is_past(checkpoint) && self.is_below_all(checkpoint)).map(|checkpoint| checkpoint.id).collect()
    }

    /// True if what each view reads of a checkpoint is before its published cut, and all of it before every pin.
    pub(super) fn is_below_all(&self, checkpoint: &CheckpointRecord) -> bool {
        self.published.iter().all(|view| view.holds(checkpoint)) && self.pins.iter().all(|pin| checkpoint.is_within(pin))
    }

    fn checkpoint_of(&self, file: &FileRecord) -> Option<&'s CheckpointRecord> {
        file.checkpoint.and_then(|id| self.state.checkpoints.get(id))
    }

    fn is_older_than(&self, time: Micros, age: Duration) -> bool {
        time.saturating_add(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)) < self.now
    }
}
