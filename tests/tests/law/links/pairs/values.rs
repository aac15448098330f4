//! The loop's values: compared, ordered and written as the law writes them.

use std::cmp::Ordering;

use super::super::events::{Event, hundredths};
use super::super::grammar::Of;
use super::{Cell, NULL};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Hundredths(i64),
    Float(f64),
    Truth(bool),
}

pub(super) fn value(of: Of, event: &Event) -> Value {
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
        Of::O => event.o.map_or(Value::Null, Value::Truth),
    }
}

pub(super) fn equal(a: &Value, b: &Value) -> bool {
    *a != Value::Null && a == b
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => NULL.to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Hundredths(number) => hundredths((*number).into()),
        Value::Float(number) => format!("~{number}"),
        Value::Truth(truth) => truth.to_string(),
    }
}

/// NULL last.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Greater,
        (_, Value::Null) => Ordering::Less,
        (Value::Integer(a), Value::Integer(b)) | (Value::Hundredths(a), Value::Hundredths(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Truth(a), Value::Truth(b)) => a.cmp(b),
        _ => unreachable!("one expression has one type"),
    }
}

pub(super) fn sum(values: &[Value]) -> Option<Cell> {
    let sum = match values.first()? {
        Value::Hundredths(_) => {
            hundredths(values.iter().map(|value| if let Value::Hundredths(d) = value { i128::from(*d) } else { 0 }).sum())
        }
        Value::Float(_) => format!("~{}", values.iter().map(as_float).sum::<f64>()),
        _ => values.iter().map(|value| if let Value::Integer(x) = value { *x } else { 0 }).sum::<i64>().to_string(),
    };
    Some(Cell::Text(sum))
}

pub(super) fn mean(values: &[Value]) -> Option<Cell> {
    if let Value::Hundredths(_) = values.first()? {
        return Some(Cell::NotComputed);
    }
    Some(Cell::Text(format!("~{}", values.iter().map(as_float).sum::<f64>() / values.len() as f64)))
}

pub(super) fn as_float(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        Value::Integer(value) => *value as f64,
        _ => f64::NAN,
    }
}
