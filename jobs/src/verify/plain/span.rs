//! Windows as plain comparisons: the lower edge, the upper edge and the hop. The hop rules are implemented a second
//! time on purpose: the layers have their own.

use std::time::Duration;

use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value};
use definitions::durations::parse_duration;
use types::tiles::{Level, Micros};
use types::{Error, Result};

const SECOND: Micros = 1_000_000;
const HOPS: [Micros; 6] = [86_400 * SECOND, 3_600 * SECOND, 300 * SECOND, 60 * SECOND, 10 * SECOND, SECOND];

/// A span of event time relative to `t`, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelativeSpan {
    /// `None` means all time.
    pub(super) back: Option<Micros>,
    /// `None` means no upper edge.
    pub(super) until: Option<Micros>,
    pub(super) hop: Micros,
}

impl RelativeSpan {
    pub(super) const ALL: RelativeSpan = RelativeSpan { back: None, until: None, hop: SECOND };

    pub(super) fn trailing(window: Duration, precision: Option<Level>) -> Result<RelativeSpan> {
        let back = micros(window);
        Ok(RelativeSpan { back: Some(back), until: None, hop: hop(back, precision)? })
    }

    /// Returns the span of `within(event time, window [, until])`.
    pub(super) fn from_within(call: &Function, precision: Option<Level>) -> Result<RelativeSpan> {
        let text = |index: usize| {
            literal(call, index).map(|text| {
                if text.eq_ignore_ascii_case("all") { Ok(None) } else { parse_duration(&text).map(|length| Some(micros(length))) }
            })
        };
        let back =
            text(1).ok_or_else(|| Error::input(format!("{call} names no window: expected within(event time, 'window'[, 'until'])")))??;
        let until = text(2).transpose()?.flatten();
        let smaller = match (back, until) {
            (Some(back), Some(until)) => back.min(until),
            (Some(bound), None) | (None, Some(bound)) => bound,
            (None, None) => return Ok(RelativeSpan::ALL),
        };
        Ok(RelativeSpan { back, until, hop: hop(smaller, precision)? })
    }

    pub(super) fn from(&self, t: Micros) -> Option<Micros> {
        self.back.map(|back| floor(t.saturating_sub(back), self.hop))
    }

    fn to(&self, t: Micros) -> Option<Micros> {
        self.until.map(|until| floor(t.saturating_sub(until), self.hop))
    }

    /// Returns the condition on a time as SQL; `None` if every time meets it.
    pub(super) fn condition(&self, time: &str, t: Micros) -> Option<String> {
        let from = self.from(t).map(|edge| format!("{time} >= {}", timestamp(edge)));
        let to = self.to(t).map(|edge| format!("{time} < {}", timestamp(edge)));
        match (from, to) {
            (Some(from), Some(to)) => Some(format!("({from} AND {to})")),
            (from, to) => from.or(to),
        }
    }
}

/// Returns a point in time as SQL, exact to the microsecond.
pub(super) fn timestamp(time: Micros) -> String {
    format!("arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", time.max(Micros::MIN + 1))
}

/// Returns the argument at this position, if it is a string.
fn literal(call: &Function, index: usize) -> Option<String> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let mut arg = match list.args.get(index)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => expr,
        _ => return None,
    };
    while let Expr::Nested(inner) = arg {
        arg = inner;
    }
    match arg {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn hop(length: Micros, precision: Option<Level>) -> Result<Micros> {
    match precision {
        Some(level) => level.length_us().ok_or_else(|| Error::input("precision is a length of time, found all time")),
        None => Ok(HOPS.into_iter().find(|hop| hop.saturating_mul(60) <= length).unwrap_or(SECOND)),
    }
}

fn floor(time: Micros, hop: Micros) -> Micros {
    time.div_euclid(hop).saturating_mul(hop)
}

fn micros(length: Duration) -> Micros {
    Micros::try_from(length.as_micros()).unwrap_or(Micros::MAX)
}

/// Returns the longest span without an upper edge, with the coarsest hop among those of its length.
pub(super) fn longest(spans: impl Iterator<Item = RelativeSpan>) -> RelativeSpan {
    let mut longest: Option<RelativeSpan> = None;
    for span in spans {
        let Some(back) = span.back else { return RelativeSpan::ALL };
        longest = Some(match longest {
            Some(known) if known.back > Some(back) => known,
            Some(known) if known.back == Some(back) => RelativeSpan { hop: known.hop.max(span.hop), ..known },
            _ => RelativeSpan { until: None, ..span },
        });
    }
    longest.unwrap_or(RelativeSpan::ALL)
}
