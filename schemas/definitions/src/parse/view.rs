//! `CREATE VIEW name [WITH (options)] AS SELECT ..`.

use std::time::Duration;

use chrono_tz::Tz;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::found::{DefinitionHead, Found};
use super::options::{OptionEntry, Options};
use super::tokens::{Cursor, TextPosition};
use crate::durations::{format_bytes, format_duration_parts, parse_duration, parse_duration_or_zero};
use crate::keywords::{KeywordAsName, help, interval_as_name, keywords_as_names};
use crate::{Diagnostic, Diagnostics, KEEP_OLD, NamedWindow, OnError, Origin, Schedule, ViewDefinition, time_zones};
use types::Strategy;
use types::sql_dialect::SqlDialect;
use types::sql_errors::parser_text;
use types::tiles::Level;

const OPTIONS: [&str; 15] = [
    "windows",
    "every",
    "schedule",
    "timezone",
    "after",
    "jitter",
    "memory_limit",
    "timeout",
    "precision",
    "strategy",
    "full_every",
    "max_degree",
    "max_state_bytes",
    "on_error",
    "keep_old",
];
const PRECISIONS: [Level; 6] = [Level::Second1, Level::Seconds10, Level::Minute1, Level::Minutes5, Level::Hour1, Level::Day1];
const SHORTEST: Duration = Duration::from_secs(1);
/// A run that has less cannot even read a file of the archive.
const LEAST_MEMORY: u64 = 16 << 20;

/// Reads what follows the name.
pub(super) fn parse(head: DefinitionHead, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    refuse_column_list(&mut cursor, problems);
    let options = match cursor.take_word("with") {
        true => Options::parse(&mut cursor, "view", &OPTIONS, problems),
        false => Options::none(),
    };
    let windows = windows(&options, problems);
    let schedule = schedule(&head.name, &options, problems);
    let jitter = jitter(schedule.as_ref(), &options, problems);
    let memory_limit = memory_limit(&options, problems);
    let timeout = timeout(&options, problems);
    let precision = precision(&options, &windows, problems);
    let strategy = strategy(&options, problems);
    let full_every = full_every(&options, strategy, problems);
    let max_degree = options.whole_number("max_degree", problems);
    let max_state_bytes = options.bytes("max_state_bytes", problems);
    let on_error = on_error(&options, problems);
    let keep_old = keep_old(&options, problems);
    let (select_at, select) = select("view", &mut cursor, problems)?;
    if problems.len() > before {
        return None;
    }
    let definition = ViewDefinition {
        name: head.name,
        select,
        select_line: select_at.line,
        select_column: select_at.column,
        windows,
        schedule,
        jitter,
        memory_limit,
        timeout,
        precision,
        strategy,
        full_every,
        max_degree,
        max_state_bytes,
        on_error,
        keep_old,
        sql: head.sql,
        origin: Origin { file: None, line: head.line },
    };
    Some(Found::View { definition, name_at: head.name_at })
}

pub(super) fn refuse_column_list(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) {
    if !cursor.at(&Token::LParen) {
        return;
    }
    problems.push(cursor.place().error("found a list of columns").help("name the columns in the SELECT: count(*) AS txns"));
    cursor.advance();
    loop {
        cursor.skip_item();
        if !cursor.take(&Token::Comma) {
            cursor.take(&Token::RParen);
            return;
        }
    }
}

