//! What alerts put out while processes were killed: one record for each begin and each end, in the order in which a
//! key's count passed them. At which of its counts a key is looked at depends on who is killed when, but for the last.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use basestream_tests::records_of;
use catalog::{AlertTransition, Catalog};
use event_alerts::alert_of;
use event_log::Log;
use serde_json::Value;
use types::{Error, Result, TransitionKind};

use crate::decisions::accepted;
use crate::site::Site;

/// Begins with every hundredth payment of a device, and ceases with every fiftieth in between.
pub const BUSY: &str = "CREATE ALERT busy WITH (topic = 'TOPIC_GROUP_busy', resolve = true) AS
SELECT device_id, payments FROM seen WHERE payments % 100 < 50;\n";

/// Each device is linked to those that share a user with it, by two payments in a hundred: with more of them, walks
/// would take a debug build too long.
pub const MET: &str = "CREATE VIEW met AS
SELECT mine.device_id, count(DISTINCT theirs.device_id) AS devices
FROM payments mine JOIN payments theirs ON mine.user_id = theirs.user_id
WHERE mine.device_id <> theirs.device_id AND mine.amount < -30 AND theirs.amount < -30 GROUP BY mine.device_id;\n";
/// Begins with the second of four devices that one is linked to, and ceases with the fourth. A payment also changes the
/// rows of devices that it does not name.
pub const RING: &str = "CREATE ALERT ring WITH (topic = 'TOPIC_GROUP_ring', resolve = true) AS
SELECT device_id, devices FROM met WHERE devices % 4 >= 2;\n";

const VERSION: u32 = 1;
/// Below this many begins a run shows nothing. Where every second process that runs the alert is killed soon, nobody
/// looks at it most of the time: a run of half a minute found 19.
const LEAST: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// An alert over a count that only grows.
struct CountAlert {
    alert: &'static str,
    /// The column of the count.
    column: &'static str,
    condition: fn(u64) -> bool,
    /// By device, as JSON: what the count is in the end.
    counts: BTreeMap<String, u64>,
}

/// Waits until what is open follows from the accepted events, and compares the records with the catalog and with these
/// events. Returns what was found, for people.
pub async fn check(site: &Site, catalog: &Catalog, log: &dyn Log) -> Result<String> {
    let busy = CountAlert { alert: "busy", column: "payments", condition: |payments| payments % 100 < 50, counts: payments(site)? };
    let ring = CountAlert { alert: "ring", column: "devices", condition: |devices| devices % 4 >= 2, counts: linked(site)? };
    let [busy, ring] = [busy.check(site, catalog, log).await?, ring.check(site, catalog, log).await?];
    Ok(format!("{busy}; {ring}"))
}

/// The payments of each device.
fn payments(site: &Site) -> Result<BTreeMap<String, u64>> {
    let mut payments: BTreeMap<String, u64> = BTreeMap::new();
    for device in accepted(site)?.into_values() {
        *payments.entry(device.to_string()).or_default() += 1;
    }
    Ok(payments)
}

/// The devices that each device is linked to, without a JOIN.
fn linked(site: &Site) -> Result<BTreeMap<String, u64>> {
    let query = "SELECT DISTINCT device_id, user_id FROM payments WHERE amount < -30 AND device_id IS NOT NULL";
    let answer: Value = serde_json::from_str(&site.project.ok(&["query", query, "--json"])?)?;
    let rows = answer["rows"].as_array().ok_or_else(|| Error::internal("a query without rows"))?;
    let mut of_user: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows {
        of_user.entry(row["user_id"].to_string()).or_default().insert(row["device_id"].to_string());
    }
    let mut linked: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for devices in of_user.values() {
        for device in devices {
            linked.entry(device).or_default().extend(devices.iter().filter(|other| *other != device));
        }
    }
    Ok(linked.into_iter().map(|(device, others)| (device.clone(), others.len() as u64)).collect())
}

impl CountAlert {
    async fn check(&self, site: &Site, catalog: &Catalog, log: &dyn Log) -> Result<String> {
        self.until_open(site, catalog).await?;
        let transitions = self.transitions(catalog).await?;
        let records = self.records(site, log).await?;
        put_out_once(&transitions, &records)?;
        let mut of_device: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        records.iter().for_each(|record| of_device.entry(record["device_id"].to_string()).or_default().push(record));
        for (device, records) in &of_device {
            self.passed(records, self.counts.get(device).copied().unwrap_or(0)).map_err(|error| error.with("device", device))?;
        }
        let (alert, begins) = (self.alert, transitions.iter().filter(|transition| transition.kind == TransitionKind::Began).count());
        if begins < LEAST {
            return Err(Error::internal(format!("found {begins} begins of the alert {alert}, expected {LEAST} at the least")));
        }
        Ok(format!("{} records of the alert {alert}, {begins} of which are begins", records.len()))
    }

