//! Which views a node loads.

use std::collections::BTreeSet;

/// Which views a node loads, and can answer. A process that answers one question loads the views of that question alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WantedViews {
    #[default]
    All,
    /// Those of these names; a name without a view is none.
    Named(BTreeSet<String>),
}

impl WantedViews {
    pub fn one(view: &str) -> Self {
        WantedViews::Named(BTreeSet::from([view.to_owned()]))
    }

    pub(super) fn contains(&self, view: &str) -> bool {
        match self {
            WantedViews::All => true,
            WantedViews::Named(names) => names.contains(view),
        }
    }
}
