//! Problems of services that do not answer or that a node cannot use, and of definitions that cannot be planned.

use types::clocks::{CLOCK_DIFFERS, CLOCK_WENT_BACK};

use super::duration::for_time;
use super::{BackingService, Facts, Failing, Fault, Problem, Severity, UnaskedNode, Unreachable, WorkerLink};

/// A process that has just begun or ended is not a problem yet.
const LOST_FOR_S: u64 = 5;

pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let mut found: Vec<Problem> = facts.unreachable.iter().map(unreachable).collect();
    found.extend(facts.foreign_storage.as_deref().map(foreign_storage));
    let mut reported: Vec<&String> = Vec::new();
    for error in facts.ends.values().filter_map(|ends| ends.as_ref().err()) {
        if !reported.contains(&error) && !facts.unreachable.iter().any(|known| known.service == BackingService::Log) {
            reported.push(error);
            found.push(unreachable(&Unreachable { service: BackingService::Log, error: error.clone() }));
        }
    }
    // Each of these alerts has a problem of its own, with the reason.
    let is_of_alerts = |failing: &&Failing| {
        let mut alerts = facts.alerts.iter();
        failing.what == event_alerts::ALERT_STALLED && alerts.any(|alert| facts.error_of_alert(&alert.alert).is_some())
    };
    found.extend(facts.failing.iter().filter(|failing| !is_of_alerts(failing)).map(failing));
    found.extend(facts.workers.iter().filter(|link| !link.followed && link.seconds >= LOST_FOR_S).map(not_followed));
    found.extend(facts.unasked.as_ref().map(unasked));
    if let Some(Err(error)) = &facts.registry {
        found.push(Problem {
            fault: Fault::DefinitionsUnplanned,
            severity: Severity::Error,
            what: "the catalog's definitions cannot be planned".into(),
            cause: error.clone(),
            effect: "no layer can start; running nodes serve what they have loaded".into(),
            next_step: "run `basestream check` with this binary, correct the definition it names, then `basestream apply`".into(),
        });
    }
    found
}

const WITHOUT_CATALOG: &str =
    "no checkpoint is committed and no run is published; running nodes serve what they have loaded; records wait in the log";

fn unreachable(unreachable: &Unreachable) -> Problem {
    let (fault, what, effect, next_step) = match unreachable.service {
        BackingService::Catalog if unreachable.error.starts_with(catalog::FILE_DAMAGED) => (
            Fault::CatalogUnreachable,
            catalog::FILE_DAMAGED,
            WITHOUT_CATALOG,
            "stop all processes and restore the file from a backup: what was committed since is read again, as far as the log has it",
        ),
        BackingService::Catalog => (
            Fault::CatalogUnreachable,
            "the catalog does not answer",
            WITHOUT_CATALOG,
            "make the catalog's database available again, or correct catalog.url; every process recovers by itself",
        ),
        BackingService::Storage => (
            Fault::StorageUnreachable,
            "the object storage does not answer",
            "no checkpoint is committed and no run can read or write; lookups are answered from local copies; records wait in the log",
            "make the object storage available again, or correct storage.url and its credentials; every process recovers by itself",
        ),
        BackingService::Log => (
            Fault::LogUnreachable,
            "the log does not answer",
            "no record is read or accepted; answers stay at the committed vector; their lag is not known",
            "make the log available again, or correct log.url and log.properties; workers resume by themselves at the committed offsets",
        ),
    };
    Problem {
        fault,
        severity: Severity::Error,
        what: what.into(),
        cause: unreachable.error.clone(),
        effect: effect.into(),
        next_step: next_step.into(),
    }
}

fn foreign_storage(found: &str) -> Problem {
    Problem {
        fault: Fault::StorageForeign,
        severity: Severity::Error,
        what: "the object storage is not the one of this catalog".into(),
        cause: found.to_owned(),
        effect: "no layer starts, and no files are deleted as orphans; what this catalog names may be missing".into(),
        next_step: "correct catalog.url or storage.url; give a new catalog an empty folder or prefix".into(),
    }
}

