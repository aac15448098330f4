//! What an answer is made from. It comes with every answer, so that answers can be compared, repeated and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::events::format_timestamp;
use engine::plan::ColumnKind;
use serde::{Serialize, Serializer};
use types::failures::Failures;
use types::tiles::Micros;
use types::vector::Vector;

use crate::query_context::{EstimatedColumns, QueryContext};
use crate::read_view::{LoadedView, ReadView};
use crate::value_errors::{ValueError, ValueErrors};

mod shared;

pub(crate) use shared::{KeptMetas, LookupMeta};

/// An answer's position and its qualities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Meta {
    /// Per partition, the next offset: every accepted event before it is counted, none after it. As JSON a token.
    #[serde(serialize_with = "token")]
    pub cut: Vector,
    /// The answer's `t`; of several views with the event clock, the greatest.
    #[serde(serialize_with = "time")]
    pub as_of: Micros,
    /// Every event the log accepted before this is counted: the minimum over the partitions of what was asked.
    #[serde(serialize_with = "optional_time")]
    pub complete_to: Option<Micros>,
    /// The streams asked of which no record has been read yet: that there is no such key says nothing then.
    pub unread: Vec<Arc<str>>,
    /// When the (oldest) snapshot was made that the answer builds on.
    #[serde(serialize_with = "optional_time")]
    pub snapshot_at: Option<Micros>,
    /// The version of each view asked.
    pub versions: BTreeMap<Arc<str>, u32>,
    /// True if a published snapshot could not be used (it is damaged, or its states are of another format) and the
    /// answer was made without it; or if uncommitted work was withdrawn and the answer stays where it was before.
    pub degraded: bool,
    /// Why it is degraded.
    pub degraded_reason: Option<String>,
    /// The columns asked whose aggregates are approximate.
    pub approximate: Vec<String>,
    /// The values that could not be computed: in their rows they are NULL.
    pub errors: Vec<ValueError>,
    /// How many events the views asked leave out because they fail on them, see `system.view_errors`.
    pub failed: u64,
    /// The kept tiles do not answer `t` (an `as_of` in the past, or a snapshot made for a later time): it was computed
    /// from the archive, exactly and more slowly.
    pub from_archive: bool,
    /// The streams whose retention the answer reaches past: a window begins before it, so that events which counted may
    /// be deleted.
    pub past_retention: Vec<Arc<str>>,
}

/// A view that was asked.
pub(crate) struct AskedView<'a> {
    pub(crate) view: &'a LoadedView,
    /// The indices of its columns that were; `None` where its states were asked, not its answer.
    pub(crate) columns: Option<&'a [usize]>,
}

impl Meta {
    /// The meta of a query over these views and (the raw events of) these streams.
    pub(crate) fn new(context: &QueryContext, views: &[AskedView<'_>], streams: &[Arc<str>]) -> Meta {
        let read_view = &context.read_view;
        let times = views.iter().map(|asked| context.t(&asked.view.live));
        let of_views = views.iter().map(|asked| read_view.complete_to_of(&asked.view.live));
        let is_asked = |stream: &str| streams.iter().any(|asked| **asked == *stream);
        let of_streams = read_view.complete_partitions(is_asked).map(|(_, complete_to)| complete_to);
        let mut approximate: Vec<String> = views.iter().flat_map(approximate_columns).collect();
        approximate.sort();
        approximate.dedup();
        let degraded_reason = context.degraded(views.iter().map(|asked| asked.view));
        Meta {
            cut: read_view.vector.clone(),
            as_of: times.max().unwrap_or_else(|| context.t_without_view()),
            complete_to: of_views.chain(of_streams).min().flatten(),
            unread: unread(read_view, views, streams),
            snapshot_at: views.iter().filter_map(|asked| asked.view.snapshot.as_ref()).map(|snapshot| snapshot.manifest.made_at).min(),
            versions: views.iter().map(|asked| (asked.view.live.name.clone(), asked.view.live.version)).collect(),
            degraded: degraded_reason.is_some(),
            degraded_reason,
            approximate,
            errors: Vec::new(),
            failed: views.iter().flat_map(|asked| read_view.failures_of(asked.view)).map(Failures::count).sum(),
            from_archive: views.iter().any(|asked| asked.is_from_archive(context)),
            past_retention: past_retention(context, views),
        }
    }

    /// Adds the columns that turned out to be estimates, and the values that could not be computed.
    pub(crate) fn add_found_out(&mut self, estimated: &EstimatedColumns, errors: &ValueErrors) {
        self.errors = errors.listed();
        self.approximate.extend(estimated.names());
        self.approximate.sort();
        self.approximate.dedup();
    }
}

impl AskedView<'_> {
    fn is_from_archive(&self, context: &QueryContext) -> bool {
        self.columns.is_some() && context.needs_archive(self.view)
    }
}

/// What the kept tiles answer does not need the archive.
fn past_retention(context: &QueryContext, views: &[AskedView<'_>]) -> Vec<Arc<str>> {
    let from_archive = views.iter().filter(|asked| asked.is_from_archive(context));
    let streams: BTreeSet<&Arc<str>> = from_archive.flat_map(|asked| context.past_retention(asked.view)).collect();
    streams.into_iter().cloned().collect()
}

fn unread(read_view: &ReadView, views: &[AskedView<'_>], streams: &[Arc<str>]) -> Vec<Arc<str>> {
    let of_views = views.iter().flat_map(|asked| &asked.view.live.plan.streams).map(|stream| &stream.name);
    let is_read = |stream: &Arc<str>| read_view.vector.iter().any(|(partition, _)| partition.stream == *stream);
    let unread: BTreeSet<&Arc<str>> = of_views.chain(streams).filter(|stream| !is_read(stream)).collect();
    unread.into_iter().cloned().collect()
}

fn approximate_columns(asked: &AskedView<'_>) -> Vec<String> {
    let columns = asked.columns.into_iter().flatten().filter_map(|index| asked.view.live.plan.columns.get(*index));
    let is_approximate = |kind: &ColumnKind| matches!(kind, ColumnKind::Value(value) if value.approximate);
    columns.filter(|column| is_approximate(&column.kind)).map(|column| column.field.name().clone()).collect()
}

pub(crate) fn token<S: Serializer>(cut: &Vector, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cut.token())
}

pub(crate) fn time<S: Serializer>(time: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_timestamp(*time))
}

pub(crate) fn optional_time<S: Serializer>(at: &Option<Micros>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => time(at, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests;
