//! Problems of views that a node does not serve.

use catalog::DefinitionKind;

use super::{Facts, Fault, Problem, Refused, Severity};

/// The node may belong to another installation: only views that this one has are reported.
pub(super) fn problems(facts: &Facts) -> Vec<Problem> {
    let is_ours = |refused: &&Refused| {
        let mut views = facts.state.live(DefinitionKind::View);
        views.any(|view| view.name == refused.view && view.version == refused.version)
    };
    facts.refused.iter().filter(is_ours).map(problem).collect()
}

fn problem(refused: &Refused) -> Problem {
    Problem {
        fault: Fault::ViewRefused,
        severity: Severity::Error,
        what: format!("{} (version {}) is not answered", refused.view, refused.version),
        cause: refused.error.clone(),
        effect: "every question about it is refused; other views are answered, and its events are archived".into(),
        next_step: "make its expressions total (`nullif`, `CASE`, `try_cast`) and `basestream apply`; a damaged file: `basestream repair`"
            .into(),
    }
}
