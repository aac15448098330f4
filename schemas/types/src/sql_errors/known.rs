//! The names that a mistyped function name may have meant.

use std::sync::LazyLock;

use datafusion::{functions, functions_aggregate, functions_nested};

/// Aggregates and functions that basestream adds to DataFusion's.
pub(crate) const OWN_AGGREGATES: [&str; 8] =
    ["last_n", "longest_gap", "retention", "sequence_count", "sequence_match", "session_count", "top_k", "window_funnel"];
pub(crate) const OWN_FUNCTIONS: [&str; 4] = ["as_of", "poisson_sf", "within", "zscore"];

/// Returns all function names, aggregates first: where an aggregate and another function are equally near, the
/// aggregate is meant.
pub(super) fn known_names<'a>() -> impl Iterator<Item = &'a str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<String> = Vec::new();
        for function in functions_aggregate::all_default_aggregate_functions() {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        names.extend(OWN_AGGREGATES.map(str::to_owned));
        for function in functions::all_default_functions().into_iter().chain(functions_nested::all_default_nested_functions()) {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        names.extend(OWN_FUNCTIONS.map(str::to_owned));
        names
    });
    NAMES.iter().map(|name| -> &'a str { name })
}
