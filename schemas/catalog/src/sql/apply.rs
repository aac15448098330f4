//! Carries out one commit inside one transaction.

use std::collections::BTreeSet;

use super::session::Session;
use super::{
    alert, checkpoint, damage, definition, expect, file, gap, ingest, lease, mark, meta, parameter, partition, pause, removed, replay, run,
    sink_switch, snapshot, token, worker,
};
use crate::{Add, Advance, CheckpointRecord, Commit, DefinitionStatus, GapRecord, Remove, Revision};
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

/// The outcome of a commit.
pub(super) enum Applied {
    /// It was carried out under this revision.
    Now(Revision),
    /// It happened earlier, under this revision; nothing was changed.
    Before(Revision),
}

/// A commit that is being carried out.
#[derive(Clone, Copy)]
struct Applying {
    commit: Uuid,
    revision: Revision,
    now: Micros,
}

/// Takes the next revision, detects a commit that has already happened, checks the expectations, then writes.
pub(super) async fn apply(session: &mut Session, commit: &Commit, now: Micros) -> Result<Applied> {
    let revision = meta::next_revision(session).await?;
    apply_under(session, revision, commit, now).await
}

/// The same under a revision that the transaction has taken.
pub(super) async fn apply_under(session: &mut Session, revision: Revision, commit: &Commit, now: Micros) -> Result<Applied> {
    if !commit.id.is_nil() {
        if let Some(before) = meta::revision_of(session, commit.id).await? {
            return Ok(Applied::Before(before));
        }
        meta::remember(session, commit.id, revision, now).await?;
    }
    for expected in &commit.expect {
        expect::check(session, expected, revision).await?;
    }
    check_transitions(commit)?;
    let applying = Applying { commit: commit.id, revision, now };
    remove_many(session, &commit.remove, applying).await?;
    for removed in &commit.remove {
        remove(session, removed, applying).await?;
    }
    for added in &commit.add {
        add(session, added, applying).await?;
    }
    advance_all(session, commit).await?;
    Ok(Applied::Now(revision))
}

/// A place in the order of transitions has no alert in it.
fn check_transitions(commit: &Commit) -> Result<()> {
    let of_add = |add: &'_ Add| match add {
        Add::AlertTransition(transition) => Some((transition.alert.clone(), transition.version)),
        _ => None,
    };
    let mut versions = commit.add.iter().filter_map(of_add);
    let Some(first) = versions.next() else { return Ok(()) };
    match versions.find(|version| *version != first) {
        None => Ok(()),
        Some((alert, version)) => Err(Error::internal("a commit adds transitions of two alerts: expected those of one")
            .with("alert", format!("{}@{}", first.0, first.1))
            .with("found", format!("{alert}@{version}"))),
    }
}

async fn add(session: &mut Session, add: &Add, applying: Applying) -> Result<()> {
    let Applying { revision, now, .. } = applying;
    match add {
        Add::Definition(record) => {
            definition::put(session, record, revision).await?;
            if record.status == DefinitionStatus::Retired { run::forget_retired(session, record.since).await } else { Ok(()) }
        }
        Add::Parameter(record) => parameter::add(session, record).await,
        Add::Checkpoint(record) => checkpoint::add(session, record, revision).await,
        Add::Compacted { checkpoint, of, files } => compact(session, checkpoint, of, *files, applying).await,
        Add::File(record) => file::put(session, record, revision).await,
        Add::TakeOver { run, paths } => file::take_over(session, *run, paths, revision).await,
        Add::Snapshot(record) => snapshot::put(session, record).await,
        Add::Run(record) => {
            run::put(session, record, revision).await?;
            if record.ended_at.is_some() { run::forget_old(session, record).await } else { Ok(()) }
        }
        Add::NewLease(lease) => lease::put(session, &lease.clone().with_epoch(revision)).await,
        Add::Lease(record) => lease::put(session, record).await,
        Add::Gap(record) => gap::put(session, record).await,
        Add::Ingest(record) => ingest::put(session, record).await,
        Add::ReplayedDeadLetters(record) => replay::put(session, record).await,
        Add::Damage(record) => damage::put(session, record).await,
        Add::Mark(record) => mark::put(session, record).await,
        Add::Token(record) => token::put(session, record).await,
        Add::NewWorker(worker) => worker::put(session, &worker.clone().with_epoch(revision)).await,
        Add::Worker(record) => worker::put(session, record).await,
        Add::AlertTransition(transition) => alert::add(session, transition, revision).await,
        Add::AlertPosition { alert, version, position, at } => alert::made_from(session, alert, *version, position, *at).await,
        Add::AlertPublished { alert, version, before } => alert::published(session, alert, *version, *before).await,
        Add::AlertRunner(runner) => alert::put_runner(session, runner).await,
        Add::Pause(pause) => pause::put(session, pause).await,
        Add::SinkClaim(claim) => sink_switch::claim(session, claim).await,
        Add::SinkSwitch(switch) => sink_switch::add(session, switch, now).await,
    }
}

