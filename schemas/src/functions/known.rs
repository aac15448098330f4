//! The names that a mistyped function may have meant.

use std::sync::LazyLock;

use datafusion::{functions, functions_aggregate, functions_nested};

use crate::functions::Functions;

/// All names of functions, the aggregates first: where an aggregate is as near as another function, it is meant.
pub(crate) fn known_names<'a>() -> impl Iterator<Item = &'a str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let ours = Functions::standard();
        let aggregates = functions_aggregate::all_default_aggregate_functions();
        let scalars = functions::all_default_functions().into_iter().chain(functions_nested::all_default_nested_functions());
        let mut names: Vec<String> = Vec::new();
        for function in aggregates.iter().chain(ours.aggregates()) {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        for function in scalars.collect::<Vec<_>>().iter().chain(ours.scalars()) {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        names
    });
    NAMES.iter().map(|name| -> &'a str { name })
}
