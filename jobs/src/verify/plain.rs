//! The expected side of `verify`: a view as one plain SQL SELECT over its streams, for one point in time.
//!
//! Nothing here uses states, tiles or plans. The view's own text is rewritten: every aggregate's FILTER gets the
//! window's edge as a comparison with the event time, `within` becomes its comparisons, and `as_of()` becomes its
//! value. Hops are computed by separate rules, so a mistake in the layers' planning cannot be repeated here.

use std::collections::BTreeMap;
use std::sync::Arc;

use definitions::{Definitions, ViewDefinition};
use types::tiles::Micros;
use types::{Error, Result};

mod calls;
mod carry;
mod distinct;
mod join;
mod limits;
mod names;
mod parsed;
mod select;
mod sides;
mod span;
mod weights;

pub use limits::register;
pub(super) use select::MAY_BE_PAST;
pub use select::PlainColumn;
pub use weights::WeightPart;

use parsed::top_select;

/// The default of `max_degree`, repeated here on purpose.
const MAX_DEGREE: u32 = 10_000;

/// The time for which a view is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub t: Micros,
    /// Queried with `as_of`: events after `t` do not count.
    pub as_of: bool,
}

/// A view as plain SQL. Its tables are named like the streams and have, after the streams' own columns, `__event_time`,
/// `__source`, `__partition` and `__offset`.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// Returns one row per key, with the view's columns under their names.
    pub sql: String,
    pub columns: Vec<PlainColumn>,
    /// How often the SELECT reads each of its streams (twice if both sides of a UNION ALL name it).
    pub reads: BTreeMap<Arc<str>, usize>,
    /// Returns one row: `passed`, the events that pass every WHERE, and `expired`, those of them before the edge of the
    /// longest window.
    pub counts_sql: String,
    /// Returns one row: `read`, the events before any WHERE.
    pub read_sql: String,
    /// For a linked view: the keys whose rows may be estimates, because they have more neighbours than are followed.
    pub crowded_sql: Option<String>,
    /// What the error of such an estimate depends on: a [`WeightPart`]'s index, the keys, and two numbers for each
    /// column that is a total.
    pub weights_sql: Option<String>,
    /// Which values are past a limit, for which the view answers an error: the keys, and a BOOLEAN under the name of
    /// each column that can be.
    pub past_sql: Option<String>,
    /// Where some column collects values, up to `max_state_bytes`: `sql` with a BOOLEAN as one more column, the last
    /// one. It is false only for rows of which no value is past a limit. Cheaper than `past_sql`, which is needed only
    /// where a row says so.
    pub may_be_past_sql: Option<String>,
    /// With more neighbours than this a linked view is estimated.
    pub max_degree: u32,
}

/// Rewrites a view. `is_aggregate` recognises aggregates among the functions of the session that will run the text.
pub fn plain(view: &ViewDefinition, definitions: &Definitions, is_aggregate: &dyn Fn(&str) -> bool, moment: Moment) -> Result<Plain> {
    let about = |error: Error| error.with("view", &view.name);
    let carry::CarriedQuery { mut query, reads, sides } = carry::carry(view, definitions, carry::InnerFilters::Kept).map_err(about)?;
    let (mut counts, mut crowded) = (query.clone(), query.clone());
    let mut read = carry::carry(view, definitions, carry::InnerFilters::Dropped).map_err(about)?;
    let rewritten = select::rewrite(top_select(&mut query)?, &sides, view, is_aggregate, moment).map_err(about)?;
    select::count(top_select(&mut counts)?, &sides, &rewritten, moment).map_err(about)?;
    select::count_read(top_select(&mut read.query)?, &read.sides)?;
    let (counts_sql, read_sql) = (counts.to_string(), read.query.to_string());
    let max_degree = view.max_degree.unwrap_or(MAX_DEGREE);
    let mut past = query.clone();
    select::ask_past(top_select(&mut past)?, &rewritten).map_err(about)?;
    let past_sql = (!rewritten.past.is_empty()).then(|| past.to_string());
    let mut may_be_past_sql = None;
    if rewritten.past.iter().any(|(_, is_past)| limits::asks_for_bytes(is_past)) {
        let mut may_be_past = query.clone();
        select::add_may_be_past(top_select(&mut may_be_past)?, &rewritten).map_err(about)?;
        may_be_past_sql = Some(may_be_past.to_string());
    }
    let (mut crowded_sql, mut weights_sql) = (None, None);
    if sides.is_joined() {
        let keys: Vec<_> = rewritten.columns.iter().filter(|column| column.is_key).map(|key| (key.sql.clone(), key.name.clone())).collect();
        let group_by = top_select(&mut query)?.group_by.clone();
        let has_crowds = join::crowd(top_select(&mut crowded)?, &sides, &group_by, &keys, max_degree).map_err(about)?;
        crowded_sql = has_crowds.then(|| crowded.to_string());
        let mut weighed = query.clone();
        let has_weights = weights::weigh(top_select(&mut weighed)?, &sides, &rewritten, moment).map_err(about)?;
        weights_sql = has_weights.then(|| weighed.to_string());
    }
    let (sql, columns) = (query.to_string(), rewritten.columns);
    Ok(Plain { sql, columns, reads, counts_sql, read_sql, crowded_sql, weights_sql, past_sql, may_be_past_sql, max_degree })
}

#[cfg(test)]
mod tests;
