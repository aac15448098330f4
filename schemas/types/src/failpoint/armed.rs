//! Reads the failpoints of `FAILPOINTS` once, and carries them out step by step.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use super::{ALERTS, APPEND, BACKFILL, BATCH, COLLECTOR, COMPACTION, FULL_RUN, INGEST, SERVING, SINKS, SPEED, TRIM};
use crate::{Error, Result};

static STEPS: LazyLock<Mutex<HashMap<String, Vec<Term>>>> = LazyLock::new(|| {
    let asked = std::env::var("FAILPOINTS").unwrap_or_default();
    Mutex::new(parse(&asked).unwrap_or_else(|wrong| panic!("FAILPOINTS: {wrong:?} is not `step=[percent%][count*]off|return(..)->..`")))
});

/// Passes a step, and does what `FAILPOINTS` says for it.
pub fn hit(step: &'static str) -> Result<()> {
    let known = [&SPEED[..], &SINKS, &ALERTS, &BATCH, &COLLECTOR, &COMPACTION, &SERVING, &APPEND, &TRIM, &INGEST, &BACKFILL, &FULL_RUN];
    assert!(known.iter().any(|steps| steps.contains(&step)), "the step {step} is in no list");
    let asked = STEPS.lock().unwrap_or_else(PoisonError::into_inner).get_mut(step).and_then(|terms| next(terms));
    asked.map_or(Ok(()), |argument| act(step, &argument))
}

/// `[percent%][count*]off` or `[percent%][count*]return(argument)`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    percent: u64,
    /// How many more times the term applies; `None`: always.
    left: Option<u64>,
    argument: Option<String>,
}

fn parse(text: &str) -> Result<HashMap<String, Vec<Term>>, String> {
    let step = |part: &str| {
        let (name, terms) = part.split_once('=')?;
        let terms: Option<Vec<Term>> = terms.split("->").map(term).collect();
        Some((name.trim().to_owned(), terms?))
    };
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(|part| step(part).ok_or_else(|| part.to_owned())).collect()
}

fn term(text: &str) -> Option<Term> {
    let (percent, rest) =
        text.trim().split_once('%').map_or(Some((100, text.trim())), |(percent, rest)| Some((percent.parse().ok()?, rest)))?;
    let (left, rest) = rest.split_once('*').map_or(Some((None, rest)), |(count, rest)| Some((Some(count.parse().ok()?), rest)))?;
    let argument = match rest {
        "off" => None,
        _ => Some(rest.strip_prefix("return(")?.strip_suffix(')')?.to_owned()),
    };
    Some(Term { percent, left, argument })
}

/// Returns the action of the first term that is not used up and whose chance comes true.
fn next(terms: &mut [Term]) -> Option<String> {
    for term in terms.iter_mut().filter(|term| term.left != Some(0)) {
        if RandomState::new().hash_one(()) % 100 < term.percent {
            term.left = term.left.map(|left| left - 1);
            return term.argument.clone();
        }
    }
    None
}

fn act(step: &str, argument: &str) -> Result<()> {
    note(step, argument);
    match argument.split_once(':') {
        Some(("delay", milliseconds)) => sleep(milliseconds.parse().unwrap_or(0)),
        _ if argument == "kill" => signal(libc::SIGKILL),
        _ if argument == "stop" => signal(libc::SIGSTOP),
        _ => return Err(Error::unavailable("a test has this step fail").with("step", step)),
    }
    Ok(())
}

/// Writes a line in one write: it stays whole when the process dies next, and when several processes write.
fn note(step: &str, argument: &str) {
    let Ok(path) = std::env::var("BASESTREAM_FAILPOINTS_FIRED") else { return };
    let line = format!("{} {step} {argument}\n", std::process::id());
    if let Ok(mut file) = std::fs::File::options().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The signal reaches all threads within the sleep; after SIGKILL nothing below it runs.
#[allow(unsafe_code)]
fn signal(signal: libc::c_int) {
    // SAFETY: kill(2) takes two numbers and touches no memory of ours.
    unsafe { libc::kill(libc::getpid(), signal) };
    sleep(20);
}

fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[cfg(test)]
mod tests;
