//! Answers a linked view by a loop over all pairs of events: without SQL or a plan, and with windows computed from
//! their definition.

use std::collections::BTreeMap;

use types::tiles::Micros;

use super::events::{Event, Placed};
use super::grammar::{Aggregate, Column, Condition, Of, OneSided, Shape, Side, Source, Through, View};

mod spans;
mod values;

use spans::{Pair, existence, longest, spans};
use values::{Value, equal, mean, order, sum, text, value};

const NULL: &str = "∅";

/// A value that the loop expects.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// The value's text as the law writes it.
    Text(String),
    /// A sketch's estimate of this number.
    Near(i64),
    /// The loop does not compute it.
    NotComputed,
}

pub type Rows = BTreeMap<Vec<String>, Vec<(String, Cell)>>;

/// The events of the ledger: read, passed and expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub read: i64,
    pub passed: i64,
    pub expired: i64,
}

pub fn rows(view: &View, events: &[Placed], t: Micros, as_of: bool) -> Rows {
    let spans = spans(view, t);
    let existence = existence(&spans);
    let mut groups: BTreeMap<Vec<String>, Vec<(&Event, &Event)>> = BTreeMap::new();
    for c in side_of(view.c, events).filter(|event| !as_of || event.ts <= t) {
        for l in side_of(view.l, events).filter(|event| !as_of || event.ts <= t) {
            let equal = view.join.keys.iter().all(|(of_c, of_l)| equal(&value(*of_c, c), &value(*of_l, l)));
            if equal && view.wheres.iter().all(|condition| holds(condition, c, l)) {
                let key = view.group.iter().map(|of| text(&value(*of, c))).collect();
                groups.entry(key).or_default().push((c, l));
            }
        }
    }
    groups.retain(|_, pairs| pairs.iter().any(|pair| existence.has(*pair)));
    let columns = |pairs: Vec<(&Event, &Event)>| {
        spans.iter().map(|(name, column, reaches)| (name.clone(), cell(column, reaches, &pairs))).collect::<Vec<_>>()
    };
    groups.into_iter().map(|(key, pairs)| (key, columns(pairs))).collect()
}

/// The ledger's counts for each side. If a view has only links, edges are kept for their side's longest range; as soon
/// as it counts pairs, for the longest range of both sides.
pub fn counts(view: &View, events: &[Placed], t: Micros) -> Counts {
    let spans = spans(view, t);
    let links = |column: &Column| {
        let distinct = matches!(
            column.aggregate,
            Aggregate::CountDistinct(..) | Aggregate::ApproxDistinct(..) | Aggregate::ArrayOf(..) | Aggregate::SumDistinct(..)
        );
        distinct && column.shape == Shape::Bare
    };
    let edges = match spans
        .iter()
        .all(|(_, column, reaches)| links(column) && reaches.iter().all(|pair| pair.c.to.is_none() && pair.l.to.is_none()))
    {
        true => existence(&spans),
        false => {
            let both = longest(spans.iter().flat_map(|(_, _, reaches)| reaches.iter().flat_map(|pair| [pair.c, pair.l])));
            Pair { c: both, l: both }
        }
    };
    let mut counts = Counts { read: 0, passed: 0, expired: 0 };
    for (side, source, edge) in [(Side::C, view.c, edges.c.from), (Side::L, view.l, edges.l.from)] {
        counts.read += events.iter().filter(|placed| placed.stream == source.stream).count() as i64;
        let has_keys =
            |event: &Event| view.join.keys.iter().all(|(c, l)| value(if side == Side::C { *c } else { *l }, event) != Value::Null);
        let passes = |event: &Event| {
            view.wheres.iter().all(|condition| match condition {
                Condition::One(of, one) if *of == side => meets(*one, event),
                _ => true,
            })
        };
        let passed: Vec<&Event> = side_of(source, events).filter(|event| has_keys(event) && passes(event)).collect();
        counts.passed += passed.len() as i64;
        counts.expired += passed.iter().filter(|event| edge.is_some_and(|edge| event.ts < edge)).count() as i64;
    }
    counts
}

fn side_of(source: Source, events: &[Placed]) -> impl Iterator<Item = &Event> {
    let passes = move |event: &Event| match source.through {
        Through::Nothing => true,
        Through::Staging => event.x != Some(3),
        Through::Subquery => event.j.is_some(),
    };
    events.iter().filter(move |placed| placed.stream == source.stream).map(|placed| &placed.event).filter(move |event| passes(event))
}

