//! The ledger's counts of a joined view. It keeps the two sides apart, so each side is counted by itself: its events, and those
//! of them that could be in a pair.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Select};
use schemas::{Error, Result};

use super::select::longest;
use super::sides::{Reach, Side, Sides};
use super::span::{Span, timestamp};
use super::{Moment, parse_query, top_select};

/// `passed`: the events that meet their own side's conditions and have a join key. `expired`: those of them that are before what
/// is kept.
pub(super) fn count(select: &mut Select, sides: &Sides, kept: &Reach, moment: Moment) -> Result<()> {
    let mut passing = passing(sides, select)?;
    let mut counts = Vec::new();
    for (index, side) in sides.sides.iter().enumerate() {
        let mut conditions = std::mem::take(&mut passing[index]);
        if moment.as_of {
            conditions.push(format!("{} <= {}", side.event_time(), timestamp(moment.t)));
        }
        let expired = match kept.0[index].from(moment.t) {
            Some(edge) => format!("{} < {}", side.event_time(), timestamp(edge)),
            None => "false".to_owned(),
        };
        counts.push(of_side(side, &["count(*) AS passed", &format!("count(*) FILTER (WHERE {expired}) AS expired")], &conditions));
    }
    replace(select, &["sum(passed) AS passed", "sum(expired) AS expired"], &counts)
}

/// `read`: the events of both sides.
pub(super) fn count_read(select: &mut Select, sides: &Sides) -> Result<()> {
    let counts: Vec<String> = sides.sides.iter().map(|side| of_side(side, &["count(*) AS read"], &[])).collect();
    replace(select, &["sum(read) AS read"], &counts)
}

/// How far back a join keeps each side. Of links, when they were last seen, for all time; where repetitions count, or an upper edge
/// leaves the latest out, every tile of the longest window that either side has.
pub(super) fn kept(reaches: &[Reach], repeated: bool, sides: &Sides) -> Reach {
    let spans = || reaches.iter().flat_map(|reach| reach.0.iter().copied());
    let by_tile = repeated || spans().any(|span| span.until.is_some());
    sides.reach(if by_tile { longest(spans()) } else { Span::ALL })
}

fn of_side(side: &Side, items: &[&str], conditions: &[String]) -> String {
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    format!("SELECT {} FROM {}{filter}", items.join(", "), side.relation)
}

fn replace(select: &mut Select, items: &[&str], counts: &[String]) -> Result<()> {
    let sql = format!("SELECT {} FROM ({}) AS sides", items.join(", "), counts.join(" UNION ALL "));
    *select = top_select(&mut parse_query(&sql)?)?.clone();
    Ok(())
}

/// Per side, what its events must meet to be in any pair, whatever the other side has.
fn passing(sides: &Sides, select: &Select) -> Result<Vec<Vec<String>>> {
    let mut passing = vec![Vec::new(); sides.sides.len()];
    for column in &sides.using {
        for (side, passing) in sides.sides.iter().zip(&mut passing) {
            passing.push(format!("{} IS NOT NULL", side.column(&column.to_string())));
        }
    }
    let mut conjuncts = Vec::new();
    sides.on.iter().chain(&select.selection).for_each(|condition| split(condition, &mut conjuncts));
    for conjunct in conjuncts {
        let named: Vec<usize> = sides.named_in(conjunct).into_iter().collect();
        match named.as_slice() {
            [] => passing.iter_mut().for_each(|passing| passing.push(format!("({conjunct})"))),
            [side] => passing[*side].push(format!("({conjunct})")),
            _ => {
                for (side, key) in between(sides, conjunct)? {
                    passing[side].push(format!("({key}) IS NOT NULL"));
                }
            }
        }
    }
    Ok(passing)
}

/// The conditions that AND holds together.
fn split<'a>(condition: &'a Expr, conjuncts: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Nested(inner) => split(inner, conjuncts),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(left, conjuncts);
            split(right, conjuncts);
        }
        other => conjuncts.push(other),
    }
}

/// What must not be NULL on each side of a comparison between the sides; nothing where `<>` keeps two end points apart.
fn between<'a>(sides: &Sides, conjunct: &'a Expr) -> Result<Vec<(usize, &'a Expr)>> {
    let refused = || Error::input(format!("the sides of a join are compared by = and <> alone, found {conjunct}"));
    let Expr::BinaryOp { left, op, right } = conjunct else { return Err(refused()) };
    let side_of = |expr: &Expr| match sides.named_in(expr).into_iter().collect::<Vec<_>>().as_slice() {
        [side] => Ok(*side),
        _ => Err(refused()),
    };
    match op {
        BinaryOperator::Eq => Ok(vec![(side_of(left)?, left), (side_of(right)?, right)]),
        BinaryOperator::NotEq => Ok(Vec::new()),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests;
