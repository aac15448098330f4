//! Errors about a name that no definition of a kind has. They list the names that exist.

use std::collections::BTreeSet;

use catalog::{CatalogState, DefinitionKind};
use types::Error;
use types::suggest::expected;

/// A definition, as far as an error names it.
pub type DefinedName<'a> = (DefinitionKind, &'a str);

/// What an error about a name says where the catalog has nothing of its kind.
pub const APPLY: &str = "`basestream apply` puts the files' definitions into the catalog";

/// Returns the error for a name that no definition of this kind in the catalog has. If one of another kind has it, the
/// error says so, and how that one is read.
pub fn not_defined<'a>(kind: DefinitionKind, name: &str, defined: impl IntoIterator<Item = DefinedName<'a>>) -> Error {
    let defined: Vec<DefinedName<'_>> = defined.into_iter().collect();
    let has_some = defined.iter().any(|(of, _)| *of == kind);
    let error = not_among(kind, name, defined);
    if has_some || error.fact("help").is_some() { error } else { error.with("help", APPLY) }
}

/// The same of definitions that are not those of the catalog.
pub fn not_among<'a>(kind: DefinitionKind, name: &str, defined: impl IntoIterator<Item = DefinedName<'a>>) -> Error {
    let defined: Vec<DefinedName<'_>> = defined.into_iter().collect();
    let of_kind = defined.iter().filter(|(of, _)| *of == kind).map(|(_, known)| *known);
    let known: Vec<&str> = of_kind.collect::<BTreeSet<_>>().into_iter().collect();
    let word = kind.word();
    let expected = expected(name, &known, &format!("no {word} is defined yet"));
    match defined.iter().find(|(other, known)| *other != kind && *known == name) {
        Some((other, _)) => {
            let found = format!("\"{name}\" is {}, and this is about {word}s: {expected}", other.with_article());
            Error::not_found(found).with("help", how_to_read(*other, name))
        }
        None => Error::not_found(format!("there is no {word} \"{name}\": {expected}")),
    }
}

/// Returns the error for a name that no view has.
pub fn no_view<'a>(name: &str, defined: impl IntoIterator<Item = DefinedName<'a>>) -> Error {
    not_defined(DefinitionKind::View, name, defined)
}

/// The names of all live definitions of a catalog state.
pub fn live_names(state: &CatalogState) -> impl Iterator<Item = DefinedName<'_>> {
    let live = DefinitionKind::ALL.into_iter().flat_map(move |kind| state.live(kind));
    live.map(|record| (record.kind, &*record.name))
}

/// How the rows or records of a definition are read.
pub fn how_to_read(kind: DefinitionKind, name: &str) -> String {
    match kind {
        DefinitionKind::Stream => format!("SQL reads its events: SELECT .. FROM {name}"),
        DefinitionKind::View => format!("SQL reads its rows: SELECT .. FROM {name}"),
        DefinitionKind::Sink => format!("`basestream sink read {name}` prints its records"),
        DefinitionKind::Alert => {
            format!("`basestream alert open {name}` lists the keys that satisfy it, `basestream alert read {name}` prints its records")
        }
        DefinitionKind::Parameter => format!("`basestream parameters {name}` prints its value"),
    }
}

#[cfg(test)]
mod tests;
