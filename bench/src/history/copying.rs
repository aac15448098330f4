//! What a node copies after a run, beside what the run changed.

use std::sync::Arc;

use basestream_tests::gate::{Gate, Way};
use jobs::Installation;
use serving::Node;
use storage::ObjectStorage;
use types::Result;

use super::growing::{Growing, Ran};
use crate::events::Events;
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

/// The folder of the storage with all snapshots.
const SNAPSHOTS: &str = "snapshots";
/// The aim: the bytes that a node copies, to those that changed. Footers of files are read before their rows.
const COPIED_TO_CHANGED: f64 = 1.05;

/// A node in this process, and what it reads of snapshots.
pub(super) struct Copying {
    pub(super) node: Node,
    reads: Arc<Gate>,
}

/// What a run changed, and a node copied after it.
pub(super) struct Copied {
    /// The files that the run wrote, with the manifest.
    pub(super) changed_bytes: f64,
    pub(super) copied_bytes: f64,
}

impl Copying {
    pub(super) async fn open(installation: &Installation) -> Result<Copying> {
        let reads = Gate::before(installation.storage.object_store(), SNAPSHOTS, Way::Fine);
        let mut counted = installation.clone();
        counted.storage = ObjectStorage::over(reads.clone())?;
        Ok(Copying { node: counted.node(None).await?, reads })
    }

    /// Lets the node copy what the last run changed.
    pub(super) async fn copy<E: Events>(&self, history: &Growing<'_, E>, ran: &Ran) -> Result<Copied> {
        self.reads.take_read_bytes();
        self.node.refresh().await?;
        let changed_bytes = (ran.run.bytes_written + history.manifest_file().await?.bytes) as f64;
        Ok(Copied { changed_bytes, copied_bytes: self.reads.take_read_bytes() as f64 })
    }
}

/// After a full run, and after each of a series of incremental ones, if there were any.
pub(super) fn table(full: &Copied, series: &[Copied]) -> Table {
    let kib = |spread: Option<Spread>| spread.map_or(Figure::Absent, Figure::Number);
    let row = |what: &str, copies: &[Copied]| {
        let sum = |bytes: fn(&Copied) -> f64| copies.iter().map(bytes).sum::<f64>();
        let spread = |bytes: fn(&Copied) -> f64| Spread::from_values(copies.iter().map(|copy| bytes(copy) / 1024.0));
        let (changed, copied) = (sum(|copy| copy.changed_bytes), sum(|copy| copy.copied_bytes));
        vec![
            Figure::text(what),
            kib(spread(|copy| copy.changed_bytes)),
            kib(spread(|copy| copy.copied_bytes)),
            at_most(Some(copied / changed.max(1.0)), COPIED_TO_CHANGED),
        ]
    };
    let mut rows = vec![row("a full run", std::slice::from_ref(full))];
    if !series.is_empty() {
        rows.push(row("each of the series", series));
    }
    Table::new(
        "What a node copies after a run",
        &["run", "KiB changed", "KiB copied", "copied to changed, at most 1.05"],
        rows,
        vec![
            "changed: the files that a run wrote and the manifest; copied: what a node read of snapshots".to_owned(),
            "copied to changed: the sums of all runs; other figures: median (min - max)".to_owned(),
        ],
    )
}
