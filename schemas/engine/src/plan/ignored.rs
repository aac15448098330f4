//! Refuses clauses that the parser reads and DataFusion silently ignores, because the answer would not be what the
//! query asks for.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArguments, Query, Select, TableFactor, Visitor,
};
use datafusion::{functions, functions_nested};
use definitions::syntax::SyntaxNode;

/// The first clause in a statement or query that DataFusion would ignore.
pub fn ignored_clause(node: &impl SyntaxNode) -> Option<&'static str> {
    let mut ignored = Ignored(None);
    let _ = node.visit(&mut ignored);
    ignored.0
}

struct Ignored(Option<&'static str>);

impl Ignored {
    fn first_of<const N: usize>(&mut self, clauses: [(bool, &'static str); N]) -> ControlFlow<()> {
        self.0 = clauses.into_iter().find_map(|(is_there, clause)| is_there.then_some(clause));
        if self.0.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Ignored {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.first_of([(query.settings.is_some(), "SETTINGS"), (query.format_clause.is_some(), "FORMAT")])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.first_of([
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        ])
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { sample, partitions, with_hints, index_hints, with_ordinality, .. } => self.first_of([
                (*with_ordinality, "WITH ORDINALITY"),
                (sample.is_some(), "TABLESAMPLE"),
                (!partitions.is_empty(), "PARTITION"),
                (!with_hints.is_empty() || !index_hints.is_empty(), "a hint of a table"),
            ]),
            TableFactor::Derived { sample, .. } => self.first_of([(sample.is_some(), "TABLESAMPLE")]),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The part that DataFusion would ignore of the first such call in a statement or query: a second list of arguments, or
/// a clause for aggregates in a call of another function.
pub fn ignored_in_calls(node: &impl SyntaxNode) -> Option<&'static str> {
    let mut found = None;
    let _ = node.visit_expressions(|expr| {
        if let Expr::Function(call) = expr {
            found = ignored_in_call(call);
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// Aggregates that read each row, whether DISTINCT is written or not.
const OF_EACH_ROW: [&str; 6] = ["corr", "covar", "covar_pop", "covar_samp", "approx_percentile_cont", "approx_percentile_cont_with_weight"];
/// How the names of other such aggregates begin.
const REGRESSIONS: &str = "regr_";
/// DataFusion declares the state of its DISTINCT as a set, and computes one number over all rows of a group: where the
/// state is kept, it fails, and elsewhere it ignores DISTINCT.
const BIT_XOR: &str = "bit_xor";
/// The part of such a call that is ignored.
pub(super) const DISTINCT_IN_BIT_XOR: &str = "DISTINCT in bit_xor";

/// The part of a call that DataFusion would ignore: a list of arguments before another list, DISTINCT in an aggregate
/// of [`OF_EACH_ROW`] or in [`BIT_XOR`], or a clause for aggregates in a call of another function. `coalesce(sum(x), 0)
/// FILTER (WHERE ..)` would be the sum of all.
pub(super) fn ignored_in_call(call: &Function) -> Option<&'static str> {
    if !matches!(call.parameters, FunctionArguments::None) {
        return Some("a call with two lists of arguments");
    }
    let list = match &call.args {
        FunctionArguments::List(list) => Some(list),
        _ => None,
    };
    let is_distinct = list.is_some_and(|list| list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
    let is_ordered = list.is_some_and(|list| list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_))));
    let clauses = [
        (call.filter.is_some(), "FILTER of a function that is no aggregate"),
        (is_distinct, "DISTINCT in a function that is no aggregate"),
        (is_ordered, "ORDER BY in a function that is no aggregate"),
        (!call.within_group.is_empty(), "WITHIN GROUP of a function that is no aggregate"),
    ];
    let clause = clauses.into_iter().find_map(|(is_there, clause)| is_there.then_some(clause))?;
    let name = call.name.to_string().to_lowercase();
    if is_distinct && (OF_EACH_ROW.contains(&name.as_str()) || name.starts_with(REGRESSIONS)) {
        return Some("DISTINCT in an aggregate of each row");
    }
    if is_distinct && name == BIT_XOR {
        return Some(DISTINCT_IN_BIT_XOR);
    }
    is_no_aggregate(&name).then_some(clause)
}

fn is_no_aggregate(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let built_in = functions::all_default_functions().into_iter().chain(functions_nested::all_default_nested_functions());
        let names =
            built_in.flat_map(|function| function.aliases().iter().cloned().chain([function.name().to_owned()]).collect::<Vec<_>>());
        names.chain(["poisson_sf", "zscore"].map(str::to_owned)).collect()
    });
    NAMES.contains(name)
}

#[cfg(test)]
mod tests;
