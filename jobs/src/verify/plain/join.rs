//! The ledger's counts for a linked view. Its states keep the two sides apart, so the events of each side are counted
//! separately, and those of them that could be in a pair.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, GroupByExpr, Select};
use types::{Error, Result};

use super::Moment;
use super::names::quoted;
use super::parsed::{parse_query, top_select};
use super::sides::{JoinedRelation, Reach, Sides};
use super::span::{longest, timestamp};

/// Counts `passed`: the events that meet the conditions of their own side and have a join key; and `expired`: those of
/// them that are older than what is kept.
pub(super) fn count(select: &mut Select, sides: &Sides, kept: &Reach, moment: Moment) -> Result<()> {
    let mut passing = pair_conditions(sides, select)?.conditions;
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
        counts.push(select_from_side(side, &["count(*) AS passed", &format!("count(*) FILTER (WHERE {expired}) AS expired")], &conditions));
    }
    replace(select, &["sum(passed) AS passed", "sum(expired) AS expired"], &counts)
}

/// Counts `read`: the events of both sides.
pub(super) fn count_read(select: &mut Select, sides: &Sides) -> Result<()> {
    let counts: Vec<String> = sides.sides.iter().map(|side| select_from_side(side, &["count(*) AS read"], &[])).collect();
    replace(select, &["sum(read) AS read"], &counts)
}

/// Returns how far back each side is kept. Links that keep when they were last seen: as far as any column reads that
/// side. If repeated values count, or an upper edge excludes the newest events: every tile of the longest window of
/// either side.
pub(super) fn kept_reach(reaches: &[Reach], existence: &Reach, repeated: bool, sides: &Sides) -> Reach {
    let spans = || reaches.iter().flat_map(|reach| reach.0.iter().copied());
    let by_tile = repeated || spans().any(|span| span.until.is_some());
    if by_tile { sides.reach(longest(spans())) } else { existence.clone() }
}

fn select_from_side(side: &JoinedRelation, items: &[&str], conditions: &[String]) -> String {
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    format!("SELECT {} FROM {}{filter}", items.join(", "), side.relation)
}

pub(super) fn replace(select: &mut Select, items: &[&str], counts: &[String]) -> Result<()> {
    let sql = format!("SELECT {} FROM ({}) AS sides", items.join(", "), counts.join(" UNION ALL "));
    *select = top_select(&mut parse_query(&sql)?)?.clone();
    Ok(())
}

/// Turns the SELECT into the keys that may have too many pairs to follow: a key that meets more than `max_degree`
/// different join keys, or one that meets a join key with more than `max_degree` events on the other side. `keys` are
/// the view's, each with its name.
///
/// Returns false if the text does not show which side has the group keys.
pub(super) fn crowd(
    select: &mut Select,
    sides: &Sides,
    group_by: &GroupByExpr,
    keys: &[(String, String)],
    max_degree: u32,
) -> Result<bool> {
    let (Some(near), GroupByExpr::Expressions(groups, _)) = (near_of(sides, group_by), group_by) else { return Ok(false) };
    let far = 1 - near;
    let PairConditions { conditions, equal } = pair_conditions(sides, select)?;
    let items: Vec<String> = keys.iter().map(|(key, name)| format!("{key} AS {}", quoted(name))).collect();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let (items, groups) = (items.join(", "), groups.join(", "));
    let keys_of = |side: usize| equal.iter().map(|pair| pair[side].clone()).collect::<Vec<_>>();
    let (near_keys, far_keys) = (keys_of(near), keys_of(far));
    let met = if let [one] = near_keys.as_slice() { one.clone() } else { format!("struct({})", near_keys.join(", ")) };
    let (near_is, far_is) = (conditions[near].join(" AND "), conditions[far].join(" AND "));
    let (near, far) = (&sides.sides[near].relation, &sides.sides[far].relation);
    let named: Vec<String> = far_keys.iter().enumerate().map(|(i, key)| format!("{key} AS __key{i}")).collect();
    let on: Vec<String> = near_keys.iter().enumerate().map(|(i, key)| format!("{key} = __crowded.__key{i}")).collect();
    let many = format!("SELECT {items} FROM {near} WHERE {near_is} GROUP BY {groups} HAVING count(DISTINCT {met}) > {max_degree}");
    let crowded =
        format!("SELECT {} FROM {far} WHERE {far_is} GROUP BY {} HAVING count(*) > {max_degree}", named.join(", "), far_keys.join(", "));
    let lead =
        format!("SELECT {items} FROM {near} JOIN ({crowded}) AS __crowded ON {} WHERE {near_is} GROUP BY {groups}", on.join(" AND "));
    replace(select, &["*"], &[many, lead])?;
    Ok(true)
}

/// Returns the side of the group keys, if they determine it.
pub(super) fn near_of(sides: &Sides, group_by: &GroupByExpr) -> Option<usize> {
    let GroupByExpr::Expressions(groups, _) = group_by else { return None };
    let near: std::collections::BTreeSet<usize> = groups.iter().flat_map(|group| sides.named_in(group)).collect();
    match near.into_iter().collect::<Vec<_>>()[..] {
        [near] => Some(near),
        _ => None,
    }
}

pub(super) struct PairConditions {
    /// For each side, the conditions that its events must meet to be in any pair, whatever the other side has.
    pub(super) conditions: Vec<Vec<String>>,
    /// The join keys of both sides.
    pub(super) equal: Vec<[String; 2]>,
}

pub(super) fn pair_conditions(sides: &Sides, select: &Select) -> Result<PairConditions> {
    let mut equal = Vec::new();
    let mut passing = vec![Vec::new(); sides.sides.len()];
    for column in &sides.using {
        let column = column.to_string();
        equal.push([sides.sides[0].column(&column), sides.sides[1].column(&column)]);
    }
    let mut conjuncts = Vec::new();
    sides.on.iter().chain(&select.selection).for_each(|condition| split(condition, &mut conjuncts));
    for conjunct in conjuncts {
        let named: Vec<usize> = sides.named_in(conjunct).into_iter().collect();
        match named.as_slice() {
            [] => passing.iter_mut().for_each(|passing| passing.push(format!("({conjunct})"))),
            [side] => passing[*side].push(format!("({conjunct})")),
            _ => {
                equal.extend(between(sides, conjunct)?);
            }
        }
    }
    for pair in &equal {
        for (key, passing) in pair.iter().zip(&mut passing) {
            passing.push(format!("({key}) IS NOT NULL"));
        }
    }
    Ok(PairConditions { conditions: passing, equal })
}

/// Splits a condition into the parts joined by AND.
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

/// Returns the join keys of a comparison between the sides, in order; `None` for `<>`, which keeps two end points
/// apart.
fn between(sides: &Sides, conjunct: &Expr) -> Result<Option<[String; 2]>> {
    let refused = || Error::input(format!("the sides of a join are compared by = and <> alone, found {conjunct}"));
    let Expr::BinaryOp { left, op, right } = conjunct else { return Err(refused()) };
    let side_of = |expr: &Expr| match sides.named_in(expr).into_iter().collect::<Vec<_>>().as_slice() {
        [side] => Ok(*side),
        _ => Err(refused()),
    };
    match op {
        BinaryOperator::Eq => match (side_of(left)?, side_of(right)?) {
            (0, 1) => Ok(Some([left.to_string(), right.to_string()])),
            (1, 0) => Ok(Some([right.to_string(), left.to_string()])),
            _ => Err(refused()),
        },
        BinaryOperator::NotEq => Ok(None),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests;
