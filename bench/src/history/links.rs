//! The same for a linked view, whose run also joins.

use std::path::Path;

use types::Result;

use super::growing::{Growing, bytes, seconds};
use crate::graph::{Graph, Stream};
use crate::installed::Installed;
use crate::report::{Figure, Table, at_most};
use crate::view::VIEW;

/// How much more of the logins a run finds, in thousandths, and the aim: the most of a full run's time.
const STEPS: [(u64, f64); 3] = [(1, 0.15), (10, 0.3), (100, 1.0)];

/// 200 thousand accounts and 2 million logins of 100 thousand users on 50 thousand devices, times `scale`. Each user
/// logs in from a few devices, again and again.
pub fn graph(scale: f64) -> Graph {
    let scaled = |count: u64| ((count as f64 * scale) as u64).max(1);
    Graph {
        seed: 7,
        users: scaled(100_000),
        devices: scaled(50_000),
        accounts: scaled(200_000),
        logins: scaled(2_000_000),
        skew: 1.0,
        devices_per_user: 4,
        account_days: 400,
        login_days: 40,
    }
}

/// Runs the view over a part of the logins, and after a little more of them each time. The installation goes to
/// `folder`.
pub(super) async fn measured(graph: &Graph, repeats: usize, folder: &Path) -> Result<Table> {
    let (accounts, logins) = (Stream::Account, Stream::Login);
    let of_steps: u64 = STEPS.iter().map(|(thousandths, _)| thousandths * repeats as u64).sum();
    let first = graph.count(logins) * 1_000 / (1_000 + of_steps);
    let installed = Installed::create(folder, graph).await?;
    let growing = Growing { installed, events: graph, stream: logins.name(), view: VIEW };
    growing.archive_of(accounts.name(), 0..graph.count(accounts)).await?;
    growing.archive(0..first).await?;
    let mut full = Vec::new();
    for _ in 0..repeats.max(1) {
        full.push(growing.recompute().await?);
    }
    let (steps, _) = growing.steps(first, &STEPS.map(|(thousandths, _)| thousandths), repeats).await?;
    // What is carried over and joined again is what a full run joins.
    let manifest = growing.manifest().await?;
    let carried = manifest.joined.as_ref().map_or(0, |joined| joined.carried);
    growing.installed.installation.close().await;

    let full_s = seconds(&full);
    let row = |what: String, ran: &[super::Ran], aim: Figure| {
        let events = ran.first().map_or(0, |ran| ran.run.events_read);
        vec![Figure::text(what), Figure::Count(events as u64), Figure::seconds(seconds(ran)), Figure::bytes(bytes(ran)), aim]
    };
    let mut rows = vec![row("a full run".into(), &full, Figure::Absent)];
    for ((thousandths, most), ran) in STEPS.into_iter().zip(&steps) {
        let ratio = seconds(ran).zip(full_s).map(|(step, full)| step.median / full.median);
        rows.push(row(format!("after {} % more logins", thousandths as f64 / 10.0), ran, at_most(ratio, most)));
    }
    let note = format!(
        "{} accounts and at first {first} logins of {} users on {} devices; the last run carried {carried} of {} rows over; {repeats} runs each; \
         figures: median (min - max)",
        graph.accounts,
        graph.users,
        graph.devices,
        manifest.joined.as_ref().map_or(0, |joined| joined.rows),
    );
    Ok(Table {
        title: "Runs of a linked view".into(),
        columns: ["run", "events read", "seconds", "MiB written", "to the full run, aim"].map(str::to_owned).to_vec(),
        rows,
        notes: vec![note],
    })
}
