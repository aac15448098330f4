//! Problems of batch runs: runs that fail, die or do not start, versions that are not built, and snapshots that cannot
//! be used.

use std::collections::BTreeMap;

use catalog::{Comparison, DefinitionKind, DefinitionStatus, RunRecord, RunStatus, StateDifference, abandoned, checkpoints_after};
use chrono::DateTime;
use committed::lacking::waits_for_run;
use committed::registry::{LiveView, Registry};
use engine::events::format_timestamp;
use engine::fresh::ViewVersion;
use types::Strategy;
use types::tiles::Micros;
use types::vector::Vector;
use uuid::Uuid;

use super::duration::for_time;
use super::{Facts, Fault, Problem, Severity};
use crate::output::count_of;
use crate::scheduler::{due_runs, newest_runs};

/// How much later than due a run may start.
const LATE_US: Micros = 2 * 60_000_000;
/// A run that failed once is retried; two failures are a pattern.
const FAILURES: u32 = 2;
/// A full run may take this many periods of its view's schedule.
const PERIODS: usize = 3;
/// Where somebody asks for a view's runs every day, its snapshot lacks no checkpoint that is older than this.
const ASKED_WITHIN_US: Micros = 2 * 24 * 3_600_000_000;
/// This many checkpoints are no burden.
const FEW_CHECKPOINTS: usize = 1_000;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    // Only reads: the commits that would close these runs are not made.
    let closable = abandoned(&facts.state, Uuid::nil, facts.now, |_| false);
    let mut found: Vec<Problem> = closable.iter().map(|(run, _)| dead(facts, run)).collect();
    found.extend(failing(facts));
    found.extend(differing(facts));
    if let Some(Ok(registry)) = &facts.registry {
        found.extend(overdue(facts, registry));
        let is_dead = |run: &RunRecord| closable.iter().any(|(dead, _)| dead.id == run.id);
        found.extend(registry.views.iter().filter_map(|view| slow(facts, view, is_dead)));
        found.extend(unbuilt(facts, registry));
        found.extend(registry.views.iter().filter_map(|view| unscheduled(facts, view)));
        found.extend(formats(facts, registry));
    }
    found
}

fn dead(facts: &Facts, run: &RunRecord) -> Problem {
    let began = run.started_at.map_or(String::new(), |at| format!(", started {} ago", for_time(facts.now.saturating_sub(at))));
    Problem {
        fault: Fault::RunAbandoned,
        severity: Severity::Warning,
        what: format!("{}: the run {} is marked as running, but no process holds its lease{began}", run.view, run.id),
        cause: "the process that ran it was killed or lost its connection to the catalog".into(),
        effect: "the view keeps its previous snapshot; the dead run's cut prevents files from being collected".into(),
        next_step: "start `basestream scheduler` or `basestream up`: the scheduler marks the run as failed and tries again".into(),
    }
}

fn failing(facts: &Facts) -> Vec<Problem> {
    let newest = newest_runs(&facts.state);
    let live = |run: &&&RunRecord| facts.state.live(DefinitionKind::View).any(|view| view.name == run.view && view.version == run.version);
    let failing = newest.values().filter(live).filter(|run| run.status == RunStatus::Failed && run.attempt >= FAILURES);
    failing.map(|run| failed(facts, run)).collect()
}

fn failed(facts: &Facts, run: &RunRecord) -> Problem {
    let snapshot = facts.state.snapshot(&run.view, run.version);
    let effect = match snapshot {
        Some(snapshot) => format!(
            "answers stay correct but become slower: they merge every checkpoint since the snapshot of {}",
            format_timestamp(snapshot.published_at)
        ),
        None => "this version has no snapshot: answers merge every checkpoint, or the previous version is served".into(),
    };
    Problem {
        fault: Fault::RunFailing,
        severity: Severity::Error,
        what: format!("{} (version {}): the batch run failed {} times in a row", run.view, run.version, run.attempt),
        cause: run.error.clone().unwrap_or_else(|| "no error was recorded".into()),
        effect,
        next_step: format!(
            "fix the cause (raise batch.memory_limit, repair a damaged file, correct the view's SQL), then run `basestream batch run {}`",
            run.view
        ),
    }
}

