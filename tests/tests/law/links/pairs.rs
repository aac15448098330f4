//! A linked view answered by a loop over all pairs of events: no SQL, no plan, and windows by their definition.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use schemas::definitions::durations::parse_duration;
use schemas::tiles::Micros;

use super::events::{Event, Placed, hundredths};
use super::grammar::{Aggregate, Column, Condition, Of, OneSided, Shape, Side, Source, Through, View, Within};

const SECOND: Micros = 1_000_000;
const NULL: &str = "∅";

/// A value that the loop expects.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// As the law writes it.
    Text(String),
    /// A sketch's estimate of so many.
    Near(i64),
    /// Not told by the loop.
    Untold,
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
        spans.iter().map(|(name, column, pair)| (name.clone(), cell(column, *pair, &pairs))).collect::<Vec<_>>()
    };
    groups.into_iter().map(|(key, pairs)| (key, columns(pairs))).collect()
}

/// Each side counted by itself. Links alone are kept for all time; whatever counts pairs, as long as the longest range of both sides.
pub fn counts(view: &View, events: &[Placed], t: Micros) -> Counts {
    let spans = spans(view, t);
    let links = |column: &Column| {
        let distinct = matches!(column.aggregate, Aggregate::CountDistinct(..) | Aggregate::ApproxDistinct(..) | Aggregate::ArrayOf(..));
        distinct && column.shape == Shape::Bare
    };
    let edge = match spans.iter().all(|(_, column, pair)| links(column) && pair.c.to.is_none() && pair.l.to.is_none()) {
        true => None,
        false => longest(spans.iter().flat_map(|(_, _, pair)| [pair.c, pair.l])).from,
    };
    let mut counts = Counts { read: 0, passed: 0, expired: 0 };
    for (side, source) in [(Side::C, view.c), (Side::L, view.l)] {
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

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Integer(i64),
    Text(String),
    Hundredths(i64),
    Float(f64),
}

fn value(of: Of, event: &Event) -> Value {
    let text = |text: Option<String>| text.map_or(Value::Null, Value::Text);
    let integer = |number: Option<i64>| number.map_or(Value::Null, Value::Integer);
    match of {
        Of::K => text(event.k.map(str::to_owned)),
        Of::UpperK => text(event.k.map(str::to_uppercase)),
        Of::U => text(event.u.map(str::to_owned)),
        Of::UpperU => text(event.u.map(str::to_uppercase)),
        Of::J => integer(event.j.map(i64::from)),
        Of::W => integer(event.w.map(i64::from)),
        Of::X => integer(event.x),
        Of::D => event.d.map_or(Value::Null, Value::Hundredths),
        Of::F => event.f.map_or(Value::Null, Value::Float),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    *a != Value::Null && a == b
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => NULL.to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Hundredths(number) => hundredths((*number).into()),
        Value::Float(number) => format!("~{number}"),
    }
}

/// NULL last.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Greater,
        (_, Value::Null) => Ordering::Less,
        (Value::Integer(a), Value::Integer(b)) | (Value::Hundredths(a), Value::Hundredths(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        _ => unreachable!("one expression has one type"),
    }
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

/// A stretch of event time: its length, its hop, and where that puts its edges.
#[derive(Debug, Clone, Copy)]
struct Span {
    length: Option<Micros>,
    hop: Micros,
    from: Option<Micros>,
    to: Option<Micros>,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    c: Span,
    l: Span,
}

impl Pair {
    fn has(&self, (c, l): (&Event, &Event)) -> bool {
        self.c.has(c.ts) && self.l.has(l.ts)
    }
}

impl Span {
    fn new(length: &str, until: Option<&str>, t: Micros) -> Span {
        let micros = |text: &str| (text != "all").then(|| parse_duration(text).unwrap().as_micros() as Micros);
        let (length, until) = (micros(length), until.and_then(micros));
        let smaller = length.into_iter().chain(until).min();
        let mut hop = SECOND;
        for longer in [10 * SECOND, 60 * SECOND, 300 * SECOND, 3_600 * SECOND, 86_400 * SECOND] {
            if smaller.is_some_and(|window| longer <= window / 60) {
                hop = longer;
            }
        }
        let cut = |back: Micros| (t - back) - (t - back).rem_euclid(hop);
        Span { length, hop, from: length.map(cut), to: until.map(cut) }
    }

    fn all() -> Span {
        Span { length: None, hop: SECOND, from: None, to: None }
    }

    fn has(&self, ts: Micros) -> bool {
        self.from.is_none_or(|from| ts >= from) && self.to.is_none_or(|to| ts < to)
    }
}

/// The view's columns by name, each with what it counts over.
fn spans(view: &View, t: Micros) -> Vec<(String, &Column, Pair)> {
    let mut spans = Vec::new();
    for (index, column) in view.columns.iter().enumerate() {
        let own = |within: &Option<Within>| within.map_or_else(Span::all, |(length, until)| Span::new(length, until, t));
        if column.names_its_window() || view.windows.is_empty() {
            spans.push((format!("c{index}"), column, Pair { c: own(&column.c_within), l: own(&column.l_within) }));
            continue;
        }
        for window in &view.windows {
            let span = Span::new(window, None, t);
            spans.push((format!("c{index}_{window}"), column, Pair { c: span, l: span }));
        }
    }
    spans
}

fn existence(spans: &[(String, &Column, Pair)]) -> Pair {
    Pair { c: longest(spans.iter().map(|(_, _, pair)| pair.c)), l: longest(spans.iter().map(|(_, _, pair)| pair.l)) }
}

/// The longest, at the coarsest hop among its equals, without an end.
fn longest(spans: impl Iterator<Item = Span> + Clone) -> Span {
    let Some(length) = spans.clone().map(|span| span.length).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten() else {
        return Span::all();
    };
    let among = spans.filter(|span| span.length == Some(length)).max_by_key(|span| span.hop);
    among.map_or_else(Span::all, |span| Span { to: None, ..span })
}

fn cell(column: &Column, pair: Pair, pairs: &[(&Event, &Event)]) -> Cell {
    let inside: Vec<(&Event, &Event)> = pairs.iter().copied().filter(|both| pair.has(*both)).collect();
    let float = matches!(column.aggregate, Aggregate::Avg(Of::X | Of::F) | Aggregate::Sum(Of::F));
    let null = || Cell::Text(if float { format!("~{NULL}") } else { NULL.to_owned() });
    if inside.is_empty() && !column.is_bare_count() {
        return null();
    }
    let counted: Vec<(&Event, &Event)> =
        inside.into_iter().filter(|(c, l)| column.filter.iter().all(|condition| holds(condition, c, l))).collect();
    let found = aggregate(column.aggregate, &counted);
    match (column.shape, found) {
        (Shape::Bare, None) => null(),
        (Shape::Bare, Some(found)) => found,
        (Shape::Doubled, Some(Cell::Text(number))) => Cell::Text((number.parse::<i64>().unwrap() * 2 + counted.len() as i64).to_string()),
        (Shape::Doubled, _) => null(),
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
        Aggregate::Sum(of) => sum(&known(Side::L, of)),
        Aggregate::Avg(of) => mean(&known(Side::L, of)),
    }
}

fn sum(values: &[Value]) -> Option<Cell> {
    let sum = match values.first()? {
        Value::Hundredths(_) => {
            hundredths(values.iter().map(|value| if let Value::Hundredths(d) = value { i128::from(*d) } else { 0 }).sum())
        }
        Value::Float(_) => format!("~{}", values.iter().map(as_float).sum::<f64>()),
        _ => values.iter().map(|value| if let Value::Integer(x) = value { *x } else { 0 }).sum::<i64>().to_string(),
    };
    Some(Cell::Text(sum))
}

fn mean(values: &[Value]) -> Option<Cell> {
    if let Value::Hundredths(_) = values.first()? {
        return Some(Cell::Untold);
    }
    Some(Cell::Text(format!("~{}", values.iter().map(as_float).sum::<f64>() / values.len() as f64)))
}

fn as_float(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        Value::Integer(value) => *value as f64,
        _ => f64::NAN,
    }
}
