//! The records that a sink makes of scored events, event by event.

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::DataType;
use engine::sinks::OutputRecords;
use types::{Error, Result};

use super::NO_VERDICT;

/// The records that a sink makes of some events. An event for which WHERE does not hold has none.
pub(super) struct ScoredRecords {
    records: OutputRecords,
    /// The row of each event.
    rows: Vec<Option<u32>>,
    /// For each event, why the SELECT failed on it.
    errors: Vec<Option<String>>,
}

impl ScoredRecords {
    pub(super) fn new(records: OutputRecords, events: usize) -> ScoredRecords {
        let (mut rows, mut errors) = (vec![None; events], vec![None; events]);
        for (row, event) in records.events.iter().enumerate() {
            rows[*event as usize] = Some(row as u32);
        }
        for failed in &records.failed {
            errors[failed.event as usize] = Some(failed.reason.clone());
        }
        ScoredRecords { records, rows, errors }
    }

    /// Whether the event has a record or an error.
    pub(super) fn is_of(&self, event: u32) -> bool {
        self.rows[event as usize].is_some() || self.errors[event as usize].is_some()
    }

    /// The columns of the records of these events, NULL where there is none.
    pub(super) fn columns(&self, events: &[u32]) -> Result<Vec<ArrayRef>> {
        self.records.rows.columns().iter().map(|column| self.values_of_events(column, events)).collect()
    }

    pub(super) fn errors(&self, events: &[u32]) -> StringArray {
        events.iter().map(|event| self.errors[*event as usize].as_deref()).collect()
    }

    /// A column as text, or the word that replaces a verdict.
    pub(super) fn verdicts(&self, events: &[u32], column: &str) -> Result<StringArray> {
        let column = self.records.rows.column_by_name(column).ok_or_else(|| Error::internal("a sink lacks its verdict"))?;
        let texts = self.values_of_events(&cast(column, &DataType::Utf8)?, events)?;
        let texts = texts.as_string::<i32>();
        let verdict = |(row, event): (usize, &u32)| match (self.rows[*event as usize], &self.errors[*event as usize]) {
            (Some(_), _) if texts.is_valid(row) => texts.value(row),
            (Some(_), _) => "(null)",
            (None, Some(_)) => "(error)",
            (None, None) => NO_VERDICT,
        };
        Ok(events.iter().enumerate().map(|found| Some(verdict(found))).collect())
    }

    fn values_of_events(&self, column: &ArrayRef, events: &[u32]) -> Result<ArrayRef> {
        let rows: UInt32Array = events.iter().map(|event| self.rows[*event as usize]).collect();
        Ok(take(column, &rows, None)?)
    }
}