/// The live versions whose newest comparison found differences. A later run that finds none ends the problem.
fn differing(facts: &Facts) -> Vec<Problem> {
    let mut newest: BTreeMap<ViewVersion, (&RunRecord, &Comparison)> = BTreeMap::new();
    let live = |run: &RunRecord| facts.state.live(DefinitionKind::View).any(|view| view.name == run.view && view.version == run.version);
    for run in facts.state.runs.iter().filter(|run| live(run)) {
        let Some(comparison) = run.comparison.as_ref().filter(|comparison| comparison.found().is_some()) else { continue };
        let known = newest.entry(ViewVersion::new(run.view.clone(), run.version)).or_insert((run, comparison));
        if run.ended_at > known.0.ended_at {
            *known = (run, comparison);
        }
    }
    newest.into_values().filter(|(_, comparison)| comparison.differences > 0).map(|(run, comparison)| differs(run, comparison)).collect()
}

fn differs(run: &RunRecord, comparison: &Comparison) -> Problem {
    let first = comparison.first.first().map(|first| format!("; the first: {}", difference_text(first))).unwrap_or_default();
    let at = run.ended_at.map_or_else(|| "an unknown time".to_owned(), format_timestamp);
    Problem {
        fault: Fault::StatesDiffer,
        severity: Severity::Error,
        what: format!(
            "{} (version {}): the recomputation of {at} differs from the states that incremental runs had kept, in {} \
             of {} compared{first}",
            run.view,
            run.version,
            comparison.differences,
            count_of(comparison.rows, "row")
        ),
        cause: "a defect of this or an earlier release, or events or files that were changed outside of basestream".into(),
        effect: "answers before that time may have been wrong; since then they come from the recomputed states".into(),
        next_step: format!(
            "check the answers with `basestream verify {0}` and report the difference; `basestream batch run {0} \
             --full` compares again and ends this once nothing differs",
            run.view
        ),
    }
}

fn overdue(facts: &Facts, registry: &Registry) -> Vec<Problem> {
    let newest = newest_runs(&facts.state);
    let mut found = Vec::new();
    for due in due_runs(&facts.state, registry, facts.now) {
        if due.scheduled_for.is_none() && due.requested.is_none() {
            continue;
        }
        let late = facts.now.saturating_sub(due.since);
        let failed = newest.get(&due.view_version()).is_some_and(|run| run.status == RunStatus::Failed && run.attempt >= FAILURES);
        if late <= LATE_US || failed {
            continue;
        }
        let busy = busy(facts);
        found.push(Problem {
            fault: Fault::RunOverdue,
            severity: Severity::Warning,
            what: format!("{}: a run was due at {} and has not started ({})", due.view, format_timestamp(due.since), due.reason),
            cause: busy.clone().unwrap_or_else(|| "no scheduler runs".into()),
            effect: "answers stay correct but become slower: they merge every checkpoint since the last snapshot".into(),
            next_step: match busy {
                Some(_) => "wait; if this happens often, raise `max_concurrent_runs` in [scheduler], start a second \
                    `basestream scheduler` or schedule views less often"
                    .into(),
                None => format!("start `basestream scheduler` or `basestream up`, or run it now: `basestream batch run {}`", due.view),
            },
        });
    }
    found
}

