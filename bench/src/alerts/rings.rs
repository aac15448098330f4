//! A graph of users and devices without a ring, and events that complete some.
//!
//! Each user has opened an account on the device of the same number, and has logged in from the three devices of its
//! group: each device is linked with two others. A login from one more device completes a ring.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_log::NewRecord;
use serde_json::Value;
use types::tiles::Micros;
use types::{Error, Result};

use super::clock::now;
use super::reading::device_since;
use crate::events::mix;
use crate::feed;
use crate::graph::{Event, Stream};
use crate::latencies::Latencies;
use crate::payments::{PARTITIONS, Payments, Topic};
use crate::view::DEFINITIONS;

pub(super) const RING_TOPIC: &str = "rings";
/// The devices of a group, which is also the number of others with which a device is in a ring.
const GROUP: u64 = 3;
/// Users whose events are appended together before anything is measured.
const AT_ONCE: u64 = 5_000;
/// The devices that complete rings; no other device has such a number.
const FIRST_OF_RINGS: u64 = 50_000_000;

/// The files of the project.
pub(super) fn definitions(has_alert: bool) -> Vec<(&'static str, String)> {
    let alert = format!(
        "CREATE ALERT ring WITH (topic = '{RING_TOPIC}') AS\n\
         SELECT device_id, linked_devices_7d, users_7d FROM device_links WHERE linked_devices_7d >= {GROUP};\n"
    );
    let alert = has_alert.then_some(("alerts/ring.sql", alert));
    DEFINITIONS.map(|(path, text)| (path, text.to_owned())).into_iter().chain(alert).collect()
}

/// Cheap to clone; the clones are of one graph.
#[derive(Clone)]
pub(super) struct Rings {
    users: u64,
    known: Arc<Mutex<KnownRings>>,
}

struct KnownRings {
    /// Rings per second that are completed, since when, and how many were.
    completing: (u64, Instant, u64),
    /// All that were completed: those of the first devices.
    completed: u64,
    /// When the event of each ring without a record was appended, by device.
    awaited: HashMap<u64, Micros>,
    latencies: Latencies,
    wrong: Vec<String>,
}

impl Rings {
    /// Of at least this many users.
    pub(super) fn new(users: u64) -> Result<Rings> {
        let known = KnownRings {
            completing: (0, Instant::now(), 0),
            completed: 0,
            awaited: HashMap::new(),
            latencies: Latencies::begin()?,
            wrong: Vec::new(),
        };
        Ok(Rings { users: users.next_multiple_of(GROUP), known: Arc::new(Mutex::new(known)) })
    }

    pub(super) fn users(&self) -> u64 {
        self.users
    }

    pub(super) fn completed(&self) -> u64 {
        self.lock().completed
    }

    /// Creates the topics with the graph, and the topic of the alert. Returns one of them.
    pub(super) async fn create_topics(&self, folder: &Path) -> Result<Topic> {
        let payments = Payments { records: 0, accounts: 0 };
        let topic = Topic { name: Stream::Login.name().to_owned(), url: format!("file://{}", folder.display()), payments };
        let log = topic.open().await?;
        for name in [Stream::Account.name(), Stream::Login.name(), RING_TOPIC] {
            log.create_topic(name, PARTITIONS).await?;
        }
        for first in (0..self.users).step_by(AT_ONCE as usize) {
            let (users, ts) = (first..self.users.min(first + AT_ONCE), now());
            let accounts = users.clone().map(|user| Event { ts, user, device: user }.record(&format!("a{user}")));
            log.append(Stream::Account.name(), accounts.collect()).await?;
            let logins = users.flat_map(|user| {
                (0..GROUP).map(move |nth| Event { ts, user, device: of_group(user, nth) }.record(&format!("l{user}-{nth}")))
            });
            log.append(Stream::Login.name(), logins.collect()).await?;
        }
        Ok(topic)
    }

    pub(super) fn arriving(&self) -> ArrivingLinks {
        ArrivingLinks { rings: self.clone(), next: 0 }
    }

