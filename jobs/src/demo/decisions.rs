//! Shows and checks what the sink puts out: one record for each payment that is `ok`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use types::Result;

use super::ask::{cents, text};
use super::checks::Check;
use super::show::{table, thousands};
use super::traffic::Truth;
use crate::installation::Installation;
use crate::outputs::{OutputReader, live_sink};

/// The sink of `examples/payments`.
pub const SINK: &str = "scored_transactions";

/// The records of the sink, summed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    pub records: i64,
    pub cents: i64,
    /// The events that the records are of. Fewer than the records if an event was put out twice.
    pub events: BTreeSet<String>,
    pub by_decision: BTreeMap<String, DecisionTotal>,
}

/// The records with one decision, summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionTotal {
    pub records: i64,
    pub cents: i64,
}

impl Decisions {
    fn add(&mut self, record: &Value) {
        let cents = cents(record.get("amount"));
        let of_decision = self.by_decision.entry(text(record.get("decision"))).or_default();
        of_decision.records += 1;
        of_decision.cents += cents;
        self.records += 1;
        self.cents += cents;
        self.events.insert(text(record.get("event_id")));
    }

    /// Formats a line per decision.
    pub fn table(&self) -> String {
        let row = |(decision, DecisionTotal { records, cents }): (&String, &DecisionTotal)| {
            vec![decision.clone(), thousands(*records), format!("{}.{:02}", thousands(cents / 100), cents % 100)]
        };
        table(&["decision", "payments", "amount"], self.by_decision.iter().map(row).collect())
    }
}

/// Reads all records of the sink.
pub async fn read(installation: &Installation) -> Result<Decisions> {
    let sink = live_sink(&*installation.catalog.state().await?, SINK)?;
    let mut decisions = Decisions::default();
    let mut reader = OutputReader::of_sink(&*installation.log, &sink);
    reader
        .read(&mut |record| {
            decisions.add(&serde_json::from_slice(record.value.as_deref().unwrap_or_default())?);
            Ok(true)
        })
        .await?;
    Ok(decisions)
}

/// Compares the records of the sink with the payments that the generator knows to be accepted and `ok`.
pub async fn check(installation: &Installation, truth: &Truth) -> Result<Check> {
    let found = read(installation).await?;
    let payments: i64 = truth.devices.values().map(|device| device.ok_payments).sum();
    let cents: i64 = truth.devices.values().map(|device| device.ok_cents).sum();
    let passed = (found.records, found.cents, found.events.len() as i64) == (payments, cents, payments);
    let what = format!(
        "{SINK}: {} records of {} payments, {} payments expected, each once, with their sum",
        thousands(found.records),
        thousands(found.events.len() as i64),
        thousands(payments)
    );
    Ok(Check::new(passed, what))
}
