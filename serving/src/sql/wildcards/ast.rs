//! Parts of a SELECT: its relations, its joins, and what a `*` leaves out.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Ident, Join, JoinConstraint, JoinOperator, ObjectName, SelectItem, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};

use crate::sql::names::resolved;

/// Adds columns to those that a `*` leaves out.
pub(in crate::sql) fn leave_out(options: &mut WildcardAdditionalOptions, columns: &[String]) {
    let already = left_out(options);
    let mut more = columns.iter().filter(|column| !already.contains(*column)).map(|column| Ident::with_quote('"', column));
    match &mut options.opt_except {
        Some(except) => except.additional_elements.extend(more),
        None => {
            if let Some(first_element) = more.next() {
                options.opt_except = Some(ExceptSelectItem { first_element, additional_elements: more.collect() });
            }
        }
    }
}

pub(super) fn left_out(options: &WildcardAdditionalOptions) -> BTreeSet<String> {
    let except = options.opt_except.iter().flat_map(|except| std::iter::once(&except.first_element).chain(&except.additional_elements));
    let exclude = options.opt_exclude.iter().flat_map(|exclude| match exclude {
        ExcludeSelectItem::Single(one) => std::slice::from_ref(one),
        ExcludeSelectItem::Multiple(several) => several.as_slice(),
    });
    except.map(resolved).chain(exclude.filter_map(last)).collect()
}

pub(super) fn wildcard_options(item: &SelectItem) -> Option<&WildcardAdditionalOptions> {
    match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => Some(options),
        _ => None,
    }
}

pub(super) fn relations_of<'a>(tables: &'a mut TableWithJoins, relations: &mut Vec<&'a mut TableFactor>) {
    let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
    for relation in std::iter::once(&mut tables.relation).chain(joined) {
        match relation {
            TableFactor::NestedJoin { table_with_joins, .. } => relations_of(table_with_joins, relations),
            _ => relations.push(relation),
        }
    }
}

pub(super) fn joins(from: &[TableWithJoins]) -> Vec<&Join> {
    let mut joins = Vec::new();
    for tables in from {
        joins.extend(&tables.joins);
        for relation in std::iter::once(&tables.relation).chain(tables.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = relation {
                joins.extend(self::joins(std::slice::from_ref(table_with_joins)));
            }
        }
    }
    joins
}

pub(super) fn constraint(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint)
        | JoinOperator::StraightJoin(constraint)
        | JoinOperator::AsOf { constraint, .. } => Some(constraint),
        _ => None,
    }
}

pub(super) fn last(name: &ObjectName) -> Option<String> {
    name.0.last()?.as_ident().map(resolved)
}

pub(super) fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}