    /// Sets how many rings per second are completed from now on.
    pub(super) fn complete(&self, per_second: u64) {
        self.lock().completing = (per_second, Instant::now(), 0);
    }

    pub(super) fn all_have_begun(&self) -> bool {
        self.lock().awaited.is_empty()
    }

    /// What was measured since the last call.
    pub(super) fn take_latencies(&self) -> Result<Latencies> {
        Ok(std::mem::replace(&mut self.lock().latencies, Latencies::begin()?))
    }

    /// Takes a record of the alert, which could be read `now`.
    pub(super) fn take(&self, record: &Value, now: Micros) {
        let found = device_since(record);
        let is_of_ring = record["_state"] == "began" && record["linked_devices_7d"] == GROUP && record["users_7d"] == 1;
        let is_past = found.is_some_and(|(_, since)| since <= now);
        let mut known = self.lock();
        match found.and_then(|(device, _)| known.awaited.remove(&device)) {
            Some(at) if is_of_ring && is_past => known.latencies.add(Duration::from_micros((now - at).max(0) as u64)),
            Some(_) => known.wrong.push(format!("another state, value or time: {record}")),
            None => known.wrong.push(format!("twice, or of a device that is in no ring: {record}")),
        }
    }

    /// Errors if a record was wrong, or if a ring has none.
    pub(super) fn check(&self) -> Result<()> {
        let known = self.lock();
        match (known.wrong.first(), known.awaited.len()) {
            (None, 0) => Ok(()),
            (None, missing) => Err(Error::internal("rings have no record").with("number", missing)),
            (Some(first), _) => Err(Error::internal("records of rings are wrong").with("number", known.wrong.len()).with("first", first)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownRings> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownRings {
    /// The next ring's device if a ring is due.
    fn due(&mut self, users: u64, at: Micros) -> Option<u64> {
        let (per_second, since, completed) = self.completing;
        let is_due = (completed as f64) < since.elapsed().as_secs_f64() * per_second as f64;
        if !is_due || self.completed == users {
            return None;
        }
        let device = self.completed;
        self.completing.2 += 1;
        self.completed += 1;
        self.awaited.insert(device, at);
        Some(device)
    }
}

/// The events that arrive: those that complete rings; a tenth of the others is a new user's account or login, and the
/// rest repeats edges of the graph.
pub(super) struct ArrivingLinks {
    rings: Rings,
    next: u64,
}

impl feed::Source for ArrivingLinks {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let ts = now();
        let rings = self.rings.clone();
        let mut known = rings.lock();
        let (mut accounts, mut logins) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (stream, user, device) = match known.due(rings.users, ts) {
                Some(ring) => (Stream::Login, ring, FIRST_OF_RINGS + ring),
                None => self.other(),
            };
            let record = Event { ts, user, device }.record(&format!("n{}", self.next));
            match stream {
                Stream::Account => accounts.push(record),
                Stream::Login => logins.push(record),
            }
            self.next += 1;
        }
        vec![(Stream::Login.name().to_owned(), logins), (Stream::Account.name().to_owned(), accounts)]
    }
}

impl ArrivingLinks {
    /// The stream, user and device of an event that completes no ring.
    fn other(&self) -> (Stream, u64, u64) {
        if self.next.is_multiple_of(10) {
            // A new user's device is linked with that of the next one at most.
            let nth = self.next / 10;
            let user = self.rings.users + nth / 2;
            return if nth.is_multiple_of(2) { (Stream::Account, user, user) } else { (Stream::Login, user, user + 1) };
        }
        let hash = mix(21, self.next);
        let user = hash % self.rings.users;
        match self.next % 10 {
            1 => (Stream::Account, user, user),
            _ => (Stream::Login, user, of_group(user, mix(22, hash))),
        }
    }
}

/// A device of the user's group.
fn of_group(user: u64, nth: u64) -> u64 {
    user / GROUP * GROUP + nth % GROUP
}
