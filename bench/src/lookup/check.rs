//! Compares the answers for some keys with the events.

use std::collections::BTreeMap;

use datafusion::common::ScalarValue;
use serde::Deserialize;
use serde_json::Value;
use serving::{Keys, Node};
use types::{Error, Result};

use super::ask::{rows_body, rows_path};
use super::together;
use crate::asking::Http;
use crate::purchases::question::row_path;
use crate::purchases::truth::{hold, rows};
use crate::purchases::{FOUR_WINDOWS, Purchases, VIEW, account_text};

/// Rows by their keys.
pub(super) type Expected = BTreeMap<String, Value>;

pub(super) fn expected(purchases: &Purchases, keys: u64) -> Expected {
    let accounts = (0..keys).map(|nth| purchases.account(nth)).collect();
    rows(purchases, &accounts).into_iter().map(|(account, row)| (account_text(account), row)).collect()
}

pub(super) async fn node(node: &Node, expected: &Expected) -> Result<()> {
    for (key, row) in expected {
        let answer = node.lookup(VIEW, Keys::Typed(vec![vec![ScalarValue::Utf8(Some(key.clone()))]]), None).await?;
        let served = serving::json::rows(&answer.rows)?;
        hold(&json(served[0].get().as_bytes())?, row)?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Many {
    rows: Vec<Value>,
}

impl Many {
    fn hold(&self, expected: &Expected) -> Result<()> {
        if self.rows.len() != expected.len() {
            return Err(Error::internal("an answer has other rows than keys were asked").with("rows", self.rows.len()));
        }
        self.rows.iter().zip(expected.values()).try_for_each(|(served, row)| hold(served, row))
    }
}

/// Compares keys looked up one by one, and all at once.
pub(super) fn http(address: &str, expected: &Expected) -> Result<()> {
    #[derive(Deserialize)]
    struct One {
        row: Value,
    }
    let mut http = Http::connect(address)?;
    for (key, row) in expected {
        let one: One = json(http.get(&row_path(VIEW, key))?)?;
        hold(&one.row, row)?;
    }
    let keys: Vec<String> = expected.keys().cloned().collect();
    let many: Many = json(http.post(&rows_path(VIEW), &rows_body(&keys))?)?;
    many.hold(expected)
}

/// Compares the keys of every view, looked up in one call. All views have the same rows.
pub(super) fn views(address: &str, purchases: &Purchases, expected: &Expected) -> Result<()> {
    #[derive(Deserialize)]
    struct Together {
        views: BTreeMap<String, Many>,
    }
    let keys: Vec<String> = expected.keys().cloned().collect();
    let mut http = Http::connect(address)?;
    let together: Together = json(http.post(together::PATH, &together::body(purchases, &keys))?)?;
    if together.views.len() != purchases.views.len() {
        return Err(Error::internal("an answer has other views than were asked").with("views", together.views.len()));
    }
    together.views.values().try_for_each(|many| many.hold(expected))
}

/// Whether the key has an event in the longest of the four windows: other keys have no row.
pub(super) fn has_row(row: &Value) -> bool {
    FOUR_WINDOWS.last().is_some_and(|window| row[format!("purchases_{}", window.text)] != 0)
}

pub(super) fn json<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::internal(format!("an answer is not as expected: {error}")).with("found", String::from_utf8_lossy(text)))
}
