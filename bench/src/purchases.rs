//! Generates one stream, accounts' purchases at merchants, and views over it: what each account bought, over windows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, StringArray};
use types::Strategy;
use types::tiles::Micros;

use crate::events::{DAY, END, Events, mix, skewed, times};

pub mod arriving;
pub mod expressions;
mod ids;
pub mod question;
pub mod selecting;
pub mod truth;
mod window;

pub use ids::{account_text, merchant_text};
pub use question::{AGGREGATES, Aggregates, SMALL_AGGREGATES};
pub use window::{ALL_WINDOWS, FOUR_WINDOWS, Window};

pub const STREAM: &str = "purchases";
/// The view that is measured.
pub const VIEW: &str = "account_purchases";

/// The number of merchants that an account buys from.
const OF_AN_ACCOUNT: u64 = 12;

/// The sizes and the distribution of the purchases.
#[derive(Debug, Clone, PartialEq)]
pub struct Purchases {
    pub seed: u64,
    pub events: u64,
    pub accounts: u64,
    pub merchants: u64,
    /// 1 is uniform; with a greater value the first accounts have more of the events.
    pub skew: f64,
    /// How many days before the end of all events the first one is.
    pub days: i64,
    /// 1: the same number every day; with a greater value more of them are in the last days.
    pub recent: f64,
    pub aggregates: Aggregates,
    /// How long a repeated id counts as a duplicate.
    pub dedup_within: &'static str,
    /// Of all views. Benchmarks measure recomputation unless they say otherwise.
    pub strategy: Strategy,
    /// Views of the same SELECT, with their windows.
    pub views: Vec<(String, Vec<Window>)>,
}

/// One purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    pub ts: Micros,
    pub account: u64,
    pub merchant: u64,
    pub cents: i64,
}

impl Purchases {
    /// This many events of this many accounts, over 100 days: the longest of the four windows excludes some.
    pub fn with_size(events: u64, accounts: u64) -> Purchases {
        let merchants = (accounts / 10).clamp(20, 50_000);
        let views = vec![(VIEW.to_owned(), FOUR_WINDOWS.to_vec())];
        Purchases {
            seed: 7,
            events,
            accounts,
            merchants,
            skew: 1.3,
            days: 100,
            recent: 1.0,
            aggregates: AGGREGATES,
            dedup_within: "10m",
            strategy: Strategy::Full,
            views,
        }
    }

    /// The windows of the view that is measured.
    pub fn windows(&self) -> &[Window] {
        &self.views[0].1
    }

    pub fn purchase(&self, number: u64) -> Purchase {
        let hash = mix(self.seed, number);
        let account = skewed(self.accounts, hash, self.skew);
        let own = mix(hash, 3) % OF_AN_ACCOUNT;
        let merchant = skewed(self.merchants, mix(mix(self.seed, 4), account * OF_AN_ACCOUNT + own), self.skew);
        let cents = 1 + (mix(hash, 5) % 100_000) as i64;
        Purchase { ts: self.ts(number), account, merchant, cents }
    }

    fn ts(&self, number: u64) -> Micros {
        let before = 1.0 - number as f64 / self.events.max(1) as f64;
        END - (before.powf(self.recent) * (self.days * DAY) as f64).max(1.0) as Micros
    }

    /// An account to look up, uniformly chosen.
    pub fn account(&self, nth: u64) -> u64 {
        mix(self.seed ^ 0x5eed, nth) % self.accounts.max(1)
    }

    pub fn view(&self, nth: u64) -> &str {
        &self.views[nth as usize % self.views.len()].0
    }
}

impl Events for Purchases {
    fn files(&self) -> Vec<(String, String)> {
        let stream = format!(
            "CREATE STREAM {STREAM} (event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, account_id TEXT, merchant_id TEXT,\n\
             amount DECIMAL(18,2) NOT NULL)\n\
             WITH (topic = '{STREAM}', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '{}', key = 'account_id',\n\
             keep_raw = false);\n",
            self.dedup_within
        );
        let views =
            self.views.iter().map(|(view, windows)| question::create_view((view, self.strategy), windows, &self.aggregates)).collect();
        vec![(format!("streams/{STREAM}.sql"), stream), (format!("views/{VIEW}.sql"), views)]
    }

    fn streams(&self) -> Vec<(&'static str, u64)> {
        vec![(STREAM, self.events)]
    }

    fn time(&self, _: &str, number: u64) -> Micros {
        self.ts(number)
    }

    fn column(&self, _: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef> {
        let rows = numbers.iter().map(|number| self.purchase(*number));
        Some(match name {
            "event_id" => Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("p{number:09}")))),
            "ts" => times(rows.map(|row| row.ts)),
            "account_id" => Arc::new(StringArray::from_iter_values(rows.map(|row| account_text(row.account)))),
            "merchant_id" => Arc::new(StringArray::from_iter_values(rows.map(|row| merchant_text(row.merchant)))),
            "amount" => {
                Arc::new(Decimal128Array::from_iter_values(rows.map(|row| i128::from(row.cents))).with_precision_and_scale(18, 2).ok()?)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
