//! Makes the transitions that are committed and put out when a key begins, repeats or ceases.

use std::collections::HashMap;

use catalog::{AlertTransition, AlertVersion};
use committed::registry::LiveView;
use engine::alerts::{FailedRow, Transition};
use tracing::warn;
use types::Result;

use super::{EncodedKey, Evaluation, TimedRows};
use crate::record::{id, is_put_out, json, keys_json, record_key};

impl Evaluation {
    /// The transitions of the keys of these rows, with the records that are put out.
    pub(super) fn transitions(
        &self,
        view: &LiveView,
        timed: &TimedRows,
        happened: Vec<(u32, Transition<EncodedKey>)>,
    ) -> Result<Vec<AlertTransition>> {
        let rows: Vec<u32> = happened.iter().map(|(row, _)| *row).collect();
        let records = self.plan.records(&timed.watched.rows, &timed.times, &rows)?;
        self.note_failures(&records.failed);
        let place: HashMap<u32, usize> = records.rows.iter().enumerate().map(|(place, row)| (*row, place)).collect();
        let failed: HashMap<u32, &str> = records.failed.iter().map(|failed| (failed.row, &*failed.reason)).collect();
        let keys: Vec<EncodedKey> = happened.iter().map(|(_, transition)| transition.key.clone()).collect();
        let mut transitions = Vec::with_capacity(happened.len());
        for ((row, happened), keys) in happened.into_iter().zip(keys_json(view, &keys)?) {
            let AlertVersion { name: alert, version } = self.alert.clone();
            let mut transition = AlertTransition {
                id: id((&alert, version), &keys, happened.since),
                alert,
                version,
                seq: 0,
                kind: happened.kind,
                record_key: Some(record_key(&keys)?),
                keys,
                since: happened.since,
                at: happened.at,
                record: None,
            };
            if is_put_out(happened.kind, self.resolve) {
                let columns = match place.get(&row) {
                    Some(place) => Ok((&records.columns, *place)),
                    None => Err(failed.get(&row).copied().unwrap_or_default()),
                };
                transition.record = Some(json(&transition, columns, &self.plan.parameters)?);
            }
            transitions.push(transition);
        }
        Ok(transitions)
    }

    pub(super) fn note_failures(&self, failed: &[FailedRow]) {
        let Some(first) = failed.first() else { return };
        warn!(alert = %self.alert.name, rows = failed.len(), reason = first.reason, "an alert fails on rows");
        let alert = self.alert.name.to_string();
        metrics::counter!("basestream_speed_alert_failed_rows_total", "alert" => alert).increment(failed.len() as u64);
    }
}
