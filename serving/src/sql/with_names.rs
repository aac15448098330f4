//! The names that WITH gives to queries, while a statement is visited: a table of the same name is not meant by them.

use std::collections::{BTreeSet, VecDeque};

use datafusion::sql::sqlparser::ast::With;

use super::names::resolved;

/// Those that are visible where the visit is.
#[derive(Default)]
pub(super) struct WithNames {
    /// Of the queries around the one that is visited, outermost first.
    scopes: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    visible: BTreeSet<String>,
    /// Those whose definitions are still to be visited, in order; a definition sees the names before its own.
    coming: VecDeque<String>,
}

impl WithNames {
    /// Goes to the body of a query within the one before: it sees all names of its WITH.
    pub(super) fn enter_body(&mut self, with: Option<&With>) {
        let names: Vec<String> = with.into_iter().flat_map(|with| &with.cte_tables).map(|cte| resolved(&cte.alias.name)).collect();
        let coming = if with.is_some_and(|with| with.recursive) { VecDeque::new() } else { names.iter().cloned().collect() };
        self.scopes.push(Scope { visible: names.into_iter().collect(), coming });
    }

    /// Goes to the definitions of its WITH, which sqlparser visits before the rest of the query.
    pub(super) fn go_to_definitions(&mut self) {
        if let Some(scope) = self.scopes.last_mut().filter(|scope| !scope.coming.is_empty()) {
            scope.visible.clear();
        }
    }

    /// Leaves a query: if it is a definition, what follows it sees its name.
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