/// Replaces checkpoints with one, in a few statements however many they are. They have this many files.
async fn compact(session: &mut Session, compacted: &CheckpointRecord, of: &[Uuid], files: usize, applying: Applying) -> Result<()> {
    let Applying { commit, revision, now } = applying;
    let list = serde_json::to_string(&of.iter().map(Uuid::to_string).collect::<Vec<_>>())?;
    file::supersede(session, &list, files, compacted.id, commit, revision).await?;
    checkpoint::remove_compacted(session, &list, of.len()).await?;
    removed::note_checkpoints(session, &list, revision, now).await?;
    removed::forget(session, now).await?;
    checkpoint::add_in_place(session, compacted, revision).await
}

/// Removes or marks what the collector does by the thousand, in a few statements however much it is.
async fn remove_many(session: &mut Session, removes: &[Remove], applying: Applying) -> Result<()> {
    let Applying { revision, now, .. } = applying;
    let (mut marked, mut files, mut checkpoints) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for remove in removes {
        match remove {
            Remove::MarkForDeletion(path) => marked.insert(path.as_str()),
            Remove::File(path) => files.insert(path.as_str()),
            Remove::Checkpoint(id) => checkpoints.insert(id.to_string()),
            _ => continue,
        };
    }
    if !marked.is_empty() {
        file::mark_for_deletion(session, &serde_json::to_string(&marked)?, revision).await?;
    }
    if !files.is_empty() {
        let list = serde_json::to_string(&files)?;
        file::remove(session, &list).await?;
        removed::note_files(session, &list, revision, now).await?;
    }
    if !checkpoints.is_empty() {
        let list = serde_json::to_string(&checkpoints)?;
        checkpoint::remove(session, &list).await?;
        removed::note_checkpoints(session, &list, revision, now).await?;
    }
    if files.is_empty() && checkpoints.is_empty() {
        return Ok(());
    }
    removed::forget(session, now).await
}

async fn remove(session: &mut Session, remove: &Remove, applying: Applying) -> Result<()> {
    match remove {
        // See `remove_many`.
        Remove::MarkForDeletion(_) | Remove::File(_) | Remove::Checkpoint(_) => Ok(()),
        Remove::OrphansBefore(time) => meta::orphan_before(session, *time).await,
        Remove::Snapshot { view, version } => snapshot::remove(session, view, *version).await,
        Remove::Lease { name, owner } => lease::remove(session, name, owner).await,
        Remove::Worker { name } => worker::remove(session, name).await,
        Remove::Damage(path) => damage::remove(session, path).await,
        Remove::AlertTransitions { alert, version, before, most } => alert::forget(session, alert, *version, *before, *most).await,
        Remove::Alert { alert, version, most } => alert::remove(session, alert, *version, *most, applying.revision).await,
        Remove::Pause { kind, name } => pause::remove(session, *kind, name).await,
        Remove::Token { name, at } => token::revoke(session, name, *at).await,
        Remove::EndedToken { name, created_at } => token::remove(session, name, *created_at).await,
    }
}

/// Advances partitions in sorted order, so that no two writers can ever deadlock.
async fn advance_all(session: &mut Session, commit: &Commit) -> Result<()> {
    let gap_of = |add: &'_ Add| -> Option<GapRecord> {
        match add {
            Add::Gap(gap) => Some(gap.clone()),
            _ => None,
        }
    };
    let gaps: Vec<GapRecord> = commit.add.iter().filter_map(gap_of).collect();
    let mut advances: Vec<&Advance> = commit.advance.iter().collect();
    advances.sort_by(|a, b| (&a.partition, a.start).cmp(&(&b.partition, b.start)));
    for advance in advances {
        partition::advance(session, advance, &gaps).await?;
    }
    Ok(())
}
