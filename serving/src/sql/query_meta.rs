//! The meta of a query's answer. Most of it is computed only if it is read, because PostgreSQL clients get none.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::{Serialize, Serializer};
use types::vector::Vector;

use super::used::TablesRead;
use crate::meta::Meta;
use crate::query_context::QueryContext;

/// What an answer is computed from, known before its first row: a [`Meta`] that is computed when it is first read.
pub struct QueryMeta {
    cut: Vector,
    context: QueryContext,
    tables: TablesRead,
    made: OnceLock<Meta>,
}

impl QueryMeta {
    pub(super) fn new(context: QueryContext, tables: TablesRead) -> Self {
        Self { cut: context.read_view.vector.clone(), context, tables, made: OnceLock::new() }
    }

    /// The position of the answer, so that streams can be hidden in it.
    pub(crate) fn cut_mut(&mut self) -> &mut Vector {
        self.made.take();
        &mut self.cut
    }

    /// The same, with what is known from the batches so far.
    pub(super) fn so_far(&self) -> Meta {
        let mut meta = Meta::clone(self);
        meta.add_found_out(&self.context.estimated, &self.context.errors);
        meta
    }
}

impl Deref for QueryMeta {
    type Target = Meta;

    fn deref(&self) -> &Meta {
        self.made.get_or_init(|| Meta { cut: self.cut.clone(), ..self.tables.meta(&self.context) })
    }
}

impl fmt::Debug for QueryMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        <Meta as fmt::Debug>::fmt(self, f)
    }
}

impl Serialize for QueryMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Meta::serialize(self, serializer)
    }
}

#[cfg(test)]
mod tests;
