//! Problems of files: damaged ones, ones that should have been deleted, and ones that are kept from deletion.

use catalog::{DamageRecord, DefinitionKind, SnapshotRecord};
use types::files::ObjectName;
use types::tiles::Micros;
use types::vector::Vector;

use super::{Facts, Fault, Problem, Severity, for_time};

/// The collector runs every minute, and deletes what it marked in the previous round.
const UNDELETED_US: Micros = 10 * 60_000_000;
/// A node follows a new snapshot within a second.
const OLD_PIN_US: Micros = 10 * 60_000_000;
/// How many damaged files are named one by one.
const NAMED: usize = 20;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found: Vec<Problem> = facts.state.damages.iter().take(NAMED).map(damaged).collect();
    found.extend(undeleted(facts));
    found.extend(old_pins(facts));
    found
}

fn damaged(DamageRecord { path, error, found_by, .. }: &DamageRecord) -> Problem {
    let is_joined = matches!(path.parse(), Ok(ObjectName::Joined { .. }));
    let (effect, next_step) = match path.split('/').next().unwrap_or_default() {
        "snapshots" if is_joined => (
            "`__batch` of its view fails; the view's own answers are made from edges, and stay as they are",
            "none while a scheduler runs: it runs the view at once; else `basestream repair`",
        ),
        "states" => (
            "none on answers: its states are computed from the archive",
            "none while a scheduler runs: it makes the file again from the archive; else `basestream repair`",
        ),
        "snapshots" => (
            "answers stay right and become slower (`degraded`): they are made from the snapshot before, or from all checkpoints",
            "none while a scheduler runs: it runs the view at once; else `basestream repair`",
        ),
        "dead-letters" => (
            "none on answers; its dead letters cannot be listed, exported or replayed",
            "`basestream repair` makes it again from the log, as far back as the log goes",
        ),
        _ => (
            "it is not merged: what needs it fails and says so (batch runs, verify, `as_of` in the past); snapshots made before hold its events",
            "`basestream repair` makes it again from the log, as far back as the log goes",
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
        what: format!("{count} files are marked for deletion and still there, the oldest for {age_text}"),
        cause: "no scheduler runs (the collector is part of it), or the object storage refuses to delete".into(),
        effect: "answers are not touched; the storage grows".into(),
        next_step: "start `basestream scheduler` or `basestream up`; if one runs, its log says \"collection failed\" and why".into(),
    })
}

fn old_pins(facts: &Facts) -> Vec<Problem> {
    let Some((needed, published_at)) = needed(facts) else { return Vec::new() };
    let age = facts.now.saturating_sub(published_at);
    if age <= OLD_PIN_US {
        return Vec::new();
    }
    let nodes = facts.state.leases.iter().filter(|lease| lease.name.starts_with("serve/") && lease.expires_at > facts.now);
    let behind = nodes.filter_map(|lease| Some((lease, lease.pin.as_ref()?.behind(&needed)?)));
    let problem = |(lease, (partition, pinned, needed)): (&catalog::LeaseRecord, _)| Problem {
        fault: Fault::PinOld,
        severity: Severity::Warning,
        what: format!(
            "the node {} stands on snapshots that were replaced {} ago ({partition}: {pinned}, published {needed})",
            lease.owner,
            for_time(age)
        ),
        cause: "it cannot load the newer snapshots, or it hangs".into(),
        effect: "its answers are right and slower; files that only it needs are not deleted".into(),
        next_step: "read its log (\"a view could not be loaded\"), and restart it".into(),
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
