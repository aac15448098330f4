//! What the aggregates mean, by trying everything: over all events at once, in the order of their position.

/// A part of a pattern.
#[derive(Debug, Clone)]
pub enum Piece {
    Condition(u32),
    /// Directly after, so far away.
    ConditionAt(u32, &'static str, i64),
    Any,
    AnyNumber,
    Time(&'static str, i64),
}

pub fn text_of(pattern: &[Piece]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Condition(number) => format!("(?{number})"),
        Piece::ConditionAt(number, comparison, seconds) => format!("(?{number}t{comparison}{seconds})"),
        Piece::Any => ".".to_owned(),
        Piece::AnyNumber => ".*".to_owned(),
        Piece::Time(comparison, seconds) => format!("(?t{comparison}{seconds})"),
    };
    pattern.iter().map(piece).collect()
}

/// An event: its second, and the conditions that it holds.
pub type Event = (i64, u32);

fn is_apart(from: i64, comparison: &str, seconds: i64, to: i64) -> bool {
    match comparison {
        "<=" => to - from <= seconds,
        "<" => to - from < seconds,
        ">=" => to - from >= seconds,
        ">" => to - from > seconds,
        _ => to - from == seconds,
    }
}

fn holds(event: Event, number: u32) -> bool {
    event.1 & (1 << (number - 1)) != 0
}

/// Where the first match ends that ClickHouse's matcher comes to: it tries, for each part, the nearest event first, and
/// goes back where that fails.
fn end_of(pattern: &[Piece], events: &[Event], at: usize, from: i64) -> Option<usize> {
    let Some((piece, rest)) = pattern.split_first() else { return Some(at) };
    let here = events.get(at).copied();
    match (piece, here) {
        (Piece::Condition(number), Some(event)) => holds(event, *number).then(|| end_of(rest, events, at + 1, event.0)).flatten(),
        (Piece::ConditionAt(number, comparison, seconds), Some(event)) => (holds(event, *number)
            && is_apart(from, comparison, *seconds, event.0))
        .then(|| end_of(rest, events, at + 1, event.0))
        .flatten(),
        (Piece::Any, Some(event)) => end_of(rest, events, at + 1, event.0),
        (Piece::AnyNumber, Some(_)) => (at..events.len()).find_map(|next| end_of(rest, events, next, events[next].0)),
        (Piece::Time(comparison, seconds), Some(_)) => (at..events.len())
            .filter(|next| is_apart(from, comparison, *seconds, events[*next].0))
            .find_map(|next| end_of(rest, events, next, events[next].0)),
        (Piece::AnyNumber | Piece::Time("<=" | "<", _) | Piece::Time(">=", 0), None) => end_of(rest, events, at, from),
        (_, None) => None,
    }
}

/// How often the pattern is found without overlap.
pub fn count(pattern: &[Piece], events: &[Event]) -> i64 {
    let anywhere: Vec<Piece> = std::iter::once(Piece::AnyNumber).chain(pattern.iter().cloned()).collect();
    let (mut count, mut rest) = (0, events);
    while !rest.is_empty()
        && let Some(end) = end_of(&anywhere, rest, 0, 0)
    {
        count += 1;
        rest = &rest[end.max(1)..];
    }
    count
}

/// Whether a chain passes the first conditions, by trying every event for every step.
fn is_passed(steps: &[(usize, i64, u32)], conditions: u32, modes: &[&str], window: i64) -> bool {
    fn goes_on(steps: &[(usize, i64, u32)], from: usize, next: u32, chain: (i64, usize, i64), asked: (u32, &[&str], i64)) -> bool {
        let ((first, last, time), (conditions, modes, window)) = (chain, asked);
        next == conditions
            || (from..steps.len()).any(|at| {
                let (event, second, condition) = steps[at];
                let follows = next == 0
                    || (second - first <= window
                        && !(modes.contains(&"strict_once") && event == last)
                        && !(modes.contains(&"strict_increase") && second <= time));
                let first = if next == 0 { second } else { first };
                condition == next && follows && goes_on(steps, at + 1, next + 1, (first, event, second), asked)
            })
    }
    goes_on(steps, 0, 0, (0, 0, 0), (conditions, modes, window))
}

/// How many conditions the longest chain passes.
pub fn level(conditions: u32, modes: &[&str], window: i64, events: &[Event]) -> i64 {
    let mut steps = Vec::new();
    let is_passed = |steps: &[(usize, i64, u32)], conditions| is_passed(steps, conditions, modes, window);
    'events: for (number, (second, mask)) in events.iter().enumerate() {
        if modes.contains(&"strict_order") && *mask == 0 && is_passed(&steps, 1) {
            break;
        }
        for condition in (0..conditions).filter(|condition| mask & (1 << condition) != 0) {
            let repeats = modes.contains(&"strict_deduplication") && is_passed(&steps, condition + 1);
            let is_early = modes.contains(&"strict_order") && is_passed(&steps, 1) && !is_passed(&steps, condition);
            if condition > 0 && (repeats || is_early) {
                break 'events;
            }
            steps.push((number, *second, condition));
        }
        if is_passed(&steps, conditions) {
            break;
        }
    }
    (1..=conditions).rev().find(|conditions| is_passed(&steps, *conditions)).map_or(0, i64::from)
}

/// How often more than `gap` passed, and once more.
pub fn sessions(seconds: &[i64], gap: i64) -> i64 {
    let mut seconds = seconds.to_vec();
    seconds.sort_unstable();
    seconds.first().map_or(0, |_| 1 + seconds.windows(2).filter(|pair| pair[1] - pair[0] > gap).count() as i64)
}

pub fn longest_gap(seconds: &[i64]) -> Option<i64> {
    let mut seconds = seconds.to_vec();
    seconds.sort_unstable();
    seconds.dedup();
    seconds.windows(2).map(|pair| pair[1] - pair[0]).max()
}
