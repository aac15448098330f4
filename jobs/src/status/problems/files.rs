//! Problems of files: damaged ones, ones that should have been deleted, and ones that are kept from deletion.

use catalog::{CatalogState, DamageRecord, DefinitionKind, SnapshotRecord};
use serving::NODE_LEASE;
use types::files::{FileKind, ObjectName};
use types::tiles::Micros;
use types::vector::{Behind, Vector};

use super::duration::for_time;
use super::{Facts, Fault, Problem, Severity};

/// The collector runs every minute, and deletes what it marked in the previous round.
const UNDELETED_US: Micros = 10 * 60_000_000;
/// A node follows a new snapshot within a second.
const OLD_PIN_US: Micros = 10 * 60_000_000;
/// How many damaged files are named one by one.
const NAMED: usize = 20;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let needed = facts.state.damages.iter().filter(|damage| !is_replaced(&facts.state, &damage.path));
    let mut found: Vec<Problem> = needed.take(NAMED).map(damaged).collect();
    found.extend(undeleted(facts));
    found.extend(old_pins(facts));
    found
}

/// Whether nobody who begins to read now reads a file: it is deleted within minutes. What a later snapshot took over is
/// of that one's run.
fn is_replaced(state: &CatalogState, path: &str) -> bool {
    state.files.get(path).is_some_and(|file| match file.kind {
        FileKind::Superseded => true,
        FileKind::Snapshot | FileKind::Manifest => file.run.is_some_and(|run| state.snapshots.iter().all(|snapshot| snapshot.run != run)),
        FileKind::Archive | FileKind::DeadLetters | FileKind::States => false,
    })
}

fn damaged(DamageRecord { path, error, found_by, .. }: &DamageRecord) -> Problem {
    let is_joined = matches!(path.parse(), Ok(ObjectName::Joined { .. }));
    let (effect, next_step) = match path.split('/').next().unwrap_or_default() {
        "snapshots" if is_joined => (
            "queries of its view's `__batch` fail; the view's own answers are computed from edges and are not affected",
            "none while a scheduler runs: it runs the view immediately; otherwise run `basestream repair`",
        ),
        "states" => (
            "answers are not affected: its states are computed from the archive",
            "none while a scheduler runs: it rebuilds the file from the archive; otherwise run `basestream repair`",
        ),
        "snapshots" => (
            "answers stay correct but become slower (`degraded`): they are computed from the previous snapshot or from all checkpoints",
            "none while a scheduler runs: it runs the view immediately; otherwise run `basestream repair`",
        ),
        "dead-letters" => (
            "answers are not affected; its dead letters cannot be listed, exported or replayed",
            "run `basestream repair`: it rebuilds the file from the log, as far back as the log goes",
        ),
        _ => (
            "its events are not merged: batch runs, verify and `as_of` in the past report an error where they need \
             the file; earlier snapshots hold its events",
            "run `basestream repair`: it rebuilds the file from the log, as far back as the log goes",
        ),
    };
    Problem {
        fault: Fault::FileDamaged,
        severity: Severity::Error,
        what: format!("the file {path} is damaged or missing"),
        cause: format!("{error} (found by {found_by})"),
        effect: effect.into(),
        next_step: next_step.into(),
    }
}

fn undeleted(facts: &Facts) -> Option<Problem> {
    let (count, since) = facts.marked_for_deletion?;
    let age = facts.now.saturating_sub(since);
    let age_text = if since == 0 { "more than a day".to_owned() } else { for_time(age) };
    (count > 0 && age > UNDELETED_US).then(|| Problem {
        fault: Fault::FilesUndeleted,
        severity: Severity::Warning,
        what: match count {
            1 => format!("1 file is marked for deletion but not deleted, for {age_text}"),
            _ => format!("{count} files are marked for deletion but not deleted, the oldest for {age_text}"),
        },
        cause: "no scheduler runs (the collector is part of it), or the object storage refuses to delete".into(),
        effect: "answers are not affected; the storage grows".into(),
        next_step: "start `basestream scheduler` or `basestream up`; if one runs, look for \"collection failed\" in its log".into(),
    })
}

fn old_pins(facts: &Facts) -> Vec<Problem> {
    let Some((needed, published_at)) = needed(facts) else { return Vec::new() };
    let age = facts.now.saturating_sub(published_at);
    if age <= OLD_PIN_US {
        return Vec::new();
    }
    let nodes = facts.state.leases.iter().filter(|lease| lease.name.starts_with(NODE_LEASE) && lease.expires_at > facts.now);
    let behind = nodes.filter_map(|lease| Some((lease, lease.pin.as_ref()?.behind(&needed)?)));
    let problem = |(lease, behind): (&catalog::LeaseRecord, Behind)| Problem {
        fault: Fault::PinOld,
        severity: Severity::Warning,
        what: format!(
            "the node {} uses snapshots that were replaced {} ago ({}: {}, published {})",
            lease.owner,
            for_time(age),
            behind.partition,
            behind.found,
            behind.expected
        ),
        cause: "it cannot load the newer snapshots, or it hangs".into(),
        effect: "its answers are correct but slower; files that only it needs are not deleted".into(),
        next_step: "look for \"a view could not be loaded\" in its log, and restart it".into(),
    };
    behind.map(problem).collect()
}

/// Returns the oldest cut that an up-to-date node reads from, and since when it could. `None` unless every view has a
/// snapshot.
fn needed(facts: &Facts) -> Option<(Vector, Micros)> {
    let kept = facts.state.live(DefinitionKind::View).filter(|view| {
        let keeps_states = |registry: &committed::registry::Registry| registry.view(&view.name, view.version).is_some();
        facts.registry.as_ref().and_then(|registry| registry.as_ref().ok()).is_none_or(keeps_states)
    });
    let snapshots: Option<Vec<&SnapshotRecord>> = kept.map(|view| facts.state.snapshot(&view.name, view.version)).collect();
    let snapshots = snapshots.filter(|snapshots| !snapshots.is_empty())?;
    let least = facts
        .state
        .partitions
        .keys()
        .map(|partition| (partition.clone(), snapshots.iter().map(|snapshot| snapshot.cut.get(partition)).min().unwrap_or_default()));
    Some((least.collect(), snapshots.iter().map(|snapshot| snapshot.published_at).max()?))
}
