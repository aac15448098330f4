//! Formats the measurements as tables.

use super::cost::Cost;
use super::linked::LinkedAlert;
use super::{AIM_MS, Options, REPORTS_AFTER, Stretch};
use crate::latencies;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn latencies(options: &Options, stretches: &[Stretch]) -> Table {
    let columns = ["when", "fell silent", "p50 ms", "p99 ms", "p99 aim ms", "slowest ms", "arriving/s", "processors busy"];
    let row = |stretch: &Stretch| {
        let measured = std::slice::from_ref(&stretch.latencies);
        let [count, _, p50, p99, _, slowest] = latencies::figures(measured);
        vec![
            Figure::text(stretch.what),
            count,
            p50,
            p99,
            latencies::aim(measured, AIM_MS),
            slowest,
            Figure::per_second(Spread::single(stretch.arrived_per_second)),
            Figure::ratio(stretch.busy.and_then(Spread::single)),
        ]
    };
    let notes = vec![
        format!("an alert on a silence of {} s over {} devices", options.silence, options.keys),
        "from the first microsecond past a device's silence to the read that returns its record; reads repeat every 2 ms".to_owned(),
        format!("those that report do so every {:.0} s; the others have been silent for long", options.silence as f64 * REPORTS_AFTER),
        "checked at the end: each device that fell silent has one record, since that microsecond, and no other has one".to_owned(),
        "processors busy: by one `basestream up`, which runs all layers and writes a checkpoint every 10 s".to_owned(),
    ];
    Table::new("From a silence to its record", &columns, stretches.iter().map(row).collect(), notes)
}

pub(super) fn costs(options: &Options, costs: &[Cost]) -> Table {
    let columns = ["alert", "private MiB", "bytes a key", "processors busy"];
    let row = |cost: &Cost| {
        vec![
            Figure::text(if cost.has_alert { "one" } else { "none" }),
            Figure::bytes(Spread::single(cost.own_bytes as f64)),
            Figure::number(cost.own_bytes as f64 / options.keys.max(1) as f64),
            Figure::ratio(Spread::single(cost.busy)),
        ]
    };
    let notes = vec![
        format!("`basestream up` with {} devices and {} events per second, of which none falls silent", options.keys, options.rate),
        "private memory at the end of the stretch; bytes a key: all of it, divided by the devices".to_owned(),
    ];
    Table::new("What it costs", &columns, costs.iter().map(row).collect(), notes)
}

pub(super) fn linked_latencies(options: &Options, linked: &LinkedAlert) -> Table {
    let columns = ["users", "rings", "p50 ms", "p99 ms", "slowest ms", "arriving/s"];
    let [rings, _, p50, p99, _, slowest] = latencies::figures(std::slice::from_ref(&linked.latencies));
    let arriving = Figure::per_second(Spread::single(linked.arrived_per_second));
    let row = vec![Figure::Count(options.ring_nodes), rings, p50, p99, slowest, arriving];
    let notes = vec![
        "an alert on devices that are linked with three others within 7 days, over a view that joins accounts and logins by their user"
            .to_owned(),
        "from the call that appends the login that completes a ring to the read that returns its record; reads repeat every 2 ms"
            .to_owned(),
        format!(
            "{} s; {} of the events complete a ring, a tenth of the others is a new user's, and the rest repeats edges",
            options.seconds,
            per_second(options.rings)
        ),
        "checked at the end: each device that came into a ring has one record with its links, no other has one, and the view finds as many"
            .to_owned(),
    ];
    Table::new("From the event that completes a ring to its record", &columns, vec![row], notes)
}

pub(super) fn linked_costs(options: &Options, linked: &LinkedAlert) -> Table {
    let columns = ["alert", "private MiB", "processors busy"];
    let row = |cost: &Cost| {
        vec![
            Figure::text(if cost.has_alert { "one" } else { "none" }),
            Figure::bytes(Spread::single(cost.own_bytes as f64)),
            Figure::ratio(Spread::single(cost.busy)),
        ]
    };
    let notes = vec![
        format!(
            "`basestream up` with a linked view of {} users, each with an account and logins from three devices, and {}",
            options.ring_nodes,
            per_second(options.ring_rate)
        ),
        "private memory at the end of the stretch; without the alert as many rings are completed".to_owned(),
    ];
    Table::new("What an alert over a linked view costs", &columns, linked.costs.iter().map(row).collect(), notes)
}

fn per_second(events: u64) -> String {
    format!("{events} events a second")
}