/// Returns the SELECT as written in the source. `None` if it is missing or not SQL.
pub(super) fn select(what: &str, cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<(TextPosition, String)> {
    if !cursor.take_word("as") {
        problems.push(cursor.expected(&format!("AS and the {what}'s SELECT")));
        return None;
    }
    let begins = cursor.at_word("select") || cursor.at_word("with") || cursor.at(&Token::LParen);
    if !begins {
        problems.push(cursor.expected(&format!("the {what}'s SELECT")));
        return None;
    }
    let at = cursor.place();
    let tokens = cursor.rest();
    let wrong = syntax_errors(cursor);
    if !wrong.is_empty() {
        problems.extend(wrong);
        return None;
    }
    Some((at, cursor.text_of(tokens).to_owned()))
}

/// Returns what DataFusion's parser does not understand in the rest of the statement, at its place in the file.
fn syntax_errors(cursor: &Cursor<'_>) -> Vec<Diagnostic> {
    let tokens: Vec<TokenWithSpan> = cursor.rest().iter().map(|lexeme| lexeme.token.clone()).collect();
    let end = cursor.rest().last().map_or(cursor.place(), |last| last.end_place());
    let mut parser = Parser::new(&SqlDialect).with_tokens_with_locations(tokens.clone());
    let problem = match parser.parse_query() {
        Ok(query) => {
            let next = parser.peek_token();
            if next.token == Token::EOF {
                return interval_as_name(&*query, &tokens).iter().map(keyword_as_name).collect();
            }
            let at = TextPosition::from(next.span.start);
            at.error(format!("found '{}' after the SELECT", next.token)).help("expected ';' or the end of the file")
        }
        Err(error) => {
            let text = error.to_string();
            let (message, at) = parser_text(text.strip_prefix("sql parser error: ").unwrap_or(&text));
            let at = at.map_or(end, TextPosition::from);
            at.error(format!("the SELECT is not understood: {message}"))
        }
    };
    let keywords = keywords_as_names(&tokens);
    if keywords.is_empty() { vec![problem] } else { keywords.iter().map(keyword_as_name).collect() }
}

fn keyword_as_name(keyword: &KeywordAsName) -> Diagnostic {
    let name = format!("\"{}\"", keyword.name);
    TextPosition::from(keyword.place).error(format!("the SELECT is not understood: {name} is a keyword")).help(help(&name))
}

fn windows(options: &Options, problems: &mut Diagnostics) -> Vec<NamedWindow> {
    let Some((text, entry)) = options.text("windows", problems) else { return Vec::new() };
    let mut windows: Vec<NamedWindow> = Vec::new();
    let mut offset = 0;
    for part in text.split(',') {
        let leading = part.chars().take_while(|c| c.is_whitespace()).count();
        let at = entry.inside(offset + leading);
        offset += part.chars().count() + 1;
        match window(part.trim(), at) {
            Ok(window) => match windows.iter().find(|other| other.length == window.length) {
                Some(other) => {
                    let message = format!("the window '{}' is as long as '{}' before it", window.text, other.text);
                    problems.push(at.error(message).help("name each window once"));
                }
                None => windows.push(window),
            },
            Err(problem) => problems.push(problem),
        }
    }
    windows
}

fn window(text: &str, at: TextPosition) -> Result<NamedWindow, Diagnostic> {
    if text.eq_ignore_ascii_case("all") {
        let help = "leave windows out for all time, or write count(*) FILTER (WHERE within(ts, 'all')) for one column";
        return Err(at.error("found the window 'all'").help(help));
    }
    let length = parse_duration(text).map_err(|error| at.error(error.message()).help("windows look like '1h, 7d, 90d'"))?;
    if length < SHORTEST {
        return Err(at.error(format!("the window '{text}' is shorter than a second")).help("expected at least '1s'"));
    }
    Ok(NamedWindow { text: text.to_owned(), length })
}

fn schedule(view: &str, options: &Options, problems: &mut Diagnostics) -> Option<Schedule> {
    let timezone = timezone(options, problems);
    let given: Vec<&OptionEntry> = ["every", "schedule", "after"].into_iter().filter_map(|name| options.find(name)).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("found {} and {}", first.name, second.name);
        problems.push(second.name_at.error(message).help("keep one of the two"));
        return None;
    }
    if options.find("after").is_some() {
        return after(view, options, problems);
    }
    if let Some((length, entry)) = options.duration("every", problems) {
        if length < SHORTEST {
            problems.push(entry.value_at.error("every is shorter than a second").help("expected at least '1s'"));
        }
        return Some(Schedule::Every(length));
    }
    let (expression, entry) = options.text("schedule", problems)?;
    match Schedule::cron(expression, timezone.unwrap_or(Tz::UTC)) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            problems.push(entry.value_at.error(error.message()));
            None
        }
    }
}

fn after(view: &str, options: &Options, problems: &mut Diagnostics) -> Option<Schedule> {
    let (name, entry) = options.text("after", problems)?;
    if name == view {
        problems.push(entry.value_at.error("the view's runs would wait for themselves").help("expected the name of another view"));
        return None;
    }
    Some(Schedule::After(name.into()))
}

fn jitter(schedule: Option<&Schedule>, options: &Options, problems: &mut Diagnostics) -> Option<Duration> {
    let (length, entry) = options.duration("jitter", problems)?;
    match schedule {
        Some(Schedule::Every(_) | Schedule::Cron { .. }) => {}
        Some(Schedule::After(_)) => {
            let help = "leave it out: a run after another view's begins when that one has ended";
            problems.push(entry.name_at.error("jitter has no effect with after").help(help));
            return None;
        }
        None => {
            if ["every", "schedule", "after"].into_iter().all(|name| options.find(name).is_none()) {
                let help = "it spreads the runs of a schedule: add every = '1h' or schedule = '0 3 * * *'";
                problems.push(entry.name_at.error("jitter is given without a schedule").help(help));
            }
            return None;
        }
    }
    let gap = schedule.and_then(Schedule::shortest_gap);
    if let Some(gap) = gap.filter(|gap| length >= *gap) {
        let (jitter, gap) = (format_duration_parts(length), format_duration_parts(gap));
        let message = format!("the jitter of {jitter} is not shorter than the {gap} between two runs");
        problems.push(entry.value_at.error(message).help(format!("expected less than {gap}")));
        return None;
    }
    Some(length)
}

