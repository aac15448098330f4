//! What the demo shows: queries to the node, and their answers as text.

use std::path::Path;

use catalog::{CatalogState, RunStatus};
use types::Result;
use types::files::FileKind;

use super::ask::{Client, JsonRow, text};
use super::checks::{LINKS, sums};
use super::dead::DeadLetterReason;
use super::show::{boxes, table, thousands, thousands_of};
use super::traffic::TrafficStream;
use crate::ledger::PartitionLine;
use crate::output::count_of;

/// Draws the path of the data.
pub fn way(state: &CatalogState, in_log: i64, devices: i64) -> String {
    let rows = |kind: FileKind| state.files.iter().filter(|file| file.kind == kind).map(|file| file.rows).sum::<i64>();
    let decided: i64 = state.vector().iter().map(|(_, offset)| offset.0).sum();
    let runs = state.runs.iter().filter(|run| run.status == RunStatus::Succeeded).count() as i64;
    let checkpoints = state.checkpoints.len() as i64;
    boxes(&[
        ("log", vec![thousands_of(in_log, "record"), count_of(state.partitions.len(), "partition")]),
        ("speed", vec![format!("{} decided", thousands(decided)), thousands_of(rows(FileKind::DeadLetters), "dead letter")]),
        ("archive", vec![thousands_of(rows(FileKind::Archive), "event"), thousands_of(checkpoints, "checkpoint")]),
        ("batch", vec![count_of(runs, "run"), count_of(state.snapshots.len(), "snapshot")]),
        ("serving", vec![thousands_of(devices, "device") + ",", "by key or SQL".into()]),
    ])
}

/// Shows devices with many accounts: two views in one query, both from the same read view.
pub async fn devices(client: &Client) -> Result<String> {
    let columns = ["device_id", "accounts_30d", "addresses_30d", "txns_90d", "declined_90d", "amount_90d"];
    let query = "SELECT r.device_id, r.accounts_30d, r.addresses_30d, v.txns_90d, v.declined_90d, v.amount_90d \
         FROM ring_candidates r LEFT JOIN device_velocity v ON r.device_id = v.device_id \
         WHERE r.accounts_30d >= 10 ORDER BY r.accounts_30d DESC, r.device_id LIMIT 8";
    rows(client, query, &columns).await
}

/// Shows addresses with many users.
pub async fn addresses(client: &Client) -> Result<String> {
    let query = "SELECT ip, users_30d, devices_30d, logins_30d FROM ip_reputation WHERE users_30d >= 8 ORDER BY users_30d DESC, ip LIMIT 4";
    rows(client, query, &["ip", "users_30d", "devices_30d", "logins_30d"]).await
}

/// Shows the devices with the most links, among them those of the rings.
pub async fn links(client: &Client) -> Result<String> {
    rows(
        client,
        &format!("{LINKS} LIMIT 8"),
        &["device_id", "users_30d", "linked_devices_7d", "linked_devices_30d", "linked_to_old_accounts"],
    )
    .await
}

/// Shows the newest links of one device.
pub async fn paths(client: &Client, device: &str) -> Result<String> {
    let columns = ["via_user_id", "far_device_id", "near_at", "far_at"];
    let paths = client.paths("device_links", "device_id", device, 5).await?;
    let cells = |row: &JsonRow| columns.iter().map(|column| text(row.get(*column))).collect();
    Ok(table(&["user", "logs in from", "account opened", "logged in"], paths.iter().map(cells).collect()))
}

async fn rows(client: &Client, query: &str, columns: &[&str]) -> Result<String> {
    let rows = client.sql(query).await?;
    Ok(table(columns, rows.iter().map(|row| columns.iter().map(|column| text(row.get(*column))).collect()).collect()))
}

/// Shows one device's row, with a column per window.
pub async fn device(client: &Client, device: &str) -> Result<String> {
    let row = client.row("device_velocity", "device_id", device).await?;
    let windowed = ["txns", "amount", "declined", "users"].map(|column| {
        let values = ["1h", "7d", "90d"].map(|window| text(row.get(&format!("{column}_{window}"))));
        [column.to_owned()].into_iter().chain(values).collect::<Vec<String>>()
    });
    let single = ["txns_before", "ok_ever", "ok_amount_ever", "last_seen"].map(|column| format!("{column} {}", text(row.get(column))));
    let chance =
        row.get("decline_chance").and_then(serde_json::Value::as_f64).map_or_else(|| "-".to_owned(), |chance| format!("{chance:.1e}"));
    let said =
        format!("decline_chance {chance}: the probability of this many declines in the last hour, given how often it was declined before");
    Ok(format!("{}\n{}\n{said}\n", table(&["", "1h", "7d", "90d"], windowed.to_vec()), single.join("   ")))
}

/// Formats a line per stream.
pub fn ledger(lines: &[PartitionLine]) -> String {
    let row = |stream: TrafficStream| {
        let of_stream: Vec<&PartitionLine> = lines.iter().filter(|line| &*line.stream == stream.name()).collect();
        let records: i64 = of_stream.iter().map(|line| line.end.0 - line.start.0).sum();
        let [archived, duplicates, dead] = sums(lines, stream);
        let absent: i64 = of_stream.iter().map(|line| line.absent).sum();
        let balanced = of_stream.iter().filter(|line| line.mismatch.is_none()).count();
        let numbers = [records, archived, duplicates, dead, absent].map(thousands);
        [stream.name().to_owned()].into_iter().chain(numbers).chain([format!("{balanced} of {}", of_stream.len())]).collect()
    };
    let header = ["stream", "end - start", "= archived", "+ duplicate", "+ dead-lettered", "+ absent", "lines balanced"];
    table(&header, TrafficStream::ALL.map(row).to_vec())
}

/// Formats a line per reason.
pub fn dead_letters(reasons: &[DeadLetterReason]) -> String {
    let row = |reason: &DeadLetterReason| vec![thousands(reason.count), reason.stream.clone(), shortened(&reason.reason, 66)];
    table(&["count", "stream", "reason (an example)"], reasons.iter().take(8).map(row).collect())
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the options that select this demo's project on a command line.
pub fn config(folder: &Path) -> String {
    format!("--config {}", folder.join(definitions::settings::FILE_NAME).display())
}

/// Returns commands with this demo's own addresses, and a device that exists.
pub fn what_next(url: &str, folder: &Path, device: &str) -> String {
    let config = config(folder);
    format!(
        "a page       {url}/\n\
         by key       curl '{url}/v1/views/device_velocity/row?device_id={device}'\n\
         SQL          curl {url}/v1/sql -H 'content-type: application/json' -d '{{\"query\": \"SELECT * FROM ring_candidates ORDER BY accounts_30d DESC LIMIT 3\"}}'\n\
         links        curl '{url}/v1/views/device_links/row?device_id={device}&_paths=20'     (which users link it to which devices)\n\
         both parts   curl {url}/v1/sql -H 'content-type: application/json' -d '{{\"query\": \"SELECT level, sum(events) FROM user_profile__speed GROUP BY level\"}}'\n\
         a batch run  basestream batch run user_profile {config}\n\
         the proof    basestream verify device_velocity --url {url} {config}\n\
         definitions  {}",
        folder.display()
    )
}
