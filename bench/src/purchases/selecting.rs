//! A client of the PostgreSQL protocol that looks keys of `up` up with prepared statements.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;
use types::Result;

use super::Purchases;
use super::ids::account_text;
use super::question::KEY;
use crate::asking::{Client, Connected};

/// Asks for one random key after the other, each time of another view.
pub struct Selecting {
    connected: Connected,
    purchases: Purchases,
    pace: Duration,
}

/// Where sqlx connects to `up`.
pub fn url_of(address: &str) -> String {
    format!("postgres://bench@{address}/basestream?sslmode=disable")
}

impl Selecting {
    pub fn new(address: &str, purchases: Purchases, pace: Duration) -> Self {
        Self { connected: Connected::new(&url_of(address)), purchases, pace }
    }
}

impl Client for Selecting {
    fn ask(&mut self, nth: u64) -> Result<()> {
        let key = account_text(self.purchases.account(nth));
        let sql = AssertSqlSafe(format!("SELECT * FROM {} WHERE {KEY} = $1", self.purchases.view(nth)));
        let row = self.connected.with(async |connection| sqlx::query(sql).bind(key).fetch_optional(connection).await);
        row.map(drop::<Option<PgRow>>)
    }

    fn pace(&self) -> Duration {
        self.pace
    }
}