/// A full run that holds up others, goes on or will come again by the view's options, and in which `PERIODS` runs would
/// have begun.
fn slow(facts: &Facts, view: &LiveView, is_dead: impl Fn(&RunRecord) -> bool) -> Option<Problem> {
    let (definition, strategy) = (&view.definition, Some(Strategy::Full));
    let is_of_view = |run: &&RunRecord| run.view == view.name && run.version == view.version && run.strategy == strategy;
    let run = facts.state.runs.iter().filter(is_of_view).max_by_key(|run| run.started_at)?;
    let is_running = run.status == RunStatus::Running && !run.beside && !is_dead(run);
    let comes_again = definition.strategy == strategy;
    let began = run.started_at?;
    let until = match run.status {
        RunStatus::Running if is_running => facts.now,
        RunStatus::Succeeded if comes_again => run.ended_at?,
        _ => return None,
    };
    let missed = definition.upcoming(DateTime::from_timestamp_micros(began)?, PERIODS);
    if missed.len() < PERIODS || missed.last()?.timestamp_micros() > until {
        return None;
    }
    let (took, name) = (for_time(until.saturating_sub(began)), &view.name);
    let lasts = if is_running { format!("a full run has been under way for {took}") } else { format!("the last full run took {took}") };
    Some(Problem {
        fault: Fault::RunSlow,
        severity: Severity::Notice,
        what: format!(
            "{name} (version {}): {lasts}, more than {PERIODS} periods of its schedule ({})",
            view.version,
            definition.schedule.as_ref()?
        ),
        cause: "it reads all archived events that still count, and takes longer the more there are".into(),
        effect: "the view has no other run meanwhile: answers stay correct but become slower, as they merge every checkpoint since \
            the snapshot before"
            .into(),
        next_step: match comes_again {
            true => format!("leave `strategy = 'full'` out of {name}, so that its runs add what is new, or choose a longer period"),
            false => "wait: the runs after it add what is new".into(),
        },
    })
}

/// A served view without a schedule that nobody has asked to run for long. Whatever its strategy, its snapshot does not
/// change otherwise, and what no snapshot holds is not compacted.
fn unscheduled(facts: &Facts, view: &LiveView) -> Option<Problem> {
    let (name, version) = (&view.name, view.version);
    if view.definition.schedule.is_some() || view.status != DefinitionStatus::Active || is_run_coming(facts, view) {
        return None;
    }
    let defined = facts.state.definitions.get(DefinitionKind::View, name, version)?;
    let (cut, nothing) = (facts.state.snapshot(name, version).map(|snapshot| &snapshot.cut), Vector::new());
    let lacking = checkpoints_after(&facts.state, &view.streams(), cut.unwrap_or(&nothing)).ok()?;
    let oldest = lacking.first()?.committed_at;
    if lacking.len() <= FEW_CHECKPOINTS || facts.now.saturating_sub(oldest.max(defined.created_at)) <= ASKED_WITHIN_US {
        return None;
    }
    Some(Problem {
        fault: Fault::RunUnscheduled,
        severity: Severity::Warning,
        what: format!(
            "{name} (version {version}): no snapshot has the last {}, which began {} ago",
            count_of(lacking.len(), "checkpoint"),
            for_time(facts.now.saturating_sub(oldest))
        ),
        cause: "the view has no schedule, and runs only when somebody asks for a run".into(),
        effect: "these checkpoints and their states are neither compacted nor deleted: the catalog, the storage and the memory of every \
            process grow without end; answers stay correct but become slower"
            .into(),
        next_step: format!(
            "add a schedule to {name}, such as `every = '1h'`, and run `basestream apply`, which makes no new version; or run it from time \
             to time: `basestream batch run {name}`"
        ),
    })
}

/// Whether a run was asked for or is under way, or failed, and will be tried again.
fn is_run_coming(facts: &Facts, view: &LiveView) -> bool {
    let is_open = |run: &RunRecord| matches!(run.status, RunStatus::Requested | RunStatus::Running);
    let mut of_version = facts.state.runs.iter().filter(|run| run.view == view.name && run.version == view.version);
    let newest = newest_runs(&facts.state).get(&view.view_version()).copied();
    of_version.any(is_open) || newest.is_some_and(|run| run.status == RunStatus::Failed)
}

/// Returns why a run waits, if others are under way.
fn busy(facts: &Facts) -> Option<String> {
    let running: Vec<&str> = facts.state.runs.iter().filter(|run| run.status == RunStatus::Running).map(|run| &*run.view).collect();
    let under_way = match running[..] {
        [] => return None,
        [view] => format!("the run of {view} is under way"),
        _ => format!("{} runs are under way: {}", running.len(), running.join(", ")),
    };
    Some(format!("{under_way}, and the scheduler runs `scheduler.max_concurrent_runs` at a time"))
}

