//! Devices that report again and again, and some that fall silent.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_log::NewRecord;
use serde_json::{Value, json};
use types::tiles::Micros;
use types::{Error, Result};

use super::clock::now;
use super::reading::device_since;
use super::{Options, REPORTS_AFTER};
use crate::feed;
use crate::latencies::Latencies;
use crate::payments::{PARTITIONS, Payments, Source, Topic};

pub(super) const ALERT_TOPIC: &str = "silent";
/// Events that are appended together before anything is measured.
const AT_ONCE: usize = 20_000;

/// The files of the project.
pub(super) fn definitions(topic: &str, options: &Options, has_alert: bool) -> Vec<(&'static str, String)> {
    let stream = format!(
        "CREATE STREAM heartbeats (device_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'))\n\
         WITH (topic = '{topic}', event_time = 'ts', key = 'device_id');\n"
    );
    let view = "CREATE VIEW device_health AS\nSELECT device_id, max(ts) AS last_seen FROM heartbeats GROUP BY device_id;\n".to_owned();
    let alert = format!(
        "CREATE ALERT device_silent WITH (topic = '{ALERT_TOPIC}') AS\nSELECT device_id, last_seen FROM device_health \
         WHERE as_of() - last_seen > INTERVAL '{} seconds';\n",
        options.silence
    );
    let alert = has_alert.then_some(("alerts/device_silent.sql", alert));
    [("streams/heartbeats.sql", stream), ("views/device_health.sql", view)].into_iter().chain(alert).collect()
}

/// What is known of the devices. Cheap to clone; the clones are one fleet.
///
/// The devices before `active` report in turn. The others have one event, of the beginning.
#[derive(Clone)]
pub(super) struct Fleet {
    keys: u64,
    active: u64,
    silence: Micros,
    known: Arc<Mutex<Known>>,
}

struct Known {
    /// Devices per second that fall silent, since when, and how many have.
    falling: (u64, Instant, u64),
    /// When each device had its last event.
    last: Vec<Micros>,
    /// The events taken last, by device, and the time of the device's event before. When the next ones are taken, these
    /// are in the topic.
    taken: Vec<(u64, Micros)>,
    /// Events after which the device's next one was in the topic too late because this process was slow, by device
    /// and time; and these devices since some began to fall. Such a device does not: one that is open, reports and is
    /// silent again while nobody looks stays open.
    gaps: HashSet<(u64, Micros)>,
    slowed: HashSet<u64>,
    /// Devices that do not report any more, and those of them that have no record yet.
    fallen: HashSet<u64>,
    awaited: HashSet<u64>,
    /// The records so far, by device and the time since when.
    records: HashSet<(u64, Micros)>,
    /// How many of them are of idle devices.
    idle: u64,
    latencies: Latencies,
    /// Records that are right only if there is a gap after this event: known once the event after it is in the topic.
    after_gaps: Vec<((u64, Micros), String)>,
    wrong: Vec<String>,
}

impl Fleet {
    pub(super) fn new(options: &Options) -> Fleet {
        let active = ((options.rate * options.silence) as f64 * REPORTS_AFTER) as u64;
        let known = Known {
            falling: (0, Instant::now(), 0),
            last: vec![0; options.keys as usize],
            taken: Vec::new(),
            gaps: HashSet::new(),
            slowed: HashSet::new(),
            fallen: HashSet::new(),
            awaited: HashSet::new(),
            records: HashSet::new(),
            idle: 0,
            latencies: Latencies::begin().unwrap_or_else(|_| unreachable!("the bounds are constants")),
            after_gaps: Vec::new(),
            wrong: Vec::new(),
        };
        let silence = Duration::from_secs(options.silence).as_micros() as Micros;
        Fleet { keys: options.keys, active: active.clamp(1, options.keys), silence, known: Arc::new(Mutex::new(known)) }
    }

    /// Creates the topic with one event of each device, and the topic of the alert.
    pub(super) async fn create_topic(&self, folder: &Path) -> Result<Topic> {
        let topic = Source::Embedded.empty(folder, Payments { records: 0, accounts: 0 }).await?;
        let log = topic.open().await?;
        log.create_topic(ALERT_TOPIC, PARTITIONS).await?;
        // Those that report next come last.
        let devices: Vec<u64> = (self.active..self.keys).chain(0..self.active).collect();
        for devices in devices.chunks(AT_ONCE) {
            let at = now();
            devices.iter().for_each(|device| self.lock().last[*device as usize] = at);
            log.append(&topic.name, devices.iter().map(|device| event(*device, at)).collect()).await?;
        }
        Ok(topic)
    }

