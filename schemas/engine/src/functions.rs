//! The SQL functions that all layers share, and the way to add further aggregates.
//!
//! | function | what it is |
//! | --- | --- |
//! | `within(event time, window [, until])`, `as_of()` | markers that the planner removes from the plan |
//! | `poisson_sf(k, lambda)`, `zscore(x, mean, stddev)` | how unusual a number is |
//! | `last_n(x, n)` | the last n values, newest first |
//! | `top_k(x, k)` | the k most frequent values, with counts |
//! | `sequence_match`, `sequence_count`, `window_funnel`, `retention`, `session_count`, `longest_gap` | sequences of events |
//! | `avg(x)` | DataFusion's, with the digits of a quotient where x is a decimal |
//! | `array_agg(x ORDER BY ..)`, `string_agg(..)`, `count(DISTINCT x)` | DataFusion's, with accumulators of many groups |
//! | `string_agg(x, ..)` | DataFusion's, also with several orders in one SELECT |
//! | `sum(x)` | DataFusion's, with an error where it wraps around |
//! | `min(x)`, `max(x)` | DataFusion's, with NaN after all other numbers |
//! | `var`, `stddev`, `covar_*`, `corr`, `regr_*` | DataFusion's, with one state in every layer |
//!
//! Over a window that slides, those of floating point numbers are computed from its rows alone.
//!
//! `repeat`, `lpad`, `rpad`, `range`, `generate_series`, `array_repeat`, `array_resize`, `replace`, `regexp_replace`,
//! `array_to_string`, `encode` and `levenshtein` are DataFusion's, with bounds: a number or two texts in a query or a
//! view cannot exhaust the memory. `date_trunc` is DataFusion's, with constants before
//! 1970 rounded down. `date_part` has the fraction of seconds, and `round` of a real number goes to the even integer of
//! two, as in PostgreSQL. In queries, `to_char` also takes PostgreSQL's patterns. Members of JSON are read by functions
//! of datafusion-functions-json.
//!
//! All layers must plan with the same set, because states from one are merged by another.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, Expr, ScalarUDF};
use datafusion::prelude::SessionContext;

use types::Result;

mod as_computed;
mod bounded;
mod bounds;
mod calls;
mod date_parts;
pub(crate) mod decimals;
mod decimals_of_doubles;
mod direct;
mod distinct;
mod extremes;
mod group_rows;
pub(crate) mod integers;
mod interval_functions;
pub(crate) mod intervals;
mod json_members;
pub(crate) mod judged;
mod last_n;
pub(crate) mod limited;
mod lists;
pub(crate) mod local_times;
mod markers;
mod moments;
mod peak_factor;
mod room;
mod rounding;
mod sequences;
mod sliding;
pub(crate) mod state_bytes;
mod state_formats;
mod statistics;
pub(crate) mod sums;
pub(crate) mod time_patterns;
mod top_k;
pub(crate) mod truncation;
mod typed_texts;
pub(crate) mod value_texts;
mod wrapped;

pub(crate) use as_computed::as_computed;
pub(crate) use date_parts::{date_part, is_part_of_postgresql};
pub use decimals::QUOTIENT;
pub(crate) use decimals_of_doubles::decimal_of_double;
pub(crate) use direct::{DirectMerge, GroupedStates};
pub(crate) use distinct::{DistinctSet, DistinctSize};
pub(crate) use interval_functions::years_as_days;
pub use interval_functions::{MAKE_INTERVAL, PARTS_OF_INTERVAL, interval_functions, interval_product, interval_quotient};
pub(crate) use json_members::{JSON_MEMBER, json_member, json_member_as_text, written_member};
pub(crate) use judged::Flaw;
pub use local_times::time_in_zone;
pub use markers::{AS_OF, WITHIN, as_of, within};
pub(crate) use peak_factor::peak_factor;
pub(crate) use rounding::{ROUND, round};
pub use state_formats::state_stamp;
pub use sums::sums_to_verify;
pub use time_patterns::{chrono_pattern, to_char};
pub(crate) use top_k::top_k_is_exact;
pub use top_k::{TOP_K, TOP_K_CAPACITY};
pub use typed_texts::{AS_JSON, AS_UUID, typed_texts};