fn memory_limit(options: &Options, problems: &mut Diagnostics) -> Option<u64> {
    let bytes = options.bytes("memory_limit", problems)?;
    if bytes >= LEAST_MEMORY {
        return Some(bytes);
    }
    if let Some(entry) = options.find("memory_limit") {
        let (found, least) = (format_bytes(bytes), format_bytes(LEAST_MEMORY));
        problems.push(entry.value_at.error(format!("the memory limit is {found}")).help(format!("expected at least '{least}'")));
    }
    None
}

fn timeout(options: &Options, problems: &mut Diagnostics) -> Option<Duration> {
    let (length, entry) = options.duration("timeout", problems)?;
    if length < SHORTEST {
        problems.push(entry.value_at.error("the timeout is shorter than a second").help("expected at least '1s'"));
        return None;
    }
    Some(length)
}

fn timezone(options: &Options, problems: &mut Diagnostics) -> Option<Tz> {
    let (name, entry) = options.text("timezone", problems)?;
    if options.find("schedule").is_none() {
        problems.push(
            entry
                .name_at
                .error("timezone is given without a schedule")
                .help("a time zone needs schedule = '0 3 * * *'; every counts in UTC"),
        );
    }
    match name.parse::<Tz>() {
        Ok(timezone) => Some(timezone),
        Err(_) => {
            problems.push(entry.value_at.error(format!("unknown time zone '{name}'")).help(time_zones::expected(name)));
            None
        }
    }
}

fn precision(options: &Options, windows: &[NamedWindow], problems: &mut Diagnostics) -> Option<Level> {
    let (text, entry) = options.text("precision", problems)?;
    let length_us = parse_duration(text).ok().map(|length| length.as_micros() as i64);
    let Some(level) = PRECISIONS.into_iter().find(|level| level.length_us() == length_us) else {
        problems.push(entry.value_at.error(format!("the precision is '{text}'")).help("expected 1s, 10s, 1min, 5min, 1h or 1d"));
        return None;
    };
    refuse_coarse_precision(level, length_us, windows, entry, problems);
    Some(level)
}

/// A window is cut at the precision: a shorter window would cover a longer time than its name says.
fn refuse_coarse_precision(level: Level, length_us: Option<i64>, windows: &[NamedWindow], entry: &OptionEntry, problems: &mut Diagnostics) {
    let shorter = |window: &&NamedWindow| length_us.is_some_and(|length_us| (window.length.as_micros() as i64) < length_us);
    if let Some(window) = windows.iter().find(shorter) {
        let message = format!("the precision {level} is coarser than the window '{}'", window.text);
        problems.push(entry.value_at.error(message).help("expected at most the length of the shortest window"));
    }
}

fn on_error(options: &Options, problems: &mut Diagnostics) -> OnError {
    match options.text("on_error", problems) {
        None | Some(("skip", _)) => OnError::Skip,
        Some(("refuse", _)) => OnError::Refuse,
        Some((text, entry)) => {
            let expected = "expected 'skip' (leave an event out if the SELECT fails on it) or 'refuse' (refuse the view)";
            problems.push(entry.value_at.error(format!("unknown on_error '{text}'")).help(expected));
            OnError::Skip
        }
    }
}

fn keep_old(options: &Options, problems: &mut Diagnostics) -> Duration {
    let Some((text, entry)) = options.text("keep_old", problems) else { return KEEP_OLD };
    parse_duration_or_zero(text).unwrap_or_else(|error| {
        problems.push(entry.value_at.error(error.message()).help("'1d' keeps the replaced version for a day, '0s' not at all"));
        KEEP_OLD
    })
}

const STRATEGIES: &str = "expected 'incremental' (a run reads what is new), 'full' (every run recomputes from the archive) or \
    'stream' (no run reads the archive: what a run needs again is replayed from the log)";

fn strategy(options: &Options, problems: &mut Diagnostics) -> Option<Strategy> {
    let (text, entry) = options.text("strategy", problems)?;
    match text {
        "incremental" => Some(Strategy::Incremental),
        "full" => Some(Strategy::Full),
        "stream" => Some(Strategy::Stream),
        _ => {
            problems.push(entry.value_at.error(format!("unknown strategy '{text}'")).help(STRATEGIES));
            None
        }
    }
}

fn full_every(options: &Options, strategy: Option<Strategy>, problems: &mut Diagnostics) -> Option<Duration> {
    let (length, entry) = options.duration("full_every", problems)?;
    let why = match strategy {
        Some(Strategy::Full) => Some(("'full'", "every run recomputes from the archive: leave one of them out")),
        Some(Strategy::Stream) => Some(("'stream'", "no run reads the archive: leave one of them out")),
        _ => None,
    };
    if let Some((name, help)) = why {
        problems.push(entry.value_at.error(format!("full_every has no effect with strategy = {name}")).help(help));
    }
    Some(length)
}
