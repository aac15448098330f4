//! Archived records that do not fit a new column: how many, and the first of them.

use std::sync::Arc;

use engine::events::Misfit;
use serde::Serialize;

/// How many records that do not fit are listed.
const LISTED: usize = 20;

/// Records that do not fit a column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Misfits {
    /// How many records: one that does not fit several columns counts once.
    pub count: u64,
    /// The first of them, each with its first column that does not fit.
    pub first: Vec<ListedMisfit>,
}

/// An archived record that does not fit a new column, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedMisfit {
    pub stream: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub column: String,
    pub reason: String,
}

impl Misfits {
    /// Adds those of a batch, in the order of the records.
    pub(super) fn add(&mut self, stream: &Arc<str>, mut misfits: Vec<Misfit>) {
        misfits.dedup_by_key(|misfit| (misfit.partition, misfit.offset));
        self.count += misfits.len() as u64;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(misfits.into_iter().take(room).map(|misfit| ListedMisfit {
            stream: stream.clone(),
            partition: misfit.partition,
            offset: misfit.offset.0,
            column: misfit.column,
            reason: misfit.reason,
        }));
    }

    /// Adds those of a later file.
    pub(super) fn append(&mut self, later: Misfits) {
        self.count += later.count;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(later.first.into_iter().take(room));
    }
}
