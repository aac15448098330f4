//! Keeps track of the names in WITH while a statement is visited. Such a name does not mean a table of the same name.

use std::collections::{BTreeSet, VecDeque};

use datafusion::sql::sqlparser::ast::With;

use super::names::resolved;

/// The names that are visible at the visited place.
#[derive(Default)]
pub(super) struct WithNames {
    /// The scopes of the enclosing queries, outermost first.
    scopes: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    visible: BTreeSet<String>,
    /// The names whose definitions are still to be visited, in order. A definition sees the names before its own.
    coming: VecDeque<String>,
}

impl WithNames {
    /// Enters the body of a query, which sees all names of its WITH.
    pub(super) fn enter_body(&mut self, with: Option<&With>) {
        let names: Vec<String> = with.into_iter().flat_map(|with| &with.cte_tables).map(|cte| resolved(&cte.alias.name)).collect();
        let coming = if with.is_some_and(|with| with.recursive) { VecDeque::new() } else { names.iter().cloned().collect() };
        self.scopes.push(Scope { visible: names.into_iter().collect(), coming });
    }

    /// Enters the definitions of the query's WITH, which sqlparser visits before the rest of the query.
    pub(super) fn go_to_definitions(&mut self) {
        if let Some(scope) = self.scopes.last_mut().filter(|scope| !scope.coming.is_empty()) {
            scope.visible.clear();
        }
    }

    /// Leaves a query. If it is a definition in a WITH, everything after it sees its name.
    pub(super) fn leave(&mut self) {
        self.scopes.pop();
        if let Some(parent) = self.scopes.last_mut()
            && let Some(name) = parent.coming.pop_front()
        {
            parent.visible.insert(name);
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.visible.contains(name))
    }
}
