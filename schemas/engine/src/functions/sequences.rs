//! Aggregates of event sequences.
//!
//! | function | what it is |
//! | --- | --- |
//! | `sequence_match(pattern, ts, cond1, ..)` | whether the events match a pattern |
//! | `sequence_count(pattern, ts, cond1, ..)` | how often, without overlap |
//! | `window_funnel(window [, mode ..], ts, cond1, ..)` | how many conditions hold one after the other within a window |
//! | `retention(cond1, ..)` | for each condition, whether it and the first hold, each for some event |
//! | `session_count(ts, gap)` | sessions: events without a pause longer than `gap` |
//! | `longest_gap(ts)` | the longest time between two events that follow each other |
//!
//! The first four are ClickHouse's `sequenceMatch`, `sequenceCount`, `windowFunnel` and `retention`, with its pattern
//! language and its modes. Unlike there, events of the same time have an order: in a view source, partition and offset,
//! as the planner appends them to the call.
//!
//! The states are the events themselves, in a few bytes each ([`events`]), the spans that have events ([`spans`]), or a
//! set of conditions ([`retention`]). They are merged in any order, with the same result.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};
use datafusion::physical_plan::expressions::Literal;
use definitions::durations::parse_duration;
use types::sql_types::{sql_name, timestamp_type};

use arguments::{is_condition, is_text, is_time, names_of, refuse_distinct};
use events::{EventColumns, Events, SequenceFunction};
use funnel::Funnel;
use pattern::Pattern;
use spans::{SpanFunction, Spans};

mod accumulate;
mod arguments;
mod event;
mod events;
mod funnel;
mod numbers;
mod pattern;
mod retention;
mod search;
mod spans;

pub(crate) const SEQUENCE_MATCH: &str = "sequence_match";
pub(crate) const SEQUENCE_COUNT: &str = "sequence_count";
pub(crate) const WINDOW_FUNNEL: &str = "window_funnel";
pub(crate) const RETENTION: &str = "retention";
pub(crate) const SESSION_COUNT: &str = "session_count";
pub(crate) const LONGEST_GAP: &str = "longest_gap";

/// The most conditions of a call, as in ClickHouse.
const MAX_CONDITIONS: usize = 32;

/// All aggregates of sequences.
pub(super) fn aggregates() -> [AggregateUDF; 6] {
    let signature = || Signature::user_defined(Volatility::Immutable);
    let of_events = |name| AggregateUDF::from(OfEvents { name, signature: signature() });
    let of_times = |name| AggregateUDF::from(OfTimes { name, signature: signature() });
    let retention = AggregateUDF::from(retention::RetentionFunction { signature: signature() });
    [
        of_events(SEQUENCE_MATCH),
        of_events(SEQUENCE_COUNT),
        of_events(WINDOW_FUNNEL),
        retention,
        of_times(SESSION_COUNT),
        of_times(LONGEST_GAP),
    ]
}

/// Whether an aggregate keeps all its events, or all their times, in a Binary.
pub(crate) fn keeps_events(function: &str) -> bool {
    [SEQUENCE_MATCH, SEQUENCE_COUNT, WINDOW_FUNNEL].contains(&function) || keeps_times(function)
}

/// Whether an aggregate keeps the different times of its events, so that the same time counts once.
pub(super) fn keeps_times(function: &str) -> bool {
    [SESSION_COUNT, LONGEST_GAP].contains(&function)
}

/// What a state of such an aggregate counts for `max_state_bytes`.
pub(super) fn state_bytes(state: &[u8]) -> u64 {
    let mut state = numbers::NumberReader(state);
    state.byte().and_then(|_format| state.number()).unwrap_or_default()
}

/// Checks the literals of a call: the pattern, the window and its modes, the gap.
pub(super) fn check(function: &str, literals: &[Option<&ScalarValue>]) -> Result<()> {
    match function {
        SEQUENCE_MATCH | SEQUENCE_COUNT | WINDOW_FUNNEL => sequence_function(function, literals).map(drop),
        SESSION_COUNT | LONGEST_GAP => pause_us(function, literals).map(drop),
        _ => Ok(()),
    }
}

