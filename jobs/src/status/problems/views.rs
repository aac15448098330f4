//! Problems of views: a node does not serve one, one leaves events out, or events that one counts are deleted.

use catalog::DefinitionKind;
use committed::registry::LiveView;

use super::{Facts, Fault, LeftOutEvents, Problem, RefusedView, Severity};
use crate::check::retention::{ShortRetention, short_retentions_of};
use crate::output::count_of;

/// The node may belong to another installation: only views that this one has are reported.
pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let is_live =
        |name: &str, version: u32| facts.state.live(DefinitionKind::View).any(|view| *view.name == *name && view.version == version);
    let refused = facts.refused.iter().filter(|refused| is_live(&refused.view, refused.version));
    let mut found: Vec<Problem> = refused.map(not_served).collect();
    let left_out = facts.left_out.iter().filter(|(view, _)| is_live(&view.name, view.version));
    found.extend(left_out.map(|(view, left_out)| failing(&view.name, view.version, left_out)));
    let registry = facts.registry.iter().flatten();
    found.extend(registry.flat_map(short_retentions_of).map(|(view, short)| forgotten(view, &short)));
    found
}

fn failing(view: &str, version: u32, left_out: &LeftOutEvents) -> Problem {
    Problem {
        fault: Fault::ViewErrors,
        severity: Severity::Warning,
        what: format!("the view {view} (version {version}) fails on {}", count_of(left_out.failed, "event")),
        cause: left_out.first.clone(),
        effect: "they do not count in this view; they are archived, and count in the other views".into(),
        next_step: format!(
            "`basestream dead-letters list --view {view}` lists them; if they should count, guard the expressions (`nullif`, `CASE`, \
             `try_cast`) and run `basestream apply`"
        ),
    }
}

/// Definitions of a release that did not refuse them.
fn forgotten(view: &LiveView, short: &ShortRetention) -> Problem {
    Problem {
        fault: Fault::RetentionShort,
        severity: Severity::Error,
        what: format!("the view {} (version {}) counts events that are deleted", view.name, view.version),
        cause: short.found(),
        effect: "each batch run recomputes the view without the events that were deleted: its values become too small, unnoticed".into(),
        next_step: format!("{}; then `basestream apply`", short.expected()),
    }
}

fn not_served(refused: &RefusedView) -> Problem {
    Problem {
        fault: Fault::ViewRefused,
        severity: Severity::Error,
        what: format!("the view {} (version {}) cannot be queried", refused.view, refused.version),
        cause: refused.error.clone(),
        effect: "every query of it fails; other views are served, and its events are archived".into(),
        next_step: "guard its expressions (`nullif`, `CASE`, `try_cast`) or leave `on_error = 'refuse'` out, and run `basestream apply`; \
            if a file is damaged, run `basestream repair`"
            .into(),
    }
}