use last_n::last_n;
use statistics::{poisson_sf, zscore};
use top_k::top_k;

/// The most bytes, and the most values, that an accumulator hands on at once: half of what an Arrow column holds,
/// because one more batch may arrive before the size is checked.
const MOST_AT_ONCE: usize = 1 << 30;

/// The aggregates whose events are always in an order: that of their place breaks its ties.
pub(crate) const IN_ORDER: [&str; 4] = [last_n::LAST_N, sequences::SEQUENCE_MATCH, sequences::SEQUENCE_COUNT, sequences::WINDOW_FUNNEL];

/// Gives a call accumulators of ours that keep the same states as DataFusion's in less memory, if there are any. Other
/// calls are returned unchanged.
pub(crate) fn grouped(call: Expr) -> Expr {
    lists::grouped(distinct::grouped(call))
}

/// A set of scalar and aggregate functions to plan with, in addition to DataFusion's. Cheap to clone.
///
/// ```
/// # use engine::functions::Functions;
/// # use datafusion::prelude::SessionContext;
/// let functions = Functions::standard();        // .with_aggregate(my_aggregate)
/// functions.register(&SessionContext::new()).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Functions {
    scalars: Arc<BTreeMap<String, Arc<ScalarUDF>>>,
    aggregates: Arc<BTreeMap<String, Arc<AggregateUDF>>>,
}

impl Functions {
    /// basestream's own functions.
    pub fn standard() -> Self {
        let scalars = [within(), as_of(), poisson_sf(), zscore()];
        let aggregates = [last_n(), top_k(), decimals::avg(), sums::sum(), extremes::least(), extremes::greatest(), lists::string_agg()]
            .into_iter()
            .chain(sequences::aggregates())
            .chain(moments::aggregates());
        let functions = scalars.into_iter().fold(Self::default(), Self::with_scalar);
        aggregates.fold(functions, Self::with_aggregate)
    }

    /// Adds a scalar function. It replaces a function of the same name, including one of DataFusion's.
    ///
    /// It must be a pure function of its arguments: the batch and speed layers call it at different times.
    pub(crate) fn with_scalar(mut self, function: ScalarUDF) -> Self {
        Arc::make_mut(&mut self.scalars).insert(function.name().to_owned(), Arc::new(function));
        self
    }

    /// Adds an aggregate. It replaces a function of the same name, including one of DataFusion's.
    ///
    /// Its states are written to files and merged in any order and grouping, by other processes and later builds.
    /// `merge_batch` must therefore be commutative and associative. An aggregate needs a new name if the meaning of its
    /// state changes; a change of its types is detected.
    pub fn with_aggregate(mut self, function: AggregateUDF) -> Self {
        Arc::make_mut(&mut self.aggregates).insert(function.name().to_owned(), Arc::new(function));
        self
    }

    pub fn scalars(&self) -> impl Iterator<Item = &Arc<ScalarUDF>> {
        self.scalars.values()
    }

    pub fn aggregates(&self) -> impl Iterator<Item = &Arc<AggregateUDF>> {
        self.aggregates.values()
    }

    /// Registers these functions with a session.
    pub fn register(&self, session: &SessionContext) -> Result<()> {
        self.register_all(&mut *session.state_ref().write())
    }

    /// Registers these functions with a registry, such as a session's state. A registry that takes part in analysis
    /// also gets the check that `n` and `k` are literals within their bounds; with other registries the physical
    /// planner checks that.
    pub(crate) fn register_all(&self, registry: &mut dyn FunctionRegistry) -> Result<()> {
        for function in bounded::bounded() {
            registry.register_udf(Arc::clone(function))?;
        }
        for function in [truncation::date_trunc(), date_parts::date_part(), round(), json_member(), json_member_as_text()] {
            registry.register_udf(Arc::new(function))?;
        }
        for function in self.scalars() {
            registry.register_udf(Arc::clone(function))?;
        }
        for function in self.aggregates() {
            registry.register_udaf(Arc::clone(function))?;
        }
        calls::register_check(registry)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
