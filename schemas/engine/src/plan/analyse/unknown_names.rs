//! After the planner has refused a SELECT because of an unknown name, finds the other unknown names in it: the planner
//! reports one at a time. Each name is looked up alone, over the tables of the SELECT, so that no mistake follows from
//! another.

use std::ops::ControlFlow;

use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, Expr, Function, FunctionArg, FunctionArgumentList, FunctionArguments, GroupByExpr, SelectItem, SetExpr, Visitor,
};

use super::logical_plan::{logical, selected_alone, take_join_conditions};
use crate::plan::select_place::SelectError;
use definitions::syntax::SyntaxNode;
use types::{Error, Reason};

/// The number of names that are looked up.
const NAMES: usize = 100;

/// Returns the error with which the planner refused a SELECT and, if it is about the name of a column or a function, an
/// error for each other name that it refuses alone. Names in HAVING and in subqueries are left out, and so are all
/// others of a SELECT in which a name may be that of a parameter or a member.
pub(crate) async fn with_other_unknown_names(session: &SessionContext, query: &ast::Query, first: SelectError) -> Vec<SelectError> {
    let Some(name) = unknown_name(&first.error) else { return vec![first] };
    let (mut known, mut errors) = (vec![name], vec![first]);
    let names = SelectNames::read(query);
    if names.are_unclear {
        return errors;
    }
    for name in names.found {
        let Some(alone) = selected_alone(query, name) else { break };
        let Err(error) = logical(session, &alone).await else { continue };
        let error = SelectError::from(error);
        if let Some(name) = unknown_name(&error.error).filter(|name| !known.contains(name)) {
            known.push(name);
            errors.push(error);
        }
    }
    errors
}

/// If an error is about an unknown column or function: its message up to the end of the name.
fn unknown_name(error: &Error) -> Option<String> {
    let is_unknown = matches!(error.reason(), Some(Reason::UnknownColumn | Reason::UnknownFunction));
    is_unknown.then(|| error.message().split_inclusive('"').take(2).collect())
}

#[derive(Default)]
struct SelectNames {
    /// Columns, and calls without arguments.
    found: Vec<Expr>,
    /// Those that GROUP BY may name besides columns.
    aliases: Vec<String>,
    /// How many subqueries the visited expression is in.
    subqueries: usize,
    are_unclear: bool,
}

impl SelectNames {
    fn read(query: &ast::Query) -> SelectNames {
        let mut names = SelectNames::default();
        let SetExpr::Select(select) = &*query.body else { return names };
        for item in &select.projection {
            let _ = item.visit(&mut names);
        }
        for condition in take_join_conditions(&mut select.clone()) {
            let _ = condition.visit(&mut names);
        }
        if let Some(condition) = &select.selection {
            let _ = condition.visit(&mut names);
        }
        let alias = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.to_lowercase()),
            _ => None,
        };
        names.aliases = select.projection.iter().filter_map(alias).collect();
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            for key in keys {
                let _ = key.visit(&mut names);
            }
        }
        names
    }
}

impl Visitor for SelectNames {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.subqueries > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(name) if self.aliases.contains(&name.value.to_lowercase()) => {}
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.found.push(expr.clone()),
            Expr::Function(call) => {
                self.are_unclear |= has_named_argument(call);
                // Some functions are known with OVER alone.
                self.found.extend(call.over.is_none().then(|| Expr::Function(without_arguments(call))));
            }
            Expr::Lambda(_) => self.are_unclear = true,
            Expr::CompoundFieldAccess { access_chain, .. } => {
                self.are_unclear |= access_chain.iter().any(|access| matches!(access, AccessExpr::Dot(_)));
            }
            _ => {}
        }
        if self.found.len() < NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn has_named_argument(call: &Function) -> bool {
    let FunctionArguments::List(list) = &call.args else { return false };
    list.args.iter().any(|argument| !matches!(argument, FunctionArg::Unnamed(_)))
}

/// The planner looks up the function before it checks its arguments.
fn without_arguments(call: &Function) -> Function {
    Function {
        name: call.name.clone(),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args: Vec::new(), clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    }
}
