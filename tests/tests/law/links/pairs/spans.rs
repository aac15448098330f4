//! Computes windows from their definition: edges, hops, and which pairs are inside.

use definitions::durations::parse_duration;
use types::tiles::Micros;

use super::super::events::Event;
use super::super::grammar::{Column, Shape, View, Within};

const SECOND: Micros = 1_000_000;

/// A range of event time: its length, its hop, and the resulting edges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    length: Option<Micros>,
    hop: Micros,
    pub(super) from: Option<Micros>,
    pub(super) to: Option<Micros>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) c: Span,
    pub(super) l: Span,
}

impl Pair {
    pub(super) fn has(&self, (c, l): (&Event, &Event)) -> bool {
        self.c.has(c.ts) && self.l.has(l.ts)
    }
}

impl Span {
    pub(super) fn new(length: &str, until: Option<&str>, t: Micros) -> Span {
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

    pub(super) fn all() -> Span {
        Span { length: None, hop: SECOND, from: None, to: None }
    }

    pub(super) fn has(&self, ts: Micros) -> bool {
        self.from.is_none_or(|from| ts >= from) && self.to.is_none_or(|to| ts < to)
    }
}

/// The view's columns by name, each with the ranges that its aggregates cover.
pub(super) fn spans(view: &View, t: Micros) -> Vec<(String, &Column, Vec<Pair>)> {
    let mut spans = Vec::new();
    for (index, column) in view.columns.iter().enumerate() {
        let own = |within: &Option<Within>| within.map_or_else(Span::all, |(length, until)| Span::new(length, until, t));
        if column.names_its_window() || view.windows.is_empty() {
            let mut reaches = vec![Pair { c: own(&column.c_within), l: own(&column.l_within) }];
            if column.shape == Shape::LessRecent {
                reaches.push(Pair { c: Span::new("1d", None, t), l: Span::all() });
            }
            spans.push((format!("c{index}"), column, reaches));
            continue;
        }
        for window in &view.windows {
            let span = Span::new(window, None, t);
            spans.push((format!("c{index}_{window}"), column, vec![Pair { c: span, l: span }]));
        }
    }
    spans
}

pub(super) fn existence(spans: &[(String, &Column, Vec<Pair>)]) -> Pair {
    let pairs = || spans.iter().flat_map(|(_, _, reaches)| reaches);
    Pair { c: longest(pairs().map(|pair| pair.c)), l: longest(pairs().map(|pair| pair.l)) }
}

/// The longest span, with the coarsest hop among equally long ones, without an end.
pub(super) fn longest(spans: impl Iterator<Item = Span> + Clone) -> Span {
    let Some(length) = spans.clone().map(|span| span.length).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten() else {
        return Span::all();
    };
    let among = spans.filter(|span| span.length == Some(length)).max_by_key(|span| span.hop);
    among.map_or_else(Span::all, |span| Span { to: None, ..span })
}
