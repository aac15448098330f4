//! The handover, shown for one device: the answer stays the same while the cut moves.

use types::Result;

use super::ask::{Client, text, whole};
use super::checks::Check;
use super::show::{table, thousands};

/// One device's answer and the parts it is merged from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerParts {
    /// Payments in the view's answer, including declined ones.
    pub payments: i64,
    pub amount: String,
    /// Events in the snapshot's states, and in those after its cut.
    pub batch: i64,
    pub speed: i64,
}

impl AnswerParts {
    /// Queries the view, then the states of both of its parts.
    pub async fn read(client: &Client, device: &str) -> Result<AnswerParts> {
        let row = client.row("device_velocity", "device_id", device).await?;
        Ok(AnswerParts {
            payments: row.get("txns_90d").map_or(0, whole),
            amount: text(row.get("amount_90d")),
            batch: events(client, "device_velocity__batch", device).await?,
            speed: events(client, "device_velocity__speed", device).await?,
        })
    }

    fn cells(&self, when: &str) -> Vec<String> {
        vec![
            when.to_owned(),
            thousands(self.payments),
            self.amount.clone(),
            thousands(self.batch),
            thousands(self.speed),
            thousands(self.batch + self.speed),
        ]
    }
}

/// Returns the events of one key: the coarsest kept level has all of them, the finer ones repeat the newest.
async fn events(client: &Client, states: &str, device: &str) -> Result<i64> {
    let by_level = format!("SELECT level, sum(events) AS n FROM {states} WHERE device_id = '{device}' GROUP BY level");
    client.number(&format!("SELECT max(n) FROM ({by_level})")).await
}

/// Formats the answers before and after the cut moved as a table.
pub fn compared(before: &AnswerParts, after: &AnswerParts) -> String {
    let header = ["", "payments", "amount", "batch part", "speed part", "sum of events"];
    table(&header, vec![before.cells("before"), after.cells("after")])
}

/// Checks that both answers are the same although their parts differ.
pub fn check(device: &str, before: &AnswerParts, after: &AnswerParts) -> Check {
    let same = before.payments == after.payments && before.amount == after.amount;
    let sums = [before, after].iter().all(|parts| parts.batch + parts.speed == parts.payments);
    Check::new(same && sums, format!("handover: {device} has the same answer on both cuts, and batch + speed are all of its events"))
}
