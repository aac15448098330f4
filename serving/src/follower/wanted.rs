//! Which views a node loads.

use std::collections::BTreeSet;

use catalog::DefinitionStatus;
use committed::registry::LiveView;

/// Which views a node loads, and can answer. A process that answers one query loads the views of that query
/// alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WantedViews {
    #[default]
    All,
    /// The views of these names, without kept versions. A name that no view has is left out.
    Named(BTreeSet<String>),
    /// Every live version of this one.
    Versions(String),
}

impl WantedViews {
    /// Loads this view alone.
    pub fn one(view: &str) -> Self {
        WantedViews::Named(BTreeSet::from([view.to_owned()]))
    }

    pub(super) fn contains(&self, live: &LiveView) -> bool {
        match self {
            WantedViews::All => true,
            WantedViews::Named(names) => names.contains(&*live.name) && live.status != DefinitionStatus::Kept,
            WantedViews::Versions(view) => *view == *live.name,
        }
    }
}
