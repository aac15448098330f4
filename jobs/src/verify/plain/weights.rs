//! How much single neighbours contribute to a linked view's totals: the error of estimated totals depends on it.
//!
//! A walk past `max_degree` follows a sample of the near nodes (the join keys that a key meets) and of the far end
//! points. The error of a total depends on the variance of such an estimate, which is computed from the squares of the
//! contributions (`super::super::spread`).

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select};
use types::Result;

use super::join::{PairConditions, near_of, pair_conditions, replace};
use super::names::quoted;
use super::parsed::{parse_expr, parse_item};
use super::select::Rewritten;
use super::sides::Sides;
use super::{Moment, calls};

/// What a row of the weights holds for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightPart {
    /// For each total, the sum of squares and the greatest of the contributions of the near nodes.
    Nodes,
    /// The same for the far end points.
    Ends,
    /// The same for each near node and far end point together.
    Pairs,
    /// The number of near nodes.
    NearDegree,
    /// The number of end points of the largest node.
    FarDegree,
}

impl WeightPart {
    pub const ALL: [WeightPart; 5] =
        [WeightPart::Nodes, WeightPart::Ends, WeightPart::Pairs, WeightPart::NearDegree, WeightPart::FarDegree];
}

/// Turns the rewritten SELECT into the weights of its totals: the index of a [`WeightPart`], the keys, then two
/// numbers for each total. A degree is in the first number. Returns false if nothing is estimated.
pub(super) fn weigh(select: &mut Select, sides: &Sides, rewritten: &Rewritten, moment: Moment) -> Result<bool> {
    let (Some(near), true) = (near_of(sides, &select.group_by), rewritten.columns.iter().any(|column| column.is_total)) else {
        return Ok(false);
    };
    let passing = pair_conditions(sides, select)?;
    let weights = Weights { select, sides, rewritten, near, ends: ends_of(select, sides, 1 - near, &passing)?, passing, moment };
    let via = weights.via(near);
    let parts = [
        weights.squares(&via)?,
        weights.squares(&weights.ends)?,
        weights.squares(&[via.as_slice(), &weights.ends].concat())?,
        weights.near_degree(),
        weights.far_degree(),
    ];
    let tagged = parts.iter().enumerate().map(|(part, sql)| format!("SELECT {part} AS __part, __of.* FROM ({sql}) AS __of"));
    let tagged: Vec<String> = tagged.collect();
    replace(select, &["*"], &tagged)?;
    Ok(true)
}

struct Weights<'a> {
    select: &'a Select,
    sides: &'a Sides,
    rewritten: &'a Rewritten,
    near: usize,
    /// The end points of far edges, as SQL.
    ends: Vec<String>,
    passing: PairConditions,
    moment: Moment,
}

