//! Computes the expected answer of a lookup from the graph's events by loops.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use serving::{Keys, Node};
use types::tiles::Micros;
use types::{Error, Result};

use crate::events::Events;
use crate::graph::{Event, Graph, Stream, device_text};
use crate::view::{VALUES, VIEW, Windows};

/// Compares the answers for this many keys with the graph.
pub(super) async fn check(node: &Node, graph: &Graph, keys: u64) -> Result<()> {
    let devices: BTreeSet<u64> = (0..keys).map(|nth| graph.device(nth)).collect();
    for (device, expected) in truth(graph, &devices) {
        let key = Keys::Text(vec![vec![("device_id".to_owned(), device_text(device))]]);
        let answer = node.lookup(VIEW, key, None).await?;
        let served = values(&answer.rows)?;
        if served != expected {
            return Err(Error::internal("a lookup is not what the events say")
                .with("device", device)
                .with("served", format!("{served:?}"))
                .with("expected", format!("{expected:?}")));
        }
    }
    Ok(())
}

fn values(rows: &RecordBatch) -> Result<[i64; 5]> {
    let value = |name: &str| -> Result<i64> {
        let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
        let column = column.filter(|column| column.len() == 1 && column.is_valid(0));
        Ok(column.ok_or_else(|| Error::internal("an answer has no such count").with("column", name))?.value(0))
    };
    let found: Vec<i64> = VALUES.iter().map(|name| value(name)).collect::<Result<_>>()?;
    found.try_into().map_err(|_| Error::internal("an answer has other columns"))
}

fn truth(graph: &Graph, devices: &BTreeSet<u64>) -> BTreeMap<u64, [i64; 5]> {
    let events = |stream: Stream| (0..graph.count(stream)).map(move |number| graph.event(stream, number));
    let accounts: Vec<Event> = events(Stream::Account).filter(|account| devices.contains(&account.device)).collect();
    let users: HashSet<u64> = accounts.iter().map(|account| account.user).collect();
    let mut logins: HashMap<u64, Vec<Event>> = HashMap::new();
    for login in events(Stream::Login).filter(|login| users.contains(&login.user)) {
        logins.entry(login.user).or_default().push(login);
    }
    let windows = Windows::at(graph.newest());
    let of = |device: &u64| {
        let own = accounts.iter().filter(|account| account.device == *device);
        let pairs: Vec<(&Event, &Event)> =
            own.flat_map(|account| logins.get(&account.user).into_iter().flatten().map(move |login| (account, login))).collect();
        (*device, counts(&pairs, &windows))
    };
    devices.iter().map(of).collect()
}

fn counts(pairs: &[(&Event, &Event)], windows: &Windows) -> [i64; 5] {
    let distinct = |account_from: Micros, login_from: Micros, value: &dyn Fn(&Event, &Event) -> Option<u64>| {
        let within = pairs.iter().filter(|(account, login)| account.ts >= account_from && login.ts >= login_from);
        within.filter_map(|(account, login)| value(account, login)).collect::<HashSet<u64>>().len() as i64
    };
    let other = |account: &Event, login: &Event| (login.device != account.device).then_some(login.device);
    let user = |account: &Event, _: &Event| Some(account.user);
    let Windows { week, month, year } = *windows;
    [
        distinct(week, week, &other),
        distinct(month, month, &other),
        distinct(week, week, &user),
        distinct(month, month, &user),
        distinct(year, month, &|_, login| Some(login.device)),
    ]
}
