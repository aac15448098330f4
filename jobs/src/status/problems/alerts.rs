//! Problems of alerts: which nobody runs, which wait, and which are behind.

use catalog::AlertRunner;
use engine::events::format_timestamp;
use event_alerts::NO_ROOM_FOR_INDEX;
use types::tiles::Micros;

use super::duration::for_time;
use super::{Facts, Fault, Problem, Severity};
use crate::status::AlertFacts;

const SECOND: Micros = 1_000_000;
/// A process takes an alert up within a second, and another one over within the time of its lease.
const UNRUN_FOR: Micros = 30 * SECOND;
/// A process evaluates an alert several times a second. The first round of a takeover evaluates all keys.
const BEHIND_FOR: Micros = 60 * SECOND;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    facts.alerts.iter().filter_map(|alert| problem(facts, alert)).collect()
}

fn problem(facts: &Facts, alert: &AlertFacts) -> Option<Problem> {
    if alert.is_paused {
        return None;
    }
    let running = alert.running();
    if let Some((runner, why)) = running.and_then(|runner| Some((runner, runner.waits.as_ref()?))) {
        return Some(waits(alert, runner, why));
    }
    // A process that fails leaves the alert to others, and takes it again if nobody has: it may run it at the moment.
    match facts.error_of_alert(&alert.alert) {
        Some(_) if alert.refused.is_some() => Some(unrun(alert)),
        Some(why) => Some(fails(alert, why)),
        None if alert.run_by.is_none() => (facts.now - alert.since > UNRUN_FOR).then(|| unrun(alert)),
        None => running.and_then(|runner| behind(facts, alert, runner)),
    }
}

fn unrun(alert: &AlertFacts) -> Problem {
    let cause = match (&alert.refused, &alert.runner) {
        (Some(found), _) => format!("it cannot be planned any more: {found}"),
        (None, Some(AlertRunner { owner, evaluated_at: Some(at), .. })) => {
            format!("no `up` or `speed` runs, or none can run it; {owner} did, and last looked at {}", format_timestamp(*at))
        }
        (None, _) => "no `up` or `speed` runs, or none can run it".to_owned(),
    };
    Problem {
        fault: Fault::AlertUnrun,
        severity: Severity::Error,
        what: format!("no process runs the alert \"{}\"; {}", alert.alert, open(alert)),
        cause,
        effect: "no alerts are opened or resolved, and no records are put out; the next process to run it continues from there".into(),
        next_step: match alert.refused {
            Some(_) => "change the alert or the view that it watches, and run `basestream apply`".into(),
            None => "start `basestream up` or `basestream speed`; if one runs, its log and its /readyz say why it cannot".into(),
        },
    }
}

fn waits(alert: &AlertFacts, runner: &AlertRunner, why: &str) -> Problem {
    let (effect, next_step) = if why.starts_with(NO_ROOM_FOR_INDEX) {
        (
            "no alerts are opened or resolved, and no records are put out; once there is room, it continues from there",
            "raise serving.memory_limit where alerts run, or leave edges out by the view's WHERE; it is tried again every 30 s",
        )
    } else {
        (
            "no alerts are opened or resolved, and no records are put out, because they could contradict earlier ones",
            "point log.url at the log that it was evaluated with; if that is lost, define the alert under a new name and run \
             `basestream apply`: it begins anew",
        )
    };
    not_evaluated(alert, format!("{why} ({})", runner.owner), effect, next_step)
}

/// The node cannot read its view, or cannot put its records out.
fn fails(alert: &AlertFacts, why: &str) -> Problem {
    let effect = "no alerts are opened or resolved, and no records are put out; once the cause is gone, it continues from there";
    let next_step = "remove the cause (a topic that is missing, a right); the node tries it again by itself";
    not_evaluated(alert, why.to_owned(), effect, next_step)
}

fn not_evaluated(alert: &AlertFacts, cause: String, effect: &str, next_step: &str) -> Problem {
    Problem {
        fault: Fault::AlertWaits,
        severity: Severity::Error,
        what: format!("the alert \"{}\" is not evaluated; {}", alert.alert, open(alert)),
        cause,
        effect: effect.into(),
        next_step: next_step.into(),
    }
}

/// Its last round was made for a later time than the present one, and its process does not go on with that time.
fn was_ahead(alert: &AlertFacts, ahead: Micros) -> Problem {
    let cause = format!("it was evaluated for a time {} ahead of the clock, which was wrong then, or is now", for_time(ahead));
    let effect = "until the clock is there again, no alerts are opened or resolved, and no records are put out, because they could \
        contradict earlier ones";
    let next_step = "correct the clock if it is wrong; otherwise define the alert under a new name and run `basestream apply`: it \
        begins anew";
    not_evaluated(alert, cause, effect, next_step)
}

fn behind(facts: &Facts, alert: &AlertFacts, runner: &AlertRunner) -> Option<Problem> {
    let is_evaluated = runner.evaluated_at.is_some_and(|evaluated_at| (facts.now - evaluated_at).abs() <= BEHIND_FOR);
    let ahead = runner.at.map_or(0, |at| at - facts.now);
    if !is_evaluated && !facts.event_clock && ahead > BEHIND_FOR {
        return Some(was_ahead(alert, ahead));
    }
    let (late, cause) = match runner.evaluated_at.map(|evaluated_at| facts.now - evaluated_at) {
        Some(ended) if ended > BEHIND_FOR => {
            (ended, format!("{} looks at many keys, or cannot read the view: its log says which", runner.owner))
        }
        // By the event clock its time is that of the newest event, however old that is.
        _ if facts.event_clock => return None,
        // A process that has just taken it up, or waits for a partition that nobody reads, has not evaluated it.
        _ => (
            facts.now - runner.at.unwrap_or(alert.since),
            "the records of its view's streams after that are not counted yet: workers are behind, or a partition has none".to_owned(),
        ),
    };
    (late > BEHIND_FOR).then(|| Problem {
        fault: Fault::AlertBehind,
        severity: Severity::Warning,
        what: format!("the alert \"{}\" is {} behind", alert.alert, for_time(late)),
        cause,
        effect: "its records are late by as much; none is left out, and lag does not count as silence".into(),
        next_step: "see the lag of the partitions above; more workers read more partitions at a time".into(),
    })
}

fn open(alert: &AlertFacts) -> String {
    if alert.open == 1 { "1 key is open".to_owned() } else { format!("{} keys are open", alert.open) }
}
