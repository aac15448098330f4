//! Streams that a worker leaves out because the records of a sink over them cannot be made or put out.
//!
//! The records of such a stream are not decided, so nothing of it is lost or skipped. The worker's other streams
//! continue. A stream whose sink cannot be planned is left out until its definitions change; any other is read again
//! after a pause, which grows with each failure.
//!
//! Nothing here uses a clock or a log.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use committed::registry::{LiveSink, Registry};
use types::outage::Outage;

/// The name of the outage in `/readyz` and in `status`.
pub const SINK_STALLED: &str = "records of a sink cannot be put out";

/// The pause after the second failure. The first one may be transient, so the stream is read again at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stream that is read again without failing for this long counts as recovered.
const TRIAL: Duration = Duration::from_secs(60);

/// A failure to make or to put out the records of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The stream that the sink reads.
    pub stream: Arc<str>,
    pub sink: Arc<str>,
    pub error: String,
}

/// The failing streams of one worker.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    failing: BTreeMap<Arc<str>, Failing>,
    /// Streams with a sink that cannot be planned, and since when that is known.
    unplanned: BTreeMap<Arc<str>, (Stall, Instant)>,
}

#[derive(Debug)]
struct Failing {
    stall: Stall,
    since: Instant,
    failures: u32,
    again_at: Instant,
}

impl Stalls {
    /// Notes that a sink failed. Its stream is left out from the second failure on.
    pub(crate) fn failed(&mut self, stall: Stall, now: Instant) {
        let known = self.failing.remove(&stall.stream).filter(|known| known.is_current(now));
        let (since, failures) = known.map_or((now, 1), |known| (known.since, known.failures.saturating_add(1)));
        let again_at = now + pause_after(failures);
        self.failing.insert(stall.stream.clone(), Failing { stall, since, failures, again_at });
    }

    /// Notes that events of the stream are committed, so that their records are durable.
    pub(crate) fn passed(&mut self, stream: &str) {
        self.failing.remove(stream);
    }

    /// Notes the sinks that cannot be planned. A paused sink holds nothing up.
    pub(crate) fn note_unplanned(&mut self, registry: &Registry, now: Instant) {
        let is_paused = |name: &Arc<str>| registry.sinks.iter().any(|sink| sink.name == *name && sink.paused_since.is_some());
        self.failing.retain(|_, failing| !is_paused(&failing.stall.sink));
        let mut known = std::mem::take(&mut self.unplanned);
        for stall in registry.sinks.iter().flat_map(|sink| unplanned(sink, registry)) {
            let since = known.remove(&stall.stream).map_or(now, |(_, since)| since);
            self.unplanned.insert(stall.stream.clone(), (stall, since));
        }
    }

    /// The streams that are not read at the moment.
    pub(crate) fn left_out(&self, now: Instant) -> BTreeSet<Arc<str>> {
        let failing = self.failing.iter().filter(|(_, failing)| failing.again_at > now).map(|(stream, _)| stream);
        failing.chain(self.unplanned.keys()).cloned().collect()
    }

    /// Whether a stream that failed is read again, so that it may fail soon.
    pub(crate) fn is_trial(&self, now: Instant) -> bool {
        self.failing.values().any(|failing| failing.again_at <= now && failing.is_current(now))
    }

    /// Returns the stalls, each with the time since which it lasts.
    pub(crate) fn current(&self, now: Instant) -> Vec<(&Stall, Instant)> {
        let failing = self.failing.values().filter(|failing| failing.failures > 1 && failing.is_current(now));
        let failing = failing.map(|failing| (&failing.stall, failing.since));
        failing.chain(self.unplanned.values().map(|(stall, since)| (stall, *since))).collect()
    }

    pub(crate) fn outage(&self, now: Instant) -> Option<Outage> {
        let all = self.current(now);
        let since = all.iter().map(|(_, since)| *since).min()?;
        let error = all.iter().map(|(stall, _)| stall.to_string()).collect::<Vec<_>>().join("; ");
        let errors = all.iter().map(|(stall, _)| (stall.sink.clone(), stall.error.clone())).collect();
        Some(Outage { what: SINK_STALLED, lasting: now.saturating_duration_since(since), error, errors })
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { stream, sink, error } = self;
        write!(f, "the sink \"{sink}\" over the stream \"{stream}\", which is not read meanwhile: {error}")
    }
}

impl Failing {
    fn is_current(&self, now: Instant) -> bool {
        now < self.again_at + TRIAL
    }
}

fn pause_after(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1 << (more - 2).min(10)).min(LONGEST_PAUSE),
    }
}

/// Returns the streams that an unplannable sink holds up: the one that it reads, or all if that is unknown. A sink over
/// a stream that does not exist holds nothing up.
fn unplanned(sink: &LiveSink, registry: &Registry) -> Vec<Stall> {
    let (Err(found), None) = (&sink.plan, sink.paused_since) else { return Vec::new() };
    let is_held = |stream: &&Arc<str>| sink.reads.as_ref().is_none_or(|reads| reads == *stream);
    let error = format!("it cannot be planned any more: {found}");
    let stall = |stream: &Arc<str>| Stall { stream: stream.clone(), sink: sink.name.clone(), error: error.clone() };
    registry.streams.keys().filter(is_held).map(stall).collect()
}

#[cfg(test)]
mod tests;
