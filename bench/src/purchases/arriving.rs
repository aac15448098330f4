//! Generates purchases after the archived ones, as a producer sends them.

use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::NewRecord;

use super::ids::{account_text, merchant_text};
use super::{Purchases, STREAM};
use crate::events::END;
use crate::feed::Source;

/// Accounts are as likely as before. Events with different numbers are different events.
pub struct Arriving {
    pub purchases: Purchases,
    pub number: u64,
    pub next: u64,
}

impl Source for Arriving {
    fn take(&mut self, count: u64) -> Vec<(String, Vec<NewRecord>)> {
        let records = (self.next..self.next + count).map(|nth| self.record(nth)).collect();
        self.next += count;
        vec![(STREAM.to_owned(), records)]
    }
}

impl Arriving {
    fn record(&self, nth: u64) -> NewRecord {
        let purchase = self.purchases.purchase(nth);
        let (account, merchant) = (account_text(purchase.account), merchant_text(purchase.merchant));
        let (ts, cents) = (format_timestamp(END + nth as i64), purchase.cents);
        let value = format!(
            r#"{{"event_id":"a{}-{nth}","ts":"{ts}","account_id":"{account}","merchant_id":"{merchant}","amount":{}.{:02}}}"#,
            self.number,
            cents / 100,
            cents % 100
        );
        NewRecord { key: Some(Bytes::from(account)), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
    }
}
