//! Problems of views: a node does not serve them, or events that they count are deleted.

use catalog::DefinitionKind;
use committed::registry::LiveView;

use super::{Facts, Fault, Problem, Refused, Severity};
use crate::check::retention::{ShortRetention, short_retentions_of};

/// The node may belong to another installation: only views that this one has are reported.
pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let is_ours = |refused: &&Refused| {
        let mut views = facts.state.live(DefinitionKind::View);
        views.any(|view| view.name == refused.view && view.version == refused.version)
    };
    let mut found: Vec<Problem> = facts.refused.iter().filter(is_ours).map(not_served).collect();
    let registry = facts.registry.iter().flatten();
    found.extend(registry.flat_map(short_retentions_of).map(|(view, short)| forgotten(view, &short)));
    found
}

/// Definitions of a release that did not refuse them.
fn forgotten(view: &LiveView, short: &ShortRetention) -> Problem {
    Problem {
        fault: Fault::RetentionShort,
        severity: Severity::Error,
        what: format!("the view {} (version {}) counts events that are deleted", view.name, view.version),
        cause: short.found(),
        effect: "each batch run recomputes the view without the events that were deleted: its values become too small, in silence".into(),
        next_step: format!("{}; then `basestream apply`", short.expected()),
    }
}

fn not_served(refused: &Refused) -> Problem {
    Problem {
        fault: Fault::ViewRefused,
        severity: Severity::Error,
        what: format!("the view {} (version {}) cannot be queried", refused.view, refused.version),
        cause: refused.error.clone(),
        effect: "every query of it fails; other views are served, and its events are archived".into(),
        next_step: "make its expressions total (`nullif`, `CASE`, `try_cast`) and run `basestream apply`; if a file is damaged, run `basestream repair`"
            .into(),
    }
}
