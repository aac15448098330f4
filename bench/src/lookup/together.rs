//! Keys of every view in one call over HTTP, at a given rate while events arrive.

use types::Result;

use super::ask::Ask;
use super::case::Case;
use super::{Options, busy};
use crate::asking::{self, Client, Http};
use crate::feed::Fed;
use crate::installed::Installed;
use crate::latencies::{self, Latencies, per_second};
use crate::purchases::Purchases;
use crate::purchases::question::KEY;
use crate::report::{Figure, Table, at_least};
use crate::spread::Spread;

pub(super) const PATH: &str = "/v1/rows";
/// Of each view.
const KEYS: u64 = 3;
/// The aims: the highest p99 in milliseconds, and the lowest share of the calls that are due.
const MOST_P99_MS: f64 = 10.0;
const LEAST_ANSWERED: f64 = 0.99;

/// One measurement.
pub(super) struct Outcome {
    case: Case,
    stretches: Vec<Latencies>,
    fed: Fed,
}

/// Asks `up` at the rate of the options. `number` distinguishes the events that arrive from others.
pub(super) async fn measure(options: &Options, case: Case, installed: &Installed, asking: &Ask, number: u64) -> Result<Outcome> {
    let feed = busy::feed(options, installed, &asking.purchases, number).await?;
    let from = asking.counted(&installed.http)?;
    let client = || -> Result<Box<dyn Client>> {
        let (mut http, purchases, key) = (Http::connect(&installed.http)?, asking.purchases.clone(), asking.key());
        Ok(Box::new(move |nth: u64| {
            let keys: Vec<String> = (nth * KEYS..(nth + 1) * KEYS).map(&key).collect();
            http.post(PATH, &body(&purchases, &keys)).map(drop)
        }))
    };
    let clients: Vec<_> = (0..asking.clients.max(1)).map(|_| client()).collect::<Result<_>>()?;
    let stretches = asking::ask_at(options.together as f64, asking.stretches, clients).await?;
    let fed = feed.finish(from, asking.counted(&installed.http)?).await?;
    Ok(Outcome { case, stretches, fed })
}

/// Asks every view for these keys.
pub(super) fn body(purchases: &Purchases, keys: &[String]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("{{\"{KEY}\":\"{key}\"}}")).collect();
    let keys = keys.join(",");
    let views: Vec<String> = purchases.views.iter().map(|(view, _)| format!("\"{view}\":[{keys}]")).collect();
    format!("{{\"views\":{{{}}}}}", views.join(","))
}

pub(super) fn table(options: &Options, outcomes: &[Outcome]) -> Table {
    let columns = [
        "views:windows:keys",
        "calls due/s",
        "calls",
        "calls/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "slowest ms",
        "p99 ms, aim",
        "calls/s / due, aim 0.99",
        "arriving/s",
        "counted/s",
    ];
    let row = |outcome: &Outcome| {
        let due = options.together as f64;
        let answered = per_second(&outcome.stretches).map(|rate| rate.median / due);
        let one = |rate: f64| Figure::per_second(Spread::from_values([rate]));
        let mut row = vec![Figure::text(outcome.case.to_string()), Figure::Count(options.together)];
        row.extend(latencies::figures(&outcome.stretches));
        row.push(latencies::aim(&outcome.stretches, MOST_P99_MS));
        row.push(at_least(answered, LEAST_ANSWERED));
        row.extend([one(outcome.fed.appended_per_second), one(outcome.fed.counted_per_second)]);
        row
    };
    let notes = vec![
        format!(
            "POST {PATH}: each call asks every view for the same {KEYS} uniformly chosen keys; {} clients take turns; {} stretches of {} s each; \
             figures: median (min - max)",
            options.clients, options.repeats, options.seconds
        ),
        "calls are due at this rate, whether or not earlier ones are answered; a late call is measured from when it was due".to_owned(),
        "a real `basestream up`, without batch runs; clients, server and what appends the events share the cores".to_owned(),
    ];
    Table::new("Keys of every view in one call", &columns, outcomes.iter().map(row).collect(), notes)
}