fn unbuilt(facts: &Facts, registry: &Registry) -> Vec<Problem> {
    let waits = |view: &&LiveView| facts.building.contains(&view.view_version()) || waits_for_run(&facts.state, view).unwrap_or_default();
    let building = registry.views.iter().filter(|view| view.status == DefinitionStatus::Building || waits(view));
    let mut found = Vec::new();
    for view in building.filter(|view| facts.state.snapshot(&view.name, view.version).is_none()) {
        let defined = facts.state.definitions.get(DefinitionKind::View, &view.name, view.version);
        let age = facts.now.saturating_sub(defined.map_or(facts.now, |definition| definition.created_at));
        let newest = newest_runs(&facts.state).get(&view.view_version()).copied();
        let running = newest.is_some_and(|run| run.status == RunStatus::Running);
        if age <= LATE_US || running {
            continue;
        }
        let served = registry.views.iter().find(|other| other.name == view.name && other.status == DefinitionStatus::Active);
        found.push(Problem {
            fault: Fault::VersionUnbuilt,
            severity: Severity::Warning,
            what: format!("{}: version {} was applied {} ago and has no snapshot", view.name, view.version, for_time(age)),
            cause: match newest.and_then(|run| run.error.clone()) {
                Some(error) => format!("its run failed: {error}"),
                None => busy(facts).unwrap_or_else(|| "it was never run: no scheduler runs".into()),
            },
            effect: match served {
                Some(served) if served.version != view.version => format!("version {} is served until then", served.version),
                Some(_) if waits(&view) => "queries of it are refused until then: its states are not computed while users wait".into(),
                _ => "answers merge every checkpoint until then".into(),
            },
            next_step: format!("start `basestream scheduler` or `basestream up`, or build it now: `basestream batch run {}`", view.name),
        });
    }
    found
}

fn formats(facts: &Facts, registry: &Registry) -> Vec<Problem> {
    let mut found = Vec::new();
    for view in &registry.views {
        let Some(stamp) = facts.stamps.get(&view.view_version()) else { continue };
        let next_step = format!("run `basestream batch run {}`: it writes a snapshot in the format of this release", view.name);
        match stamp {
            Ok(stamp) if view.plan.reads_stamp(stamp) => {}
            Ok(stamp) => found.push(Problem {
                fault: Fault::StatesOfAnotherFormat,
                severity: Severity::Warning,
                what: format!("{}: the published snapshot's states have another format than this release writes", view.name),
                cause: format!("another release wrote it: found {stamp}, expected {}", view.plan.stamp),
                effect: match facts.building.contains(&view.view_version()) {
                    true => "the snapshot is not used, and queries of the view are refused until a run has built it anew".into(),
                    false => "the snapshot is not used: answers are computed from the archive, correct but slow, and \
                        are marked `degraded`"
                        .into(),
                },
                next_step,
            }),
            Err(error) => found.push(Problem {
                fault: Fault::FileDamaged,
                severity: Severity::Error,
                what: format!("{}: the manifest of the published snapshot cannot be read", view.name),
                cause: error.clone(),
                effect: "answers stay correct but become slower (`degraded`): they are computed from the previous \
                     snapshot or from all checkpoints"
                    .into(),
                next_step,
            }),
        }
    }
    found
}

/// `k="a", column amount (sum(amount)), 1h from 2026-01-02T03:00:00Z: kept 1, recomputed 2`
pub(in crate::status) fn difference_text(difference: &StateDifference) -> String {
    let StateDifference { key, column, state, level, tile, kept, recomputed } = difference;
    let key = if key.is_empty() { "the only key" } else { key };
    let what = if column == "*" { "all columns".to_owned() } else { format!("column {column} ({state})") };
    format!("{key}, {what}, {level} from {tile}: kept {kept}, recomputed {recomputed}")
}
