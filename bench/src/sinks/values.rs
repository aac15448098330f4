//! Checks what records say of their accounts: every value is computed once more by a loop over the payments.

use std::collections::HashMap;

use event_log::TopicPartition;
use serde_json::Value;
use types::{Error, Result};

use crate::payments::{Payment, Payments, Topic, is_repeat};

const AT_ONCE: usize = 20_000;

/// Over which payments of an account its counts and sums are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregated {
    /// Those up to this one in its partition, without repeats.
    Accepted,
    /// All up to this one in its partition, and those that Flink received in the same millisecond: its windows of
    /// processing time.
    Arrived,
    /// All up to the time of this one, in whole milliseconds: Flink's windows of event time.
    Dated,
}

/// The columns of an account's count and sum.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueColumns {
    pub(super) events: &'static str,
    pub(super) amount: &'static str,
}

/// What a record says of a payment: its number, and the count and the sum of its account.
struct PaymentSaid {
    number: u64,
    events: u64,
    cents: u64,
}

/// What the records have to say, without those that were found.
struct ExpectedValues {
    payments: Payments,
    aggregated: Aggregated,
    /// The counts of each payment's records, by its number; a repeat has its original's.
    counts: HashMap<u64, Vec<u64>>,
    /// The sum in cents of an account's first payments: of one, of two, and so on.
    sums: HashMap<u64, Vec<u64>>,
}

/// Errors unless each payment has one record, with the count and the sum of its account.
pub(super) async fn check(records: &Topic, payments: Payments, aggregated: Aggregated, columns: ValueColumns) -> Result<()> {
    let mut expected = ExpectedValues::new(payments, aggregated);
    let log = records.open().await?;
    for bounds in log.bounds(&records.name).await? {
        let source = TopicPartition { topic: records.name.as_str().into(), partition: bounds.partition };
        let (mut position, mut at_end) = (bounds.begin, bounds.begin >= bounds.end);
        while !at_end {
            let fetched = log.read(&source, position, AT_ONCE).await?;
            for record in &fetched.records {
                expected.take(record.value.as_deref().unwrap_or_default(), columns)?;
            }
            (position, at_end) = (fetched.position, fetched.at_end);
        }
    }
    match expected.counts.values().map(Vec::len).sum::<usize>() {
        0 => Ok(()),
        missing => Err(Error::internal("records are missing").with("number", missing)),
    }
}

impl ExpectedValues {
    fn new(payments: Payments, aggregated: Aggregated) -> ExpectedValues {
        let ordered = |record: u64| {
            let payment = payments.payment(record);
            let order = match aggregated {
                Aggregated::Dated => payment.time().div_euclid(1_000),
                Aggregated::Accepted | Aggregated::Arrived => record as i64,
            };
            (payment.account, order, payment)
        };
        let counted = (0..payments.records).filter(|record| aggregated != Aggregated::Accepted || !is_repeat(*record));
        let mut all: Vec<(u64, i64, Payment)> = counted.map(ordered).collect();
        all.sort_by_key(|(account, order, _)| (*account, *order));
        let (mut counts, mut sums) = (HashMap::<u64, Vec<u64>>::with_capacity(all.len()), HashMap::<u64, Vec<u64>>::new());
        for together in all.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
            let sums = sums.entry(together[0].0).or_default();
            for (.., payment) in together {
                sums.push(sums.last().copied().unwrap_or_default() + payment.cents());
            }
            for (.., payment) in together {
                counts.entry(payment.number).or_default().push(sums.len() as u64);
            }
        }
        ExpectedValues { payments, aggregated, counts, sums }
    }

    fn take(&mut self, value: &[u8], columns: ValueColumns) -> Result<()> {
        let wrong = || Error::internal("a record is not what the payments say").with("record", String::from_utf8_lossy(value));
        let said = PaymentSaid::read(&serde_json::from_slice(value).unwrap_or_default(), columns).ok_or_else(wrong)?;
        let counts = self.counts.get_mut(&said.number).ok_or_else(wrong)?;
        let aggregated = self.aggregated;
        let is_count = |count: &u64| match aggregated {
            Aggregated::Arrived => *count <= said.events,
            Aggregated::Accepted | Aggregated::Dated => *count == said.events,
        };
        let found = counts.iter().rposition(is_count).ok_or_else(wrong)?;
        counts.remove(found);
        let sums = self.sums.get(&self.payments.payment(said.number).account).ok_or_else(wrong)?;
        match sums.get(said.events as usize - 1) {
            Some(cents) if *cents == said.cents => Ok(()),
            _ => Err(wrong()),
        }
    }
}

impl PaymentSaid {
    /// An event's id ends with the number of its payment.
    fn read(record: &Value, columns: ValueColumns) -> Option<PaymentSaid> {
        let (_, number) = record["event_id"].as_str()?.rsplit_once('-')?;
        let amount = &record[columns.amount];
        let amount: f64 = amount.as_f64().or_else(|| amount.as_str()?.parse().ok())?;
        let events = record[columns.events].as_u64()?;
        Some(PaymentSaid { number: u64::from_str_radix(number, 16).ok()?, events, cents: (amount * 100.0).round() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: ValueColumns = ValueColumns { events: "events", amount: "amount" };
    /// Number 499 is repeated at the end.
    const PAYMENTS: Payments = Payments { records: 1_000, accounts: 3 };

    fn counts_of_the_repeated(aggregated: Aggregated) -> Vec<u64> {
        ExpectedValues::new(PAYMENTS, aggregated).counts[&499].clone()
    }

    #[test]
    fn a_repeat_counts_where_nothing_is_dropped_and_beside_its_original_by_time() {
        let account = PAYMENTS.payment(499).account;
        let of_account = |until: u64| (0..until).filter(|record| PAYMENTS.payment(*record).account == account).count() as u64;
        assert_eq!(counts_of_the_repeated(Aggregated::Accepted), [of_account(500)]);
        assert_eq!(counts_of_the_repeated(Aggregated::Arrived), [of_account(500), of_account(1_000)]);
        // Twenty payments have the same millisecond, of which it is the last.
        assert_eq!(counts_of_the_repeated(Aggregated::Dated), [of_account(500) + 1, of_account(500) + 1]);
    }

    #[test]
    fn a_record_is_expected_once_with_the_values_of_its_account() {
        let payments = Payments { records: 3, accounts: 1 };
        let record = |number: u64, events: u64| {
            let cents: u64 = (0..events).map(|record| payments.payment(record).cents()).sum();
            format!(r#"{{"event_id":"7-{number:012x}","events":{events},"amount":"{}.{:02}"}}"#, cents / 100, cents % 100)
        };
        let mut exact = ExpectedValues::new(payments, Aggregated::Accepted);
        exact.take(record(1, 3).as_bytes(), COLUMNS).unwrap_err();
        exact.take(record(1, 2).replace("\"events\":2", "\"events\":1").as_bytes(), COLUMNS).unwrap_err();
        exact.take(record(1, 2).as_bytes(), COLUMNS).unwrap();
        exact.take(record(1, 2).as_bytes(), COLUMNS).unwrap_err();
        // The third came in the same millisecond; an earlier one cannot be missing.
        let mut arrived = ExpectedValues::new(payments, Aggregated::Arrived);
        arrived.take(record(1, 1).as_bytes(), COLUMNS).unwrap_err();
        arrived.take(record(1, 3).as_bytes(), COLUMNS).unwrap();
        arrived.take(record(2, 3).replace("amount\":\"", "amount\":\"1").as_bytes(), COLUMNS).unwrap_err();
    }
}
