//! Turns events, with the rows that they see, into scored rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use types::Result;
use types::columns::EVENT_TIME;

use super::chosen::Chosen;
use super::late::LateEvents;
use super::plans::{PlannedSink, ScoringPlans};
use super::scored::ScoredRecords;
use super::{Backtested, OnRows};
use crate::history::micros;

/// Scores events in their order, each once.
pub(super) struct Scoring<'a> {
    plans: &'a ScoringPlans<'a>,
    position: String,
    late: LateEvents,
    on_rows: &'a mut OnRows<'a>,
    /// How many events are scored.
    pub(super) events: u64,
    /// How many of them have a row.
    rows: u64,
}

impl<'a> Scoring<'a> {
    pub(super) fn new(plans: &'a ScoringPlans<'a>, position: String, on_rows: &'a mut OnRows<'a>) -> Scoring<'a> {
        let late = LateEvents::new(plans.joins().map(|(_, join)| join));
        Scoring { plans, position, late, on_rows, events: 0, rows: 0 }
    }

    /// `rows` has a batch for each of [`ScoringPlans::joins`], with a row for each event.
    pub(super) fn score(&mut self, chosen: &Chosen, rows: &[RecordBatch]) -> Result<()> {
        let (of_live, of_changed) = rows.split_at(self.plans.live.plan.joins.len());
        let live = self.records(&self.plans.live, chosen, of_live)?;
        let changed = self.plans.changed.as_ref().map(|changed| self.records(changed, chosen, of_changed)).transpose()?;
        let has_row = |event: &u32| live.is_of(*event) || changed.as_ref().is_some_and(|changed| changed.is_of(*event));
        let with_row: Vec<u32> = (0..chosen.count() as u32).filter(has_row).collect();
        let own_times = micros(&chosen.events, EVENT_TIME)?;
        for event in &with_row {
            self.late.add(own_times[*event as usize], chosen.times[*event as usize]);
        }
        if !with_row.is_empty() {
            (self.on_rows)(&self.plans.rows(&chosen.events, &with_row, &live, changed.as_ref())?)?;
        }
        self.rows += with_row.len() as u64;
        self.events += chosen.count() as u64;
        Ok(())
    }

    fn records(&self, planned: &PlannedSink<'_>, chosen: &Chosen, rows: &[RecordBatch]) -> Result<ScoredRecords> {
        let as_of: ArrayRef = Arc::new(TimestampMicrosecondArray::from(chosen.times.clone()).with_timezone("UTC"));
        Ok(ScoredRecords::new(planned.plan.records(&chosen.events, rows, &self.position, &as_of)?, chosen.count()))
    }

    pub(super) fn finish(self) -> Backtested {
        Backtested { rows: self.rows, received_late: self.late.counted() }
    }
}
