//! The node's tables as clients see them, and the read view that they are of.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use arrow::datatypes::Schema;
use serving::{Loaded, ReadView, TableDescription};
use types::tiles::Micros;

use super::PUBLIC;

/// The prefix of hidden columns.
const HIDDEN: &str = "__";

/// The tables of the newest read view that any query brought. They never go back to those of an older one.
///
/// A query sees the tables of its own read view or of a newer one, whether it is in a transaction or not: like
/// PostgreSQL, whose catalog is not part of a transaction's snapshot. They may become newer while it is planned or
/// runs.
#[derive(Debug, Default)]
pub(super) struct Tables(RwLock<TablesAt>);

#[derive(Debug, Default)]
struct TablesAt {
    recency: Option<Recency>,
    tables: Arc<Vec<TableDescription>>,
}

/// Orders read views: that of the newer one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Recency {
    revision: i64,
    /// When the read view was made: at the same revision a later one may have more views loaded.
    now: Micros,
}

impl Recency {
    pub(super) fn from_read_view(read_view: &ReadView) -> Recency {
        Recency { revision: read_view.loaded.state.revision, now: read_view.now }
    }
}

/// A catalog state, and the versions of views that answered there instead of the served ones.
#[derive(Debug, Default)]
pub(super) struct Shown {
    loaded: Weak<Loaded>,
    versions: BTreeMap<Arc<str>, u32>,
}

impl Tables {
    pub(super) fn now(&self) -> Arc<Vec<TableDescription>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tables.clone()
    }

    pub(super) fn are_newer_than(&self, recency: Recency) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).recency > Some(recency)
    }

    /// Takes these tables, unless it has newer ones. Returns whether it took them.
    pub(super) fn renew(&self, recency: Recency, tables: Vec<TableDescription>) -> bool {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if held.recency > Some(recency) {
            return false;
        }
        *held = TablesAt { recency: Some(recency), tables: Arc::new(tables) };
        true
    }
}

impl Shown {
    pub(super) fn from_read_view(read_view: &ReadView) -> Shown {
        Shown { loaded: Arc::downgrade(&read_view.loaded), versions: read_view.versions.clone() }
    }

    pub(super) fn is_same(&self, other: &Shown) -> bool {
        self.loaded.ptr_eq(&other.loaded) && self.versions == other.versions
    }
}

/// Without the columns that `*` leaves out.
pub(super) fn without_hidden(table: TableDescription) -> TableDescription {
    if table.is_view || table.schema != PUBLIC {
        return table;
    }
    let shown = |index: &usize| !table.columns.field(*index).name().starts_with(HIDDEN);
    let shown: Vec<usize> = (0..table.columns.fields().len()).filter(shown).collect();
    let fields: Vec<_> = shown.iter().map(|index| table.columns.fields()[*index].clone()).collect();
    let text_types = shown.iter().map(|index| table.text_types[*index]).collect();
    TableDescription { columns: Arc::new(Schema::new(fields)), text_types, ..table }
}

#[cfg(test)]
mod tests;