    pub(super) fn reporting(&self, topic: &Topic) -> Reporting {
        Reporting { fleet: self.clone(), topic: topic.name.clone(), next: 0 }
    }

    /// Sets how many devices per second fall silent from now on.
    pub(super) fn fall(&self, per_second: u64) {
        let mut known = self.lock();
        known.falling = (per_second, Instant::now(), 0);
        known.slowed.clear();
    }

    pub(super) fn idle_have_begun(&self) -> bool {
        self.lock().idle == self.keys - self.active
    }

    pub(super) fn fallen_have_begun(&self) -> bool {
        self.lock().awaited.is_empty()
    }

    /// What was measured since the last call.
    pub(super) fn take_latencies(&self) -> Result<Latencies> {
        Ok(std::mem::replace(&mut self.lock().latencies, Latencies::begin()?))
    }

    /// Takes a record of the alert, which could be read `now`.
    pub(super) fn take(&self, record: &Value, now: Micros) {
        let mut known = self.lock();
        let Some((device, since)) = device_since(record) else { return known.wrong.push(format!("not a record: {record}")) };
        // It begins with the first microsecond past the silence.
        let event = since - self.silence - 1;
        if !known.records.insert((device, since)) {
            known.wrong.push(format!("twice: {record}"));
        } else if known.last.get(device as usize) != Some(&event) {
            known.after_gaps.push(((device, event), record.to_string()));
        } else if known.awaited.remove(&device) {
            known.latencies.add(Duration::from_micros((now - since).max(0) as u64));
        }
        known.idle += u64::from(device >= self.active);
    }

    /// Errors if a record was wrong. Everything that was taken is in the topic.
    pub(super) fn check(&self) -> Result<()> {
        let mut known = self.lock();
        known.appended(now(), self.silence);
        let known = &*known;
        let without_gap = known.after_gaps.iter().filter(|(event, _)| !known.gaps.contains(event));
        let wrong: Vec<String> = without_gap.map(|(_, record)| format!("not since a silence of this device: {record}")).collect();
        let wrong: Vec<&String> = known.wrong.iter().chain(&wrong).collect();
        match wrong.first() {
            None => Ok(()),
            Some(first) => Err(Error::internal("records of an alert are wrong").with("number", wrong.len()).with("first", first)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The events taken last are in the topic, since `now` at the latest.
    fn appended(&mut self, now: Micros, silence: Micros) {
        for (device, before) in std::mem::take(&mut self.taken) {
            if now - before > silence {
                self.gaps.insert((device, before));
                self.slowed.insert(device);
                self.awaited.remove(&device);
            }
        }
    }
}

/// The events of the devices that report.
pub(super) struct Reporting {
    fleet: Fleet,
    topic: String,
    next: u64,
}

impl feed::Source for Reporting {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let at = now();
        let mut known = self.fleet.lock();
        known.appended(at, self.fleet.silence);
        let mut records = Vec::with_capacity(count as usize);
        while (records.len() as u64) < count && (known.fallen.len() as u64) < self.fleet.active {
            let device = self.next % self.fleet.active;
            self.next += 1;
            if known.fallen.contains(&device) {
                continue;
            }
            records.push(event(device, at));
            let before = std::mem::replace(&mut known.last[device as usize], at);
            known.taken.push((device, before));
            if at - before > self.fleet.silence || known.slowed.contains(&device) {
                continue;
            }
            let (per_second, since, fallen) = known.falling;
            if (fallen as f64) < since.elapsed().as_secs_f64() * per_second as f64 {
                known.falling.2 += 1;
                known.fallen.insert(device);
                known.awaited.insert(device);
            }
        }
        vec![(self.topic.clone(), records)]
    }
}

fn event(device: u64, at: Micros) -> NewRecord {
    let key = format!("d{device:08}");
    let value = json!({ "device_id": key, "ts": at }).to_string();
    NewRecord { key: Some(key.into()), value: Some(value.into()), headers: Vec::new(), partition_by: None }
}