/// `sequence_match`, `sequence_count` and `window_funnel`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfEvents {
    name: &'static str,
    signature: Signature,
}

impl OfEvents {
    fn example(&self) -> &'static str {
        match self.name {
            SEQUENCE_MATCH => "sequence_match('(?1)(?t<=600)(?2)', ts, amount > 1000, status = 'declined')",
            SEQUENCE_COUNT => "sequence_count('(?1)(?t<=600)(?2)', ts, amount > 1000, status = 'declined')",
            _ => "window_funnel('1h', ts, step = 'cart', step = 'order')",
        }
    }

    fn events(&self, args: &AccumulatorArgs<'_>) -> Result<Events> {
        refuse_distinct(self.name, args)?;
        let texts = args.expr_fields.iter().take_while(|field| is_text(field.data_type())).count();
        let literals = literals(args);
        if let Some(place) = literals[..texts].iter().position(Option::is_none) {
            return plan_err!("argument {} of {} is an expression: expected a literal text", place + 1, self.name);
        }
        if !is_position(args)? {
            return plan_err!("{} takes no ORDER BY: its events are in the order of their time", self.name);
        }
        Ok(Events::new(sequence_function(self.name, &literals)?, EventColumns { time: texts, conditions: literals.len() - texts - 1 }))
    }
}

impl AggregateUDFImpl for OfEvents {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Texts, a time, conditions.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let texts = arguments.iter().take_while(|argument| is_text(argument)).count();
        let texts_fit = if self.name == WINDOW_FUNNEL { texts >= 1 } else { texts == 1 };
        let wanted = if self.name == WINDOW_FUNNEL { "a window and its modes" } else { "a pattern" };
        match &arguments[texts..] {
            [time, conditions @ ..] if texts_fit && is_time(time) && (1..=MAX_CONDITIONS).contains(&conditions.len()) => {
                if let Some(place) = conditions.iter().position(|condition| !is_condition(condition)) {
                    let (number, found) = (place + 1, sql_name(&conditions[place]));
                    return plan_err!("condition {number} of {} (argument {}) is {found}: expected BOOLEAN", self.name, texts + 1 + number);
                }
                let texts = arguments[..texts].iter().cloned();
                Ok(texts.chain([timestamp_type()]).chain(conditions.iter().map(|_| DataType::Boolean)).collect())
            }
            _ => plan_err!(
                "{} was called with ({}): expected {wanted} (TEXT), a time (TIMESTAMPTZ) and 1 to {MAX_CONDITIONS} conditions (BOOLEAN), \
                 as in {}",
                self.name,
                names_of(arguments),
                self.example()
            ),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.name == SEQUENCE_MATCH { DataType::Boolean } else { DataType::Int64 })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(binary_state(&args, self.name))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(accumulate::one_group(self.events(&args)?))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(accumulate::groups(self.events(&args)?))
    }

    /// Not insensitive, or DataFusion would not pass the event's position to the accumulator. No sorted input is
    /// required.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    fn with_beneficial_ordering(self: Arc<Self>, _beneficial_ordering: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }
}

/// `session_count` and `longest_gap`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfTimes {
    name: &'static str,
    signature: Signature,
}

impl OfTimes {
    fn spans(&self, args: &AccumulatorArgs<'_>) -> Result<Spans> {
        refuse_distinct(self.name, args)?;
        let function = if self.name == SESSION_COUNT { SpanFunction::Sessions } else { SpanFunction::LongestGap };
        Ok(Spans::new(function, pause_us(self.name, &literals(args))?))
    }
}