fn holds(condition: &Condition, c: &Event, l: &Event) -> bool {
    match condition {
        Condition::One(Side::C, one) => meets(*one, c),
        Condition::One(Side::L, one) => meets(*one, l),
        Condition::Apart(of_c, of_l) => {
            let (a, b) = (value(*of_c, c), value(*of_l, l));
            a != Value::Null && b != Value::Null && a != b
        }
    }
}

fn meets(one: OneSided, event: &Event) -> bool {
    match one {
        OneSided::Positive => event.x.is_some_and(|x| x > 0),
        OneSided::HasKey => event.k.is_some(),
        OneSided::CheapOrOpen => event.d.is_some_and(|d| d < 50_000) || event.o == Some(true),
        OneSided::NotB => event.u.is_some_and(|u| u != "b"),
    }
}

fn cell(column: &Column, reaches: &[Pair], pairs: &[(&Event, &Event)]) -> Cell {
    let within = |reach: &Pair| -> Vec<(&Event, &Event)> { pairs.iter().copied().filter(|both| reach.has(*both)).collect() };
    let inside = within(&reaches[0]);
    let float = matches!(column.aggregate, Aggregate::Avg(Of::X | Of::F) | Aggregate::Sum(Of::F));
    let null = || Cell::Text(if float { format!("~{NULL}") } else { NULL.to_owned() });
    if reaches.iter().all(|reach| within(reach).is_empty()) && !column.is_bare_count() {
        return null();
    }
    let counted: Vec<(&Event, &Event)> =
        inside.into_iter().filter(|(c, l)| column.filter.iter().all(|condition| holds(condition, c, l))).collect();
    let found = aggregate(column.aggregate, &counted);
    match (column.shape, found) {
        (Shape::Bare, None) => null(),
        (Shape::Bare, Some(found)) => found,
        (Shape::Doubled, Some(Cell::Text(number))) => Cell::Text((number.parse::<i64>().unwrap() * 2 + counted.len() as i64).to_string()),
        (Shape::LessRecent, Some(Cell::Text(number))) => {
            Cell::Text((number.parse::<i64>().unwrap() - within(&reaches[1]).len() as i64).to_string())
        }
        (Shape::Doubled | Shape::LessRecent, _) => null(),
    }
}

/// `None` is NULL.
fn aggregate(aggregate: Aggregate, pairs: &[(&Event, &Event)]) -> Option<Cell> {
    let of_side =
        |side: Side, of: Of| -> Vec<Value> { pairs.iter().map(|(c, l)| value(of, if side == Side::C { c } else { l })).collect() };
    let known = |side: Side, of: Of| -> Vec<Value> { of_side(side, of).into_iter().filter(|value| *value != Value::Null).collect() };
    let different = |mut values: Vec<Value>| {
        values.sort_by(order);
        values.dedup();
        values
    };
    let number = |number: usize| Some(Cell::Text(number.to_string()));
    match aggregate {
        Aggregate::Count => number(pairs.len()),
        Aggregate::CountOf(side, of) => number(known(side, of).len()),
        Aggregate::CountDistinct(side, of) => number(different(known(side, of)).len()),
        Aggregate::ApproxDistinct(side, of) => Some(Cell::Near(different(known(side, of)).len() as i64)),
        Aggregate::ArrayOf(side, of) => {
            let values: Vec<String> = different(of_side(side, of)).iter().map(text).collect();
            (!values.is_empty()).then(|| Cell::Text(format!("[{}]", values.join(", "))))
        }
        Aggregate::Min(of) => known(Side::L, of).iter().min_by(|a, b| order(a, b)).map(|value| Cell::Text(text(value))),
        Aggregate::Max(of) => known(Side::L, of).iter().max_by(|a, b| order(a, b)).map(|value| Cell::Text(text(value))),
        Aggregate::SumDistinct(side, of) => sum(&different(known(side, of))),
        Aggregate::BoolOr => known(Side::L, Of::O).iter().max_by(|a, b| order(a, b)).map(|value| Cell::Text(text(value))),
        Aggregate::BoolAnd => known(Side::L, Of::O).iter().min_by(|a, b| order(a, b)).map(|value| Cell::Text(text(value))),
        Aggregate::Sum(of) => sum(&known(Side::L, of)),
        Aggregate::Avg(of) => mean(&known(Side::L, of)),
    }
}
