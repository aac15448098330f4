//! Prepares the installation that lookups are measured on.

use std::time::Instant;

use serving::Node;
use types::Result;

use super::{Case, Options};
use crate::installed::Installed;
use crate::purchases::{ALL_WINDOWS, FOUR_WINDOWS, Purchases, VIEW};
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn size_table() -> Table {
    let columns = ["views:windows:keys", "events", "rows compared with the events", "batch runs s", "snapshots MiB", "opening the node s"];
    Table { title: "Data".into(), columns: columns.map(str::to_owned).to_vec(), ..Table::default() }
}

pub(super) fn purchases_of(options: &Options, case: Case) -> Purchases {
    let windows = match case.windows {
        4 => FOUR_WINDOWS.to_vec(),
        // The longest window begins before the first event, so it is used only when all windows are.
        few => {
            let last = if few < ALL_WINDOWS.len() { ALL_WINDOWS.len() - 1 } else { few };
            ALL_WINDOWS[last - few..last].to_vec()
        }
    };
    let name = |number: usize| if number == 1 { VIEW.to_owned() } else { format!("{VIEW}_{number}") };
    let views = (1..=case.views).map(|number| (name(number), windows.clone())).collect();
    Purchases { views, ..Purchases::with_size(case.keys * options.events_per_key, case.keys) }
}

/// Writes the archive and the snapshots of all views, and opens a node on them.
pub(super) async fn prepare(
    options: &Options,
    case: Case,
    installed: &Installed,
    purchases: &Purchases,
    sizes: &mut Table,
) -> Result<Node> {
    installed.archive(purchases).await?;
    let (mut seconds, mut bytes) = (0.0, 0.0);
    for (view, _) in &purchases.views {
        let run = installed.installation.run_view(view, &|_| {}).await?;
        seconds += run.ended_at.zip(run.started_at).map_or(0.0, |(ended, started)| (ended - started) as f64 / 1e6);
        bytes += run.bytes_written as f64;
    }
    let began = Instant::now();
    let node = installed.installation.node(None).await?;
    sizes.rows.push(vec![
        Figure::text(case.to_string()),
        Figure::Count(purchases.events),
        Figure::Count(options.checked),
        Figure::seconds(Spread::from_values([seconds])),
        Figure::bytes(Spread::from_values([bytes])),
        Figure::seconds(Spread::from_values([began.elapsed().as_secs_f64()])),
    ]);
    Ok(node)
}
