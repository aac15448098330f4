//! Computes what a shorter `log.retention` would free in the embedded log: what trimming would then delete.

use std::time::Duration;

use catalog::CatalogState;
use definitions::durations::format_duration_parts;
use serde::Serialize;
use types::Result;

use crate::trim::Trimming;

/// The retentions whose effect is shown, in hours.
const RETENTIONS_HOURS: [u64; 4] = [1, 6, 24, 7 * 24];

/// What a shorter `log.retention` would free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogWouldFree {
    pub retention: String,
    pub records: u64,
    /// As if all records of the log were of one size.
    pub bytes: u64,
}

/// Returns what retentions shorter than `actual`'s would free now.
pub(super) async fn log_would_free(actual: &Trimming, state: &CatalogState) -> Result<Vec<LogWouldFree>> {
    let size = actual.log.size().await?;
    let mut freed = Vec::new();
    for retention in RETENTIONS_HOURS.map(Duration::from_hours).into_iter().filter(|retention| *retention < actual.retention) {
        let records = actual.with_retention(retention).would_trim(state).await?;
        freed.push(LogWouldFree { retention: format_duration_parts(retention), records, bytes: share(size.bytes, records, size.records) });
    }
    Ok(freed)
}

fn share(bytes: u64, records: u64, all: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(records.min(all)) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
