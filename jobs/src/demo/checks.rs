//! The demo's checks: while the traffic is paused, everything that was sent is compared with everything that is
//! answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{CatalogState, DefinitionStatus};
use committed::registry::Registry;
use event_log::Log;
use types::vector::{PartitionId, Vector};
use types::{Error, Result};

use super::ask::{Client, JsonRow, cents, text, whole};
use super::show::{thousands, thousands_of};
use super::traffic::{Ring, Shared, Traffic, TrafficStream, Truth};
use crate::installation::{Installation, now};
use crate::ledger::{self, PartitionLine};
use crate::output::count_of;
use crate::verify::{HttpServed, Verifier, verify_log, verify_view};

/// How long the speed layer may take to checkpoint what was sent.
const SETTLE: Duration = Duration::from_secs(60);

/// Devices ordered by how many others they are linked with.
pub const LINKS: &str = "SELECT * FROM device_links ORDER BY linked_devices_30d DESC, device_id";

/// The result of one comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub passed: bool,
    pub what: String,
}

impl Check {
    /// Creates the result of a check.
    pub fn new(passed: bool, what: impl Into<String>) -> Check {
        Check { passed, what: what.into() }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}  {}", if self.passed { "PASS" } else { "FAIL" }, self.what)
    }
}

/// Waits until every record that the log has at this moment is checkpointed, even if more is sent meanwhile.
pub async fn wait_until_checkpointed(installation: &Installation) -> Result<Arc<CatalogState>> {
    let began = Instant::now();
    let sent = log_end(&*installation.log).await?;
    loop {
        let state = installation.catalog.state().await?;
        let Some(behind) = state.vector().behind(&sent) else { return Ok(state) };
        if began.elapsed() > SETTLE {
            let error = Error::unavailable("the speed layer did not checkpoint all that was sent").with("partition", behind.partition);
            return Err(error.with("found", behind.found).with("expected", behind.expected));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the vector after the log's last records.
async fn log_end(log: &dyn Log) -> Result<Vector> {
    let mut end = Vector::new();
    for stream in TrafficStream::ALL {
        for bounds in log.bounds(stream.name()).await? {
            end.set(PartitionId::new(stream.name(), bounds.partition), bounds.end);
        }
    }
    Ok(end)
}

/// Compares each stream's records in the files with what the generator knows it sent.
pub fn check_ledger(lines: &[PartitionLine], truth: &Truth) -> Vec<Check> {
    let unbalanced: Vec<&PartitionLine> = lines.iter().filter(|line| line.mismatch.is_some()).collect();
    let why = unbalanced.first().and_then(|line| line.mismatch.clone()).map(|why| format!(": {why}")).unwrap_or_default();
    let balanced = format!("ledger: {} of {} lines (checkpoint x partition) balance{why}", lines.len() - unbalanced.len(), lines.len());
    let mut checks = vec![Check::new(unbalanced.is_empty(), balanced)];
    for stream in TrafficStream::ALL {
        let [archived, duplicates, dead] = sums(lines, stream);
        let known = truth.stream(stream);
        let found = format!(
            "{}: {} sent = {} archived + {} + {}",
            stream.name(),
            thousands(known.records()),
            thousands(archived),
            thousands_of(duplicates, "duplicate"),
            thousands_of(dead, "dead letter")
        );
        checks.push(Check::new([archived, duplicates, dead] == [known.accepted, known.duplicates, known.dead_letters()], found));
    }
    checks
}

/// Returns the archived, duplicate and dead-lettered records of a stream.
pub fn sums(lines: &[PartitionLine], stream: TrafficStream) -> [i64; 3] {
    let of_stream = || lines.iter().filter(|line| &*line.stream == stream.name());
    [of_stream().map(|l| l.archived).sum(), of_stream().map(|l| l.duplicate).sum(), of_stream().map(|l| l.dead_lettered).sum()]
}

/// Compares every device's payments and their sum, to the cent.
pub async fn check_devices(client: &Client, truth: &Truth) -> Result<Check> {
    let rows = client.sql("SELECT device_id, ok_ever, ok_amount_ever FROM device_velocity").await?;
    let served: BTreeMap<String, (i64, i64)> = rows
        .iter()
        .map(|row| (text(row.get("device_id")), (row.get("ok_ever").map_or(0, whole), cents(row.get("ok_amount_ever")))))
        .collect();
    let known: BTreeMap<String, (i64, i64)> =
        truth.devices.iter().filter(|(_, d)| d.payments > 0).map(|(device, d)| (device.clone(), (d.ok_payments, d.ok_cents))).collect();
    let wrong = known.iter().find(|(device, answer)| served.get(*device) != Some(answer));
    let total: i64 = known.values().map(|(_, cents)| cents).sum();
    let what = format!(
        "{} devices: payments and sums equal those of the generator, {}.{:02} in all",
        thousands(known.len() as i64),
        thousands(total / 100),
        total % 100
    );
    Ok(match wrong {
        Some((device, answer)) => {
            Check::new(false, format!("{what}; {device} is {:?}, expected {answer:?} (payments, cents)", served.get(device)))
        }
        None => Check::new(served.len() == known.len(), what),
    })
}

/// Checks that the rings are found by what their accounts share.
pub async fn check_rings(client: &Client, traffic: &Traffic) -> Result<Check> {
    let mut found = 0;
    for ring in traffic.rings() {
        let (accounts, expected) = match &ring.shares {
            Shared::Device(device) => {
                let row = client.row("ring_candidates", "device_id", device).await?;
                (
                    row.get("accounts_30d").map_or(0, whole),
                    traffic.truth().devices.get(device).map_or(0, |known| known.accounts.len() as i64),
                )
            }
            Shared::Ip(ip) => {
                let row = client.row("ip_reputation", "ip", ip).await?;
                (row.get("users_30d").map_or(0, whole), traffic.truth().ips.get(ip).map_or(0, |users| users.len() as i64))
            }
        };
        found += usize::from(accounts == expected);
    }
    let rings = traffic.rings().len();
    Ok(Check::new(found == rings, format!("{found} of {rings} rings: the accounts of each are those that the generator opened")))
}

/// Checks that the rings' devices are first in the query for the most links, each with the links that the generator
/// created.
pub async fn check_links(client: &Client, traffic: &Traffic) -> Result<Check> {
    let known: BTreeMap<&str, (i64, i64)> =
        traffic.rings().iter().filter_map(Ring::device).map(|device| (device, traffic.truth().links(device))).collect();
    let rows = client.sql(&format!("{LINKS} LIMIT {}", known.len())).await?;
    let number = |row: &JsonRow, column: &str| row.get(column).map_or(0, whole);
    let answer = |row: &JsonRow| (text(row.get("device_id")), (number(row, "users_30d"), number(row, "linked_devices_30d")));
    let served: BTreeMap<String, (i64, i64)> = rows.iter().map(answer).collect();
    let links: i64 = known.values().map(|(_, linked)| linked).sum();
    let what =
        format!("{} rings that share a device come first among the most linked devices, with all of their {links} links", known.len());
    let wrong = known.iter().find(|(device, answer)| served.get(**device) != Some(answer));
    Ok(match wrong {
        Some((device, answer)) => {
            Check::new(false, format!("{what}; {device} is {:?}, expected {answer:?} (users, linked devices)", served.get(*device)))
        }
        None => Check::new(served.len() == known.len(), what),
    })
}

/// Compares every view with plain SQL over the archive, and its events with the archive's.
pub async fn check_views(installation: &Installation, url: &str) -> Result<Vec<Check>> {
    let verifier = verifier(installation);
    let served = HttpServed::new(url, None)?;
    let state = installation.catalog.state().await?;
    let registry = Registry::load(&state, &installation.functions).await?;
    let mut checks = Vec::new();
    for view in registry.views.iter().filter(|view| view.status == DefinitionStatus::Active) {
        let report = verify_view(&verifier, &view.name, &served, now()).await?;
        let differences = report
            .differences
            .first()
            .map(|d| format!("; {} {}: {}, expected {}", d.key, d.column, d.served, d.expected))
            .unwrap_or_default();
        let what = format!(
            "{}: {} x {} against plain SQL over the archive, {}{differences}",
            report.view,
            thousands_of(report.rows as i64, "row"),
            count_of(report.columns, "column"),
            count_of(report.difference_count, "difference")
        );
        checks.push(Check::new(report.is_equal(), what));
        let line = ledger::view(&verifier, &state, view, now()).await?;
        let what = format!(
            "{}: {} archived = {} filtered + {} expired + {} failed + {} in its states",
            line.view,
            thousands(line.archived),
            thousands(line.filtered),
            thousands(line.expired),
            thousands(line.failed),
            thousands(line.events)
        );
        checks.push(Check::new(line.balanced, what));
    }
    Ok(checks)
}

/// Compares the log's records with archive and dead letters, byte for byte.
pub async fn check_log(installation: &Installation) -> Result<Check> {
    let (mut records, mut wrong) = (0, Vec::new());
    for report in verify_log(&verifier(installation), &*installation.log, &[], now()).await? {
        records += report.records;
        if !report.is_equal() {
            wrong.push(format!("{}/{}", report.stream, report.partition));
        }
    }
    let what = format!("log: {} records, each archived or dead-lettered as it was sent, or a duplicate", thousands(records as i64));
    Ok(Check::new(wrong.is_empty(), if wrong.is_empty() { what } else { format!("{what}; except in {}", wrong.join(", ")) }))
}

fn verifier(installation: &Installation) -> Verifier {
    Verifier {
        catalog: installation.catalog.clone(),
        storage: installation.storage.clone(),
        functions: installation.functions.clone(),
        memory_limit: usize::try_from(installation.settings.batch.memory_limit).unwrap_or(usize::MAX),
        temp_dir: installation.settings.batch.temp_dir.clone(),
    }
}