impl AggregateUDFImpl for OfTimes {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match (self.name, arguments) {
            (SESSION_COUNT, [time, gap]) if is_time(time) && is_text(gap) => Ok(vec![timestamp_type(), gap.clone()]),
            (LONGEST_GAP, [time]) if is_time(time) => Ok(vec![timestamp_type()]),
            (SESSION_COUNT, _) => plan_err!(
                "{SESSION_COUNT} was called with ({}): expected a time (TIMESTAMPTZ) and a gap (TEXT), as in session_count(ts, '30m')",
                names_of(arguments)
            ),
            _ => plan_err!("{} was called with ({}): expected a time (TIMESTAMPTZ), as in longest_gap(ts)", self.name, names_of(arguments)),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.name == SESSION_COUNT { DataType::Int64 } else { DataType::Duration(TimeUnit::Microsecond) })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(binary_state(&args, self.name))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(accumulate::one_group(self.spans(&args)?))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(accumulate::groups(self.spans(&args)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The function of a call, with its literals.
fn sequence_function(function: &str, literals: &[Option<&ScalarValue>]) -> Result<SequenceFunction> {
    let texts: Vec<&str> = literals.iter().map_while(|literal| text(*literal)).collect();
    let conditions = literals.len().saturating_sub(texts.len() + 1);
    match (function, texts.as_slice()) {
        (WINDOW_FUNNEL, [window, modes @ ..]) => Ok(SequenceFunction::Funnel(Funnel::new(window, modes, conditions)?)),
        (SEQUENCE_MATCH, [pattern]) => Ok(SequenceFunction::Match(Pattern::parse(function, pattern, conditions)?)),
        (SEQUENCE_COUNT, [pattern]) => Ok(SequenceFunction::Count(Pattern::parse(function, pattern, conditions)?)),
        _ => {
            let wanted = if function == WINDOW_FUNNEL { "the window, such as '1h'" } else { "the pattern, such as '(?1)(?2)'" };
            plan_err!("the first argument of {function} is {}: expected {wanted}, as a literal text", found(literals.first()))
        }
    }
}

/// The longest pause within a span. Only events of the same time have none between them.
fn pause_us(function: &str, literals: &[Option<&ScalarValue>]) -> Result<i64> {
    if function == LONGEST_GAP {
        return Ok(0);
    }
    let Some(gap) = literals.get(1).and_then(|literal| text(*literal)) else {
        return plan_err!("the second argument of {function} is {}: expected a literal duration, such as '30m'", found(literals.get(1)));
    };
    match parse_duration(gap) {
        Ok(gap) => Ok(i64::try_from(gap.as_micros()).unwrap_or(i64::MAX)),
        Err(error) => plan_err!("the second argument of {function}: {error}"),
    }
}

/// Whether a call has no order, or that of its events' positions.
fn is_position(args: &AccumulatorArgs<'_>) -> Result<bool> {
    let types = args.order_bys.iter().map(|sort| sort.expr.data_type(args.schema)).collect::<Result<Vec<_>>>()?;
    let ascending = args.order_bys.iter().all(|sort| !sort.options.descending);
    Ok(match types.as_slice() {
        [] => true,
        [time, source, partition, offset] => ascending && is_time(time) && is_text(source) && partition.is_integer() && offset.is_integer(),
        _ => false,
    })
}

fn literals<'a>(args: &AccumulatorArgs<'a>) -> Vec<Option<&'a ScalarValue>> {
    args.exprs.iter().map(|expr| expr.downcast_ref::<Literal>().map(Literal::value)).collect()
}

fn text(literal: Option<&ScalarValue>) -> Option<&str> {
    literal.and_then(|literal| literal.try_as_str().flatten())
}

fn found(literal: Option<&Option<&ScalarValue>>) -> Cow<'static, str> {
    match literal {
        Some(Some(literal)) => literal.to_string().into(),
        Some(None) => "an expression".into(),
        None => "missing".into(),
    }
}

fn binary_state(args: &StateFieldsArgs<'_>, function: &str) -> Vec<FieldRef> {
    vec![Field::new(format_state_name(args.name, function), DataType::Binary, true).into()]
}

#[cfg(test)]
mod tests;
