//! The statements of SQL cursors: `DECLARE`, `FETCH`, `MOVE` and `CLOSE`. A cursor reads forward, and ends with its
//! transaction.

use std::sync::Arc;

use super::{Command, Statement, Word};
use crate::problem::{NOT_SUPPORTED, SYNTAX_ERROR, SqlProblem, UNDEFINED_PORTAL};

/// `DECLARE name [BINARY] [[NO] SCROLL] CURSOR [WITHOUT HOLD] FOR query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declare {
    pub(crate) cursor: String,
    pub(crate) is_binary: bool,
    pub(crate) query: Arc<Statement>,
}

/// `FETCH [[FORWARD] number] [FROM] name`, or `MOVE` with the same words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) cursor: String,
    pub(crate) step: CursorStep,
}

/// Which rows of a cursor are fetched, or passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorStep {
    /// This many rows, beginning with the next one.
    Next(usize),
    /// All that are left.
    All,
    /// The row this far past the current one: 1 is the next row.
    Relative(usize),
    /// The one with this number among all rows of the cursor, counted from 1.
    Absolute(usize),
}

/// The part of a DECLARE before its query.
pub(super) struct Declaration {
    pub(super) cursor: String,
    pub(super) is_binary: bool,
    /// The word at which the query begins.
    pub(super) query: usize,
}

/// How a query begins.
const QUERIES: [&str; 5] = ["select", "with", "values", "table", "("];

/// Reads a DECLARE up to its query.
pub(super) fn declaration(words: &[Word]) -> Result<Declaration, SqlProblem> {
    let wrong = || SqlProblem::new(SYNTAX_ERROR, "DECLARE is not understood: expected DECLARE name CURSOR FOR SELECT ..");
    let [_, name, rest @ ..] = words else { return Err(wrong()) };
    let options = rest.iter().position(|word| word.is("cursor")).ok_or_else(wrong)?;
    let (mut is_binary, mut before) = (false, "");
    for option in &rest[..options] {
        match (before, option.text.as_str()) {
            (_, "binary") => is_binary = true,
            ("no", "scroll") | (_, "no" | "insensitive" | "asensitive") => {}
            (_, "scroll") => return Err(not_supported("a cursor with SCROLL", "one that reads forward")),
            _ => return Err(wrong()),
        }
        before = &option.text;
    }
    let after = &rest[options + 1..];
    let hold = match after {
        [with, hold, ..] if with.is("with") && hold.is("hold") => {
            return Err(not_supported("a cursor WITH HOLD", "one that ends with its transaction"));
        }
        [without, hold, ..] if without.is("without") && hold.is("hold") => 2,
        _ => 0,
    };
    match &after[hold..] {
        [word, query, ..] if word.is("for") && QUERIES.iter().any(|begin| query.is(begin)) => {
            let query = words.len() - after.len() + hold + 1;
            Ok(Declaration { cursor: named(name)?, is_binary, query })
        }
        _ => Err(wrong()),
    }
}

/// Reads what follows FETCH or MOVE, as `keyword` says.
pub(super) fn fetch(keyword: &str, words: &[Word]) -> Result<Fetch, SqlProblem> {
    let expected = format!("{keyword} 100 FROM name, or {keyword} ALL FROM name");
    let wrong = || SqlProblem::new(SYNTAX_ERROR, format!("{keyword} is not understood: expected {expected}"));
    if let [direction, _, ..] = words {
        if ["prior", "backward", "-"].iter().any(|back| direction.is(back)) {
            return Err(only_forward());
        }
        if ["last", "0"].iter().any(|place| direction.is(place)) {
            return Err(not_supported(&format!("{keyword} {}", direction.text.to_uppercase()), &expected));
        }
    }
    let (is_forward, words) = match words {
        [first, rest @ ..] if first.is("forward") && !rest.is_empty() => (true, rest),
        words => (false, words),
    };
    let number = |word: &Word| word.text.parse::<usize>().ok().filter(|_| !word.is_quoted);
    let (step, rest) = match words {
        [first, rest @ ..] if first.is("all") => (CursorStep::All, rest),
        [first, rest @ ..] if first.is("next") && !is_forward => (CursorStep::Next(1), rest),
        [first, rest @ ..] if first.is("first") && !is_forward && !rest.is_empty() => (CursorStep::Absolute(1), rest),
        [place, count, rest @ ..] if (place.is("relative") || place.is("absolute")) && !is_forward => match number(count) {
            Some(0) => return Err(not_supported(&format!("{keyword} {} 0", place.text.to_uppercase()), "a number of rows")),
            Some(row) if place.is("relative") => (CursorStep::Relative(row), rest),
            Some(row) => (CursorStep::Absolute(row), rest),
            None if count.is("-") => return Err(only_forward()),
            None => return Err(wrong()),
        },
        [first, rest @ ..] => match number(first) {
            Some(0) => return Err(not_supported(&format!("{keyword} FORWARD 0"), "a number of rows")),
            Some(rows) => (CursorStep::Next(rows), rest),
            None if first.is("-") => return Err(only_forward()),
            None => (CursorStep::Next(1), words),
        },
        [] => return Err(wrong()),
    };
    match rest {
        [name] => Ok(Fetch { cursor: named(name)?, step }),
        [from, name] if from.is("from") || from.is("in") => Ok(Fetch { cursor: named(name)?, step }),
        _ => Err(wrong()),
    }
}

/// A cursor is asked for rows that it has passed.
pub(crate) fn only_forward() -> SqlProblem {
    SqlProblem::new("55000", "cursor can only scan forward")
}

/// Reads what follows CLOSE.
pub(super) fn close(words: &[Word]) -> Result<Command, SqlProblem> {
    match words {
        [all] if all.is("all") => Ok(Command::CloseCursor { cursor: None }),
        [name] => Ok(Command::CloseCursor { cursor: Some(named(name)?) }),
        _ => Err(SqlProblem::new(SYNTAX_ERROR, "CLOSE is not understood: expected CLOSE name, or CLOSE ALL")),
    }
}

/// A cursor's name. Without one, the protocol has a portal of its own.
fn named(word: &Word) -> Result<String, SqlProblem> {
    match word.text.as_str() {
        "" => Err(SqlProblem::new(UNDEFINED_PORTAL, "invalid cursor name: must not be empty")),
        name => Ok(name.to_owned()),
    }
}

fn not_supported(found: &str, expected: &str) -> SqlProblem {
    SqlProblem::new(NOT_SUPPORTED, format!("{found} is not supported: expected {expected}"))
}
