//! Measures how the time of lookups in process grows with the length of the window: one view per window, over the same
//! events.

use std::path::Path;

use types::Result;
use types::tiles::Micros;

use super::Options;
use super::ask::{Ask, cores};
use super::table::flat;
use crate::asking::{self, Client, Library};
use crate::events::Events;
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::purchases::{ALL_WINDOWS, Purchases, Window};
use crate::report::{Figure, Table};

const WINDOWS: [Window; 6] = [ALL_WINDOWS[0], ALL_WINDOWS[2], ALL_WINDOWS[4], ALL_WINDOWS[5], ALL_WINDOWS[6], ALL_WINDOWS[7]];
/// A tenth of all events is in the last hour, and every part of the year has some.
const DAYS: i64 = 370;
const RECENT: f64 = 4.0;

pub(super) async fn measure(options: &Options, folder: &Path) -> Result<Table> {
    let views = WINDOWS.iter().map(|window| (view_of(window), vec![*window])).collect();
    let purchases = Purchases { views, days: DAYS, recent: RECENT, ..Purchases::with_size(options.window_events, options.window_keys) };
    let installed = Installed::create(folder, &purchases).await?;
    installed.archive(&purchases).await?;
    for (view, _) in &purchases.views {
        installed.installation.run_view(view, &|_| {}).await?;
    }
    let node = installed.installation.node(None).await?;
    let asking = Ask { stretches: options.stretches(), purchases: purchases.clone(), clients: options.clients, batch: options.batch };
    let mut measured: Vec<Vec<Latencies>> = Vec::new();
    for (view, _) in &purchases.views {
        let client = |_| -> Box<dyn Client> {
            let (view, key) = (view.clone(), asking.key());
            Box::new(Library::new(node.clone(), move |nth| (view.clone(), key(nth))))
        };
        measured.push(asking::ask(asking.stretches, (0..cores()).map(client).collect()).await?);
    }
    installed.installation.close().await;
    std::fs::remove_dir_all(folder)?;
    let named: Vec<(Figure, &[Latencies])> =
        WINDOWS.iter().map(|window| Figure::text(window.text)).zip(measured.iter().map(Vec::as_slice)).collect();
    let mut table = flat("Lookups in process, by window", "window", &named);
    let per_key: Vec<String> = WINDOWS.iter().map(|window| format!("{:.0} in {}", in_window(&purchases, window), window.text)).collect();
    table.notes.push(format!(
        "{} events of {} keys; events per key on average: {}",
        purchases.events,
        purchases.accounts,
        per_key.join(", ")
    ));
    Ok(table)
}

fn view_of(window: &Window) -> String {
    format!("of_{}", window.text)
}

/// Events of a key in a window, on average.
fn in_window(purchases: &Purchases, window: &Window) -> f64 {
    let start: Micros = window.start(purchases.newest());
    let (mut first, mut end) = (0, purchases.events);
    while first < end {
        let middle = first + (end - first) / 2;
        if purchases.purchase(middle).ts < start { first = middle + 1 } else { end = middle }
    }
    (purchases.events - first) as f64 / purchases.accounts.max(1) as f64
}
