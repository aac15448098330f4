//! Which clients ask for which keys.

use std::time::{Duration, Instant};

use serde_json::json;
use serving::Node;
use types::Result;

use crate::asking::{self, Client, Getting, Http, Library, Stretches};
use crate::latencies::Latencies;
use crate::purchases::question::{KEY, row_path};
use crate::purchases::selecting::Selecting;
use crate::purchases::{Purchases, account_text};

pub(super) struct Ask {
    pub(super) stretches: Stretches,
    pub(super) purchases: Purchases,
    pub(super) clients: usize,
    pub(super) batch: usize,
}

impl Ask {
    /// Returns the key of the nth query.
    pub(super) fn key(&self) -> impl Fn(u64) -> String + Send + 'static {
        let purchases = self.purchases.clone();
        move |nth| account_text(purchases.account(nth))
    }

    /// Returns the keys of the nth query for many keys.
    pub(super) fn keys(&self) -> impl Fn(u64) -> Vec<String> + Send + 'static {
        let (key, batch) = (self.key(), self.batch as u64);
        move |nth| (nth * batch..(nth + 1) * batch).map(&key).collect()
    }

    pub(super) async fn with(&self, mut client: impl FnMut() -> Result<Box<dyn Client>>) -> Result<Vec<Latencies>> {
        asking::ask(self.stretches, (0..self.clients.max(1)).map(|_| client()).collect::<Result<_>>()?).await
    }

    /// One client per core: more would only wait for each other.
    pub(super) async fn node(&self, node: &Node) -> Result<Vec<Latencies>> {
        let client = || -> Box<dyn Client> {
            let (purchases, key) = (self.purchases.clone(), self.key());
            Box::new(Library::new(node.clone(), move |nth| (purchases.view(nth).to_owned(), key(nth))))
        };
        asking::ask(self.stretches, (0..cores()).map(|_| client()).collect()).await
    }

    pub(super) async fn http(&self, address: &str) -> Result<Vec<Latencies>> {
        self.with(|| {
            let (purchases, key) = (self.purchases.clone(), self.key());
            Getting::connect(address, Duration::ZERO, move |nth| row_path(purchases.view(nth), &key(nth)))
        })
        .await
    }

    /// Over the PostgreSQL protocol.
    pub(super) async fn wire(&self, address: &str) -> Result<Vec<Latencies>> {
        self.with(|| Ok(Box::new(Selecting::new(address, self.purchases.clone(), Duration::ZERO)))).await
    }

    pub(super) async fn http_batch(&self, address: &str) -> Result<Vec<Latencies>> {
        self.with(|| {
            let (mut http, purchases, keys) = (Http::connect(address)?, self.purchases.clone(), self.keys());
            Ok(Box::new(move |nth| http.post(&rows_path(purchases.view(nth)), &rows_body(&keys(nth))).map(drop)))
        })
        .await
    }

    /// Returns the number of events that answers count now, and the time of that answer.
    pub(super) fn counted(&self, address: &str) -> Result<(u64, Instant)> {
        Http::connect(address)?.counted(&row_path(self.purchases.view(0), &account_text(0)))
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn rows_path(view: &str) -> String {
    format!("/v1/views/{view}/rows")
}

pub(super) fn rows_body(keys: &[String]) -> String {
    json!({ "keys": keys.iter().map(|key| json!({ KEY: key })).collect::<Vec<_>>() }).to_string()
}
