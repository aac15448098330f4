//! Checks an ingest: every record is committed and accounted for, and the view counts every payment once.

use jobs::ledger;
use types::vector::Vector;
use types::{Error, Result};

use crate::Programs;
use crate::payments::{Project, Topic, VIEW};

pub(crate) async fn check(programs: &Programs, project: &Project, topic: &Topic, aggregates: usize) -> Result<()> {
    let truth = topic.payments.truth();
    let installation = project.open().await?;
    let state = installation.catalog.state().await?;
    let committed: u64 = state.vector().iter().map(|(_, offset)| offset.0 as u64).sum();
    same("records are committed", committed, topic.payments.records)?;
    let lines = ledger::partitions(&installation.storage, &state, &Vector::new()).await?;
    if let Some(wrong) = lines.iter().find(|line| !line.is_balanced()) {
        return Err(Error::internal("the ledger does not balance").with("line", format!("{wrong:?}")));
    }
    let (archived, duplicate) = lines.iter().fold((0, 0), |sums, line| (sums.0 + line.archived, sums.1 + line.duplicate));
    same("events are archived", archived, truth.events)?;
    same("duplicates are known", duplicate, truth.duplicates)?;
    installation.close().await;
    let amount = if aggregates > 1 { ", sum(amount_1h) AS amount" } else { "" };
    let row = project.query(programs, &format!("SELECT sum(events_1h) AS events{amount} FROM {VIEW}"))?;
    same("events are counted by the view", text(&row["events"]), truth.events)?;
    if aggregates > 1 {
        same("is the view's sum", text(&row["amount"]), amount_text(truth.cents))?;
    }
    Ok(())
}

pub(super) fn amount_text(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn same(what: &str, found: impl ToString, expected: impl ToString) -> Result<()> {
    let (found, expected) = (found.to_string(), expected.to_string());
    if found == expected {
        return Ok(());
    }
    Err(Error::internal(format!("ingest gave a wrong answer: {what}")).with("found", found).with("expected", expected))
}