    /// The alert is run a moment after the last events are committed, and what it finds is in the catalog before its
    /// records are in the topic.
    async fn until_open(&self, site: &Site, catalog: &Catalog) -> Result<()> {
        let expected: BTreeSet<&String> =
            self.counts.iter().filter(|(_, count)| (self.condition)(**count)).map(|(device, _)| device).collect();
        let began = Instant::now();
        loop {
            let open = catalog.open_alerts(Some(self.alert), None, 10_000).await?;
            let keys = open.iter().map(|open| Ok(serde_json::from_str::<Value>(&open.keys)?["device_id"].to_string()));
            let keys: BTreeSet<String> = keys.collect::<Result<_>>()?;
            let progress = catalog.alert_progress().await?;
            let is_put_out = progress.iter().all(|progress| progress.published == progress.next_seq);
            if is_put_out && keys.iter().collect::<BTreeSet<_>>() == expected {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let log = site.project.log_of("speed");
                return Err(Error::corrupt(format!("{} is open of {keys:?}, expected {expected:?}, of {progress:?}\n{log}", self.alert)));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What was committed, with consecutive numbers.
    async fn transitions(&self, catalog: &Catalog) -> Result<Vec<AlertTransition>> {
        let mut all: Vec<AlertTransition> = Vec::new();
        loop {
            let next = all.len() as i64;
            let page = catalog.alert_transitions(self.alert, VERSION, next, 1_000).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
            if let Some(wrong) = all.iter().zip(0..).find(|(transition, seq)| transition.seq != *seq) {
                return Err(Error::corrupt(format!("found the transition {}, expected {}", wrong.0.seq, wrong.1)));
            }
        }
    }

    /// The records of the topic; those of a device are in one partition.
    async fn records(&self, site: &Site, log: &dyn Log) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for (source, record) in records_of(log, &site.topic_put_out(self.alert)).await? {
            if alert_of(&record.headers) != Some((self.alert, VERSION)) {
                return Err(Error::corrupt("a record does not name its alert").with("partition", &source).with("offset", record.offset));
            }
            found.push(serde_json::from_slice(record.value.as_deref().unwrap_or_default())?);
        }
        Ok(found)
    }

    /// Begins and ends of one device take turns, each with a greater count than the one before it, for which the
    /// condition says the same.
    fn passed(&self, records: &[&Value], total: u64) -> Result<()> {
        let mut open: Option<&Value> = None;
        let mut last = 0;
        for record in records {
            let count = record[self.column].as_u64().unwrap_or(0);
            let is_right = match (open, record["_state"].as_str()) {
                (None, Some("began")) => (self.condition)(count),
                (Some(began), Some("resolved")) => !(self.condition)(count) && began["_id"] == record["_id"],
                _ => false,
            };
            if !is_right || count <= last || count > total {
                return Err(Error::corrupt(format!("{record} came after {open:?} at a count of {last}; in the end it is {total}")));
            }
            last = count;
            open = if open.is_none() { Some(record) } else { None };
        }
        Ok(())
    }
}

/// By alert id and state, each committed transition has one record, and each record a transition. No two begins have
/// the same id.
fn put_out_once(transitions: &[AlertTransition], records: &[Value]) -> Result<()> {
    let mut found: HashMap<(&str, &str), usize> = HashMap::new();
    for record in records {
        *found.entry((record["_id"].as_str().unwrap_or_default(), record["_state"].as_str().unwrap_or_default())).or_default() += 1;
    }
    for transition in transitions {
        match found.remove(&(transition.id.as_str(), transition.kind.word())) {
            Some(1) => {}
            count => {
                let what = format!("{} of {} has {} records, expected one", transition.kind.word(), transition.id, count.unwrap_or(0));
                return Err(Error::corrupt(what));
            }
        }
    }
    match found.keys().next() {
        Some(unknown) => Err(Error::corrupt(format!("a record of {unknown:?} was never committed"))),
        None => Ok(()),
    }
}
