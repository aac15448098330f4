//! Finds views whose runs come after those of a view that never runs: unknown, without states, or after itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use definitions::{Definitions, Diagnostic, Schedule, ViewDefinition};
use types::suggest::nearest;

/// Returns the mistakes of all views. `is_left_out`: see `check_known`.
pub(super) fn mistakes(definitions: &Definitions, staging: &BTreeSet<Arc<str>>, is_left_out: impl Fn(&str) -> bool) -> Vec<Diagnostic> {
    let before: BTreeMap<&str, &str> = definitions.views.iter().filter_map(|view| Some((&*view.name, before(view)?))).collect();
    let mut found = Vec::new();
    for view in &definitions.views {
        let Some(other) = before.get(&*view.name) else { continue };
        let is_known = definitions.views.iter().any(|known| *known.name == **other);
        if !is_known && !is_left_out(other) {
            let near = nearest(other, definitions.views.iter().map(|known| &*known.name).filter(|known| **known != *view.name));
            let help = near.map_or("expected the name of a view in the files".to_owned(), |near| format!("did you mean '{near}'?"));
            found.push(mistake(view, &format!("after = '{other}' names no view"), &help));
        }
        if staging.contains(*other) {
            let help = "a view without an aggregate is inlined where it is used: expected a view that keeps states";
            found.push(mistake(view, &format!("after = '{other}' names a view without runs"), help));
        }
        if let Some(circle) = circle(&view.name, &before) {
            let help = "leave `after` out of one of them, and give it `every` or `schedule`";
            found.push(mistake(view, &format!("its runs would wait for themselves: {circle}"), help));
        }
    }
    found
}

fn before(view: &ViewDefinition) -> Option<&str> {
    match &view.schedule {
        Some(Schedule::After(other)) => Some(other),
        _ => None,
    }
}

/// Returns the way from a view back to itself: `a after b after a`.
fn circle(view: &str, before: &BTreeMap<&str, &str>) -> Option<String> {
    let mut way = vec![view];
    let mut at = view;
    // A circle that this view only leads to is reported for the views in it.
    for _ in 0..before.len() {
        at = before.get(at)?;
        way.push(at);
        if at == view {
            return Some(way.join(" after "));
        }
    }
    None
}

fn mistake(view: &ViewDefinition, found: &str, help: &str) -> Diagnostic {
    let message = format!("view \"{}\": {found}", view.name);
    Diagnostic::error(view.origin.line, 1, message).help(help).in_file(view.origin.file.as_deref())
}

#[cfg(test)]
mod tests;
