//! Events that are scored one at a time over HTTP, while others arrive.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use types::{Error, Result};

use super::Options;
use super::definitions::joined;
use super::project::{Filled, SinkProject};
use super::sending::{Sender, Sent};
use crate::Programs;
use crate::asking::{self, Client, Http, Stretches};
use crate::latencies::Latencies;
use crate::measured_process::MeasuredProcess;
use crate::payments::{MOST_EVENTS, Payments, Source};

/// Each asks some hundred times a second.
const CLIENTS: u64 = 8;

/// What was measured of one way to ask.
pub(super) struct Scored {
    /// Whether events were stored.
    pub(super) stored: bool,
    /// Events per second that arrived beside them.
    pub(super) beside: u64,
    pub(super) stretches: Vec<Latencies>,
}

/// Asks `per_second` times a second, once without storing the events and once with it, while `beside` events a second
/// arrive.
pub(super) async fn scored(options: &Options, programs: &Programs, folder: &Path, per_second: u64, beside: u64) -> Result<Vec<Scored>> {
    let payments = Payments { records: MOST_EVENTS, accounts: options.keys };
    let site = SinkProject::create(&Source::Embedded, folder, payments, Filled::No, &joined(options.views)).await?;
    let SinkProject { topic, project, .. } = &site;
    let process = MeasuredProcess::up(programs, &project.config(), folder, &project.http).await?;
    let sender = match beside {
        0 => None,
        rate => Some(Sender::start(topic, Sent::default(), rate).await?),
    };
    let next = Arc::new(AtomicU64::new(MOST_EVENTS));
    let pace = Duration::from_secs_f64(CLIENTS as f64 / per_second.max(1) as f64);
    let mut measured = Vec::new();
    for stored in [false, true] {
        let client = |_| -> Result<Box<dyn Client>> {
            Ok(Box::new(Asking { http: Http::connect(&project.http)?, payments, next: next.clone(), stored, pace, took: Duration::ZERO }))
        };
        let clients = (0..CLIENTS).map(client).collect::<Result<Vec<_>>>()?;
        let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
        measured.push(Scored { stored, beside, stretches: asking::ask(stretches, clients).await? });
    }
    if let Some(sender) = sender {
        sender.stop().await?;
    }
    process.stop().await?;
    Ok(measured)
}

struct Asking {
    http: Http,
    payments: Payments,
    /// The last payments, which do not arrive otherwise.
    next: Arc<AtomicU64>,
    stored: bool,
    pace: Duration,
    /// By the last answer.
    took: Duration,
}

impl Client for Asking {
    fn ask(&mut self, _: u64) -> Result<()> {
        let began = std::time::Instant::now();
        let number = self.next.fetch_sub(1, Ordering::Relaxed) - 1;
        let value = self.payments.record(number).value.unwrap_or_default();
        let body = std::str::from_utf8(&value).map_err(|error| Error::internal(error.to_string()))?;
        let answer = self.http.post(&format!("/v1/sinks/scored?store={}", self.stored), body)?;
        // A repeat of an earlier payment is the only one without a record.
        let is_answered = [&b"{\"status\":\"scored\""[..], b"{\"status\":\"duplicate\""].iter().any(|begin| answer.starts_with(begin));
        self.took = began.elapsed();
        match is_answered {
            true => Ok(()),
            false => Err(Error::internal("an event is not scored").with("answer", String::from_utf8_lossy(answer))),
        }
    }

    fn pace(&self) -> Duration {
        self.pace.saturating_sub(self.took)
    }
}