impl Weights<'_> {
    /// Returns SQL for the contribution of each group of pairs to the totals of its key.
    fn squares(&self, by: &[String]) -> Result<String> {
        let mut parts = self.select.clone();
        parts.having = None;
        let items = parts.projection.iter().zip(&self.rewritten.columns);
        parts.projection = items.filter(|(_, column)| column.is_key || column.is_total).map(|(item, _)| item.clone()).collect();
        if let GroupByExpr::Expressions(groups, _) = &mut parts.group_by {
            for (at, expr) in by.iter().enumerate() {
                groups.push(parse_expr(expr)?);
                parts.projection.push(parse_item(&format!("{expr} AS __by{at}"))?);
            }
        }
        let number = |name: &str| format!("CAST({} AS DOUBLE)", quoted(name));
        let squares = self.totals().map(number).flat_map(|number| [format!("sum({number} * {number})"), format!("max(abs({number}))")]);
        let keys: Vec<String> = self.keys().map(|(_, name)| quoted(name)).collect();
        let items = self.named(keys.iter().cloned(), squares);
        Ok(format!("SELECT {items} FROM ({parts}) AS __parts GROUP BY {}", keys.join(", ")))
    }

    fn near_degree(&self) -> String {
        let (near, met) = (&self.sides.sides[self.near].relation, different(&self.via(self.near)));
        let groups = self.groups();
        format!("SELECT {} FROM {near} WHERE {} GROUP BY {groups}", self.degree(&met), self.alive(self.near))
    }

    fn far_degree(&self) -> String {
        let far_side = 1 - self.near;
        let (near, far) = (&self.sides.sides[self.near].relation, &self.sides.sides[far_side].relation);
        let (near_keys, far_keys) = (self.via(self.near), self.via(far_side));
        let named: Vec<String> = far_keys.iter().enumerate().map(|(at, key)| format!("{key} AS __key{at}")).collect();
        let on: Vec<String> = near_keys.iter().enumerate().map(|(at, key)| format!("{key} = __nodes.__key{at}")).collect();
        let nodes = format!(
            "SELECT {}, {} AS __degree FROM {far} WHERE {} GROUP BY {}",
            named.join(", "),
            different(&self.ends),
            self.alive(far_side),
            far_keys.join(", ")
        );
        let (groups, items) = (self.groups(), self.degree("max(__nodes.__degree)"));
        format!(
            "SELECT {items} FROM {near} JOIN ({nodes}) AS __nodes ON {} WHERE {} GROUP BY {groups}",
            on.join(" AND "),
            self.alive(self.near)
        )
    }

    /// Returns SQL for the keys and a degree, in the same columns as the totals.
    fn degree(&self, degree: &str) -> String {
        let rest = std::iter::repeat_n("0", self.totals().count() * 2 - 1);
        let numbers = [degree].into_iter().chain(rest).map(|number| format!("CAST({number} AS DOUBLE)"));
        self.named(self.keys().map(|(sql, _)| sql.to_owned()), numbers)
    }

    /// Returns the keys under their names, then the numbers.
    fn named(&self, keys: impl Iterator<Item = String>, numbers: impl Iterator<Item = String>) -> String {
        let keys = keys.zip(self.keys()).map(|(key, (_, name))| format!("{key} AS {}", quoted(name)));
        let numbers = numbers.enumerate().map(|(at, number)| format!("{number} AS __number{at}"));
        keys.chain(numbers).collect::<Vec<_>>().join(", ")
    }

    /// Returns the condition that a side's event is in its longest range and can be in a pair.
    fn alive(&self, side: usize) -> String {
        let table = &self.sides.sides[side];
        let live = self.rewritten.existence.0[side].condition(&table.event_time(), self.moment.t);
        let conditions: Vec<String> = self.passing.conditions[side].iter().cloned().chain(live).collect();
        conditions.join(" AND ")
    }

    fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rewritten.columns.iter().filter(|column| column.is_key).map(|key| (key.sql.as_str(), key.name.as_str()))
    }

    fn totals(&self) -> impl Iterator<Item = &str> {
        self.rewritten.columns.iter().filter(|column| column.is_total).map(|column| column.name.as_str())
    }

    fn via(&self, side: usize) -> Vec<String> {
        self.passing.equal.iter().map(|pair| pair[side].clone()).collect()
    }

    fn groups(&self) -> String {
        match &self.select.group_by {
            GroupByExpr::Expressions(groups, _) => groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            GroupByExpr::All(_) => String::new(),
        }
    }
}

/// Returns SQL for the number of different values, with NULL as one of them.
fn different(expressions: &[String]) -> String {
    if expressions.is_empty() { "1".to_owned() } else { format!("count(DISTINCT struct({}))", expressions.join(", ")) }
}

/// Returns what a far edge leads to: what is counted by its different values, or must differ from the near side. A join
/// key is no end point.
fn ends_of(select: &Select, sides: &Sides, far: usize, passing: &PairConditions) -> Result<Vec<String>> {
    let qualified = |expr: &Expr| match expr {
        Expr::Identifier(column) => sides.sides[far].column(&column.to_string()),
        other => other.to_string(),
    };
    let keys = passing.equal.iter().map(|pair| Ok(qualified(&parse_expr(&pair[far])?))).collect::<Result<Vec<_>>>()?;
    let mut ends = Vec::new();
    for expr in calls::end_points(select, sides) {
        let text = qualified(&expr);
        if sides.named_in(&expr).into_iter().eq([far]) && !keys.contains(&text) && !ends.contains(&text) {
            ends.push(text);
        }
    }
    Ok(ends)
}
