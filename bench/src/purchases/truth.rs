//! Computes the expected rows of some accounts from the events by a loop.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use types::tiles::Micros;
use types::{Error, Result};

use super::ids::account_text;
use super::question::KEY;
use super::{Purchase, Purchases, Window};
use crate::events::Events;

/// The rows of these accounts in the measured view, as JSON.
pub fn rows(purchases: &Purchases, accounts: &BTreeSet<u64>) -> BTreeMap<u64, Value> {
    let mut of: BTreeMap<u64, Vec<Purchase>> = accounts.iter().map(|account| (*account, Vec::new())).collect();
    for purchase in (0..purchases.events).map(|number| purchases.purchase(number)) {
        if let Some(own) = of.get_mut(&purchase.account) {
            own.push(purchase);
        }
    }
    let t = purchases.newest();
    of.into_iter().map(|(account, own)| (account, row(account, &own, purchases.windows(), t))).collect()
}

/// Errors on any difference.
pub fn hold(served: &Value, expected: &Value) -> Result<()> {
    match served == expected {
        true => Ok(()),
        false => {
            let error = Error::internal("a row is not what the events say");
            Err(error.with("served", served).with("expected", expected))
        }
    }
}

fn row(account: u64, purchases: &[Purchase], windows: &[Window], t: Micros) -> Value {
    let mut row = Map::from_iter([(KEY.to_owned(), json!(account_text(account)))]);
    for window in windows {
        let within: Vec<&Purchase> = purchases.iter().filter(|purchase| purchase.ts >= window.start(t)).collect();
        let cents = || within.iter().map(|purchase| purchase.cents);
        let merchants: BTreeSet<u64> = within.iter().map(|purchase| purchase.merchant).collect();
        let values = [
            ("purchases", json!(within.len())),
            ("total", amount((!within.is_empty()).then(|| cents().sum()))),
            ("least", amount(cents().min())),
            ("most", amount(cents().max())),
            ("merchants", json!(merchants.len())),
        ];
        row.extend(values.map(|(name, value)| (format!("{name}_{}", window.text), value)));
    }
    Value::Object(row)
}

fn amount(cents: Option<i64>) -> Value {
    cents.map_or(Value::Null, |cents| json!(format!("{}.{:02}", cents / 100, cents % 100)))
}
