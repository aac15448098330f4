//! Generates a payment stream as JSON, and a view over it with any number of aggregates. A record is a function of its
//! number, so that every contender gets the same ones, and a loop computes the expected answer.

use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::NewRecord;
use types::tiles::Micros;

use crate::events::mix;
use crate::purchases::account_text;

mod arriving;
mod definitions;
mod project;
mod topic;

pub use arriving::Arriving;
pub use definitions::{Kept, MOST_AGGREGATES, STREAM, VIEW, stream_sql, view_sql};
pub use project::Project;
pub use topic::{PARTITIONS, Source, Topic};

/// 2026-02-01T00:00:00Z: the first event's time.
const FIRST: Micros = 1_769_904_000_000_000;
/// 20,000 events in a second of event time.
const APART: Micros = 50;
/// The last of each group of this many records repeats an earlier one, the second number of records before it.
const REPEAT_EVERY: u64 = 1_000;
const REPEATED: u64 = 500;
/// The capacity of the view's window: more events are refused.
pub const MOST_EVENTS: u64 = (3_600_000_000 / APART) as u64;

/// A number of records, over a number of equally likely accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payments {
    pub records: u64,
    pub accounts: u64,
}

/// The expected answer of a view over all records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truth {
    pub events: u64,
    pub duplicates: u64,
    pub cents: u64,
    /// For a contender that counts every record.
    pub cents_with_duplicates: u64,
}

/// One payment.
#[derive(Debug, Clone, Copy)]
pub struct Payment {
    pub number: u64,
    hash: u64,
    pub account: u64,
}

impl Payments {
    /// The payment in a record.
    pub fn payment(&self, record: u64) -> Payment {
        let number = if is_repeat(record) { record - REPEATED } else { record };
        let hash = mix(11, number);
        Payment { number, hash, account: mix(12, hash) % self.accounts.max(1) }
    }

    pub fn record(&self, record: u64) -> NewRecord {
        self.payment(record).record()
    }

    /// A payment that is in none of the records, of an account that has no other payment.
    pub fn probe(&self, nth: u64) -> Payment {
        let number = self.records + nth;
        Payment { number, hash: mix(11, number), account: self.accounts + nth }
    }

    pub fn truth(&self) -> Truth {
        let mut truth = Truth { events: 0, duplicates: 0, cents: 0, cents_with_duplicates: 0 };
        for record in 0..self.records {
            let cents = self.payment(record).cents();
            truth.cents_with_duplicates += cents;
            match is_repeat(record) {
                true => truth.duplicates += 1,
                false => {
                    truth.events += 1;
                    truth.cents += cents;
                }
            }
        }
        truth
    }
}

pub(crate) fn is_repeat(record: u64) -> bool {
    record % REPEAT_EVERY == REPEAT_EVERY - 1
}

impl Payment {
    pub fn record(&self) -> NewRecord {
        NewRecord { key: Some(self.account().into()), value: Some(self.json()), headers: Vec::new(), partition_by: None }
    }

    pub fn account(&self) -> String {
        account_text(self.account)
    }

    pub fn time(&self) -> Micros {
        FIRST + self.number as Micros * APART
    }

    pub fn cents(&self) -> u64 {
        100 + self.hash % 50_000
    }

    fn one_of<'a>(&self, salt: u64, of: &[&'a str]) -> &'a str {
        of[(mix(salt, self.hash) % of.len() as u64) as usize]
    }

    /// About 260 bytes, of which a view reads a few.
    pub fn json(&self) -> Bytes {
        const COUNTRIES: [&str; 6] = ["DE", "FR", "NL", "PL", "ES", "IT"];
        let (cents, random) = (self.cents(), mix(13, self.hash));
        let text = format!(
            r#"{{"event_id":"{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}","ts":"{}","account_id":"{}","amount":{}.{:02},"currency":"EUR","status":"{}","channel":"{}","country":"{}","card_country":"{}","merchant_id":"m{:06}","device_id":"d{:08}"}}"#,
            random >> 32,
            (random >> 16) & 0xffff,
            random & 0xfff,
            (random >> 12) & 0xfff,
            self.number,
            format_timestamp(self.time()),
            self.account(),
            cents / 100,
            cents % 100,
            self.one_of(14, &["ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "declined"]),
            self.one_of(15, &["card", "online", "transfer"]),
            self.one_of(16, &COUNTRIES),
            self.one_of(17, &COUNTRIES),
            mix(18, self.hash) % 100_000,
            mix(19, self.hash) % 10_000_000,
        );
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_those_of_a_payment_before_and_the_truth_leaves_them_out() {
        let payments = Payments { records: 3_000, accounts: 50 };
        let ids: std::collections::BTreeSet<Bytes> = (0..payments.records).map(|record| payments.payment(record).json()).collect();
        let truth = payments.truth();
        assert_eq!((truth.events, truth.duplicates, ids.len() as u64), (2_997, 3, 2_997));
        assert_eq!(payments.payment(999).number, 499);
    }

    #[test]
    fn a_payment_is_json_with_an_id_of_its_own() {
        let json: serde_json::Value = serde_json::from_slice(&Payments { records: 1, accounts: 7 }.payment(0).json()).unwrap();
        assert_eq!(json["ts"], "2026-02-01T00:00:00Z");
        assert_eq!(json["event_id"].as_str().unwrap().len(), 36);
    }
}