fn failing(failing: &Failing) -> Problem {
    let lasting = for_time(i64::try_from(failing.seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000));
    if failing.what == speed::SINK_STALLED {
        return Problem {
            fault: Fault::SinkStalled,
            severity: Severity::Error,
            what: format!("{}, for {lasting}", failing.what),
            cause: failing.error.clone(),
            effect: "the stream that the sink reads is not decided, and its answers get older; other streams go on, and nothing is lost"
                .into(),
            next_step: "remove the cause (a topic that is missing, a right, a definition), or drop the sink and run `basestream apply`; \
                it is tried again at least every 30 s"
                .into(),
        };
    }
    if failing.what == speed::ARCHIVE_DAMAGED {
        return Problem {
            fault: Fault::FileDamaged,
            severity: Severity::Error,
            what: format!("{}, for {lasting}", failing.what),
            cause: failing.error.clone(),
            effect: "the stream is not decided, as duplicates could not be recognised, and its answers get older; other streams go on"
                .into(),
            next_step: "run `basestream repair`; the worker then reads the stream by itself".into(),
        };
    }
    if failing.what == access::ISSUER_UNREAD {
        return Problem {
            fault: Fault::NodeNotReady,
            severity: Severity::Error,
            what: format!("the node that answers HTTP accepts no JWT: {}, for {lasting}", failing.what),
            cause: failing.error.clone(),
            effect: "callers with a JWT are refused with 503; tokens of the catalog are accepted, and all other work goes on".into(),
            next_step: "make the issuer answer the node, or correct serving.auth.issuer; the node asks it again every 30 s".into(),
        };
    }
    if let Some(effect) = effect_of_clock(&failing.what) {
        return Problem {
            fault: Fault::ClockWrong,
            severity: Severity::Error,
            what: format!("the node that answers HTTP has a wrong clock, for {lasting}"),
            cause: format!("{}: {}", failing.what, failing.error),
            effect: effect.into(),
            next_step: "keep the clocks of all machines in time, with NTP; the node continues by itself".into(),
        };
    }
    Problem {
        fault: Fault::NodeNotReady,
        severity: Severity::Error,
        what: format!("the node that answers HTTP is not ready: {}, for {lasting}", failing.what),
        cause: failing.error.clone(),
        effect: "what cannot be written waits, or is refused with 503; nothing is lost, and no answer goes back".into(),
        next_step: "free space if a disk is full, else make the service available again; the node continues by itself".into(),
    }
}

fn unasked(node: &UnaskedNode) -> Problem {
    Problem {
        fault: Fault::NodeUnasked,
        severity: Severity::Notice,
        what: format!("the node at {} did not tell what is wrong with it", node.address),
        cause: node.reason.clone(),
        effect: "what only the node knows is not listed here: a full disk, stalled sinks, views it refuses, workers it does not follow"
            .into(),
        next_step: "give this command a token that may read the process (BASESTREAM_TOKEN) and the authorities of the node's certificate \
            (SSL_CERT_FILE), or make serving.http the address of a node"
            .into(),
    }
}

fn effect_of_clock(what: &str) -> Option<&'static str> {
    match what {
        CLOCK_DIFFERS => {
            Some("leases and pins of this machine expire early or late for others; a collector whose clock is far ahead deletes nothing")
        }
        CLOCK_WENT_BACK => Some("answers, or the timestamps of records, stay at the latest time until the clock is there again"),
        _ => None,
    }
}

fn not_followed(link: &WorkerLink) -> Problem {
    let lasting = for_time(i64::try_from(link.seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000));
    Problem {
        fault: Fault::WorkerNotFollowed,
        severity: Severity::Warning,
        what: format!("the node that answers HTTP does not follow the workers at {}, for {lasting}", link.address),
        cause: link.error.clone().unwrap_or_else(|| "they do not answer".into()),
        effect: "its answers count what those workers read once it is committed; nothing is lost".into(),
        next_step: "if the process ended, nothing: its address expires within 30 s; else make speed.flight_advertise an address that the \
            node reaches, and give the node the token (serving.fresh_token) and the authorities (serving.fresh_ca) that the workers ask for"
            .into(),
    }
}
