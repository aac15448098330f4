//! Turns DataFusion's errors about a user's SQL into plain words: what was found, what was expected, and where.

use std::collections::BTreeSet;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::Reason;
use crate::suggest::nearest;
use known::{known_elsewhere, known_names};
use reasons::reason_in;

mod constants;
mod in_filters;
mod known;
mod reasons;

pub use constants::constants_as_sql;
pub(crate) use in_filters::error_in_filter;
pub use known::MEMBER_OF_JSON;

/// The maximum number of columns listed as expected.
const LISTED: usize = 30;

/// The argument that most functions take, whatever its numeric type.
const NUMBER: &str = "a number";

/// How to convert a text to a number. A caller that knows the argument replaces the dots with it.
pub const CAST: &str = "CAST(.. AS DECIMAL(18,2))";

/// The error for a local time whose zone repeats or skips the hour that it is in.
const NOT_ONE_TIME: &str = "a local time is not exactly one time in its zone, which changes its clock then: expected a time \
    with its offset, such as TIMESTAMPTZ '2026-10-25 02:30:00+01:00', or an offset as the zone, AT TIME ZONE '+01:00'";

/// How the error for a date or a time begins that its type does not hold.
pub const TIME_OUT_OF_RANGE: &str = "a date or a time is out of range";

/// A place in the text of SQL. One that comes later is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SqlPlace {
    /// Counted from 1.
    pub line: usize,
    /// Characters, counted from 1.
    pub column: usize,
}

/// An error of DataFusion in plain words.
pub(crate) struct PlainError {
    pub(crate) message: String,
    pub(crate) reason: Option<Reason>,
    /// Where in the SQL, if the error names a place.
    pub(crate) place: Option<SqlPlace>,
}

/// A message, and the reason where it has one of its own.
type MessageAndReason = (String, Option<Reason>);

/// How the message begins for a text that cannot be parsed.
pub(crate) const NOT_UNDERSTOOD: &str = "the SQL is not understood";

/// Returns the message, the reason, and the place in the SQL if the error names one.
pub(crate) fn plain(error: &DataFusionError) -> PlainError {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    let place = span.map(|span| SqlPlace { line: span.start.line as usize, column: span.start.column as usize });
    if let Some(reason) = invalid_pattern(error) {
        let message = format!("a regular expression is not valid: {reason}");
        return PlainError { message, reason: Some(Reason::InvalidPattern), place };
    }
    let (message, reason) = match error.find_root() {
        DataFusionError::SQL(error, _) => {
            let text = match &**error {
                ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.as_str(),
                ParserError::RecursionLimitExceeded => "it nests too deep",
            };
            let (message, place) = parser_text(text);
            let message = format!("{NOT_UNDERSTOOD}: {}", first_lower(message));
            return PlainError { message, reason: Some(Reason::SqlNotUnderstood), place };
        }
        DataFusionError::SchemaError(error, _) => schema(error),
        DataFusionError::Plan(text) => planning(text),
        DataFusionError::NotImplemented(text) => (format!("not supported: {}", not_implemented(text)), Some(Reason::NotSupported)),
        DataFusionError::ArrowError(error, _) => computing(error),
        DataFusionError::Execution(text) => {
            let text = without_prefixes(text);
            match (without_value(&text), too_large(&text)) {
                (Some(placeholder), _) => (no_value(placeholder), None),
                (None, Some(number)) => number_too_large(&number),
                (None, None) => (in_our_types(after_coercion(&text).unwrap_or(&text).trim()), None),
            }
        }
        _ => (error.strip_backtrace(), None),
    };
    let message = first_lower(message);
    let reason = reason.or_else(|| reason_in(&message));
    PlainError { message, reason, place }
}

/// Returns the placeholder, `$1` or `:name`, that stands in a text for which nobody gives values.
fn without_value(text: &str) -> Option<&str> {
    let (placeholder, _) = text.strip_prefix("Placeholder '")?.split_once("' was not provided a value")?;
    Some(placeholder)
}

fn no_value(placeholder: &str) -> String {
    format!("found {placeholder}, which has no value here: expected the value itself; in a sink or an alert, a parameter is param('name')")
}

/// Says what to write instead, where there is something.
fn not_implemented(text: &str) -> String {
    const CORRELATED: [&str; 2] = ["OuterReferenceColumn(", "ScalarSubquery("];
    const CONDITIONS: [&str; 2] = ["InSubquery(", "Exists("];
    let without_plan = text.strip_prefix("Physical plan does not support logical expression ");
    if without_plan.is_some_and(|expr| CORRELATED.iter().any(|correlated| expr.starts_with(correlated))) {
        return "a subquery that names a column of the query around it, other than in a comparison with = and without LIMIT: write a JOIN \
                or a window function"
            .to_owned();
    }
    if without_plan.is_some_and(|expr| CONDITIONS.iter().any(|condition| expr.starts_with(condition))) {
        return "IN or EXISTS of such a subquery here: write a LEFT JOIN of its distinct rows, and IS NOT NULL".to_owned();
    }
    match text {
        _ if text.starts_with("Unsupported ast node in sqltorel: Collate ") => {
            "COLLATE: leave it out, texts are compared byte by byte, as with COLLATE \"C\"".to_owned()
        }
        "Unsupported binary operator: PGOverlap" => "the operator &&: write array_has_any(a, b)".to_owned(),
        "Unsupported binary operator: PGStartsWith" => "the operator ^@: write starts_with(a, b)".to_owned(),
        "COUNT DISTINCT with multiple arguments" => "count(DISTINCT a, b): write count(DISTINCT a || '/' || b)".to_owned(),
        _ if text.starts_with("Dot access not supported") => "a dot before a member: write top_k(x, 3)[1]['value']".to_owned(),
        _ => in_our_types(text),
    }
}

fn computing(error: &ArrowError) -> MessageAndReason {
    match error {
        ArrowError::DivideByZero => ("division by zero".into(), Some(Reason::DivisionByZero)),
        ArrowError::CastError(text) if text == "Cannot cast timezone to different timezone" => {
            (NOT_ONE_TIME.into(), Some(Reason::AmbiguousLocalTime))
        }
        ArrowError::ComputeError(text) if text == "Timestamp out of range" || text.starts_with("Date arithmetic overflow: ") => {
            (TIME_OUT_OF_RANGE.into(), Some(Reason::TimeOutOfRange))
        }
        ArrowError::CastError(text) | ArrowError::ParseError(text) | ArrowError::ComputeError(text) => match too_large(text) {
            Some(number) => number_too_large(&in_our_types(&number)),
            None => (in_our_types(&without_prefixes(text)), None),
        },
        ArrowError::ArithmeticOverflow(text) => {
            number_too_large(&in_our_types(text.strip_prefix("Overflow happened on: ").unwrap_or(text)))
        }
        ArrowError::InvalidArgumentError(text) => match too_many_digits(text) {
            Some(number) => number_too_large(&format!("{number} has more digits than its type")),
            None => (in_our_types(text), None),
        },
        other => (other.to_string(), None),
    }
}

fn number_too_large(what: &str) -> MessageAndReason {
    (format!("a number is too large: {what}"), Some(Reason::NumberTooLarge))
}

/// Returns what is wrong with a regular expression, if that is the error. Functions differ in the kind of error that
/// they return for it.
pub(crate) fn invalid_pattern(error: &DataFusionError) -> Option<String> {
    use DataFusionError::{ArrowError, Execution, External, Internal};
    let root = error.find_root();
    let (External(_) | Internal(_) | ArrowError(..) | Execution(_)) = root else { return None };
    let text = root.strip_backtrace();
    if text.contains("Compiled regex exceeds size limit") || text.contains("CompiledTooBig") {
        return Some("it is too large".into());
    }
    // The parser of patterns draws the place first.
    let (_, said) = text.split_once("regex parse error:")?;
    said.lines().find_map(|line| line.trim().strip_prefix("error: ")).map(str::to_owned)
}

/// Returns what does not fit, where casts and functions say so: `Can't cast value 300 to type Int8`, `value of 300 is
/// out of range Int8`, `Int64Array overflow on abs(-9223372036854775808)`, `Overflow happened on FACTORIAL(25)`.
fn too_large(text: &str) -> Option<String> {
    let cast = text.strip_prefix("Can't cast value ").and_then(|rest| rest.split_once(" to type "));
    let cast = cast.or_else(|| text.strip_prefix("value of ").and_then(|rest| rest.split_once(" is out of range ")));
    if let Some((number, data_type)) = cast {
        return Some(format!("{number} does not fit {data_type}"));
    }
    if let Some((_, call)) = text.split_once("Array overflow on ") {
        return Some(call.to_owned());
    }
    let call = text.strip_prefix("Signed integer overflow in ").or_else(|| text.strip_prefix("Overflow happened on "));
    if let Some((function, arguments)) = call.and_then(|call| call.split_once('(')) {
        return Some(format!("{}({arguments}", function.to_ascii_lowercase()));
    }
    if let Some(function) = text.strip_prefix("Decimal overflow while applying ") {
        return Some(format!("{function} of a DECIMAL"));
    }
    match text.strip_prefix("Overflow while rounding ") {
        Some(data_type) if !data_type.starts_with("decimal") => Some(format!("a {data_type} that is rounded")),
        None if !text.starts_with("Decimal overflow: rounded value ") => None,
        _ => Some("a DECIMAL that is rounded".to_owned()),
    }
}

/// Returns the number of `123 is too large to store in a Decimal128 of precision 2. ..`, or of one that is too small.
fn too_many_digits(text: &str) -> Option<&str> {
    let (number, rest) = text.split_once(" is too ")?;
    rest.contains(" to store in a Decimal").then_some(number)
}

/// Returns the parser's own message (`expected an expression, found FROM`) and the place that was at its end.
pub fn parser_text(text: &str) -> (String, Option<SqlPlace>) {
    let place = |tail: &str| {
        let (line, column) = tail.split_once(", Column: ")?;
        Some(SqlPlace { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
    };
    let split = text.rsplit_once(" at Line: ").and_then(|(message, tail)| Some((message, place(tail)?)));
    let (message, place) = split.map_or((text, None), |(message, place)| (message, Some(place)));
    let message = message.replace("found: EOF", "found: the end of the statement");
    let message = match message.strip_prefix("Expected: ") {
        Some(rest) => format!("expected {}", rest.replace(", found: ", ", found ")),
        None => message,
    };
    (message, place)
}

fn schema(error: &SchemaError) -> MessageAndReason {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            let name = &field.name;
            let message = format!("the column \"{name}\" is in several of the tables: expected its table in front, such as t.{name}");
            (message, Some(Reason::AmbiguousColumn))
        }
        SchemaError::DuplicateUnqualifiedField { name } if name.contains('(') => same_aggregate(name),
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => same_name(name),
    }
}

fn no_column(field: &Column, valid: &[Column]) -> MessageAndReason {
    let table_of = |column: &Column| column.relation.as_ref().map(|relation| relation.table().to_owned());
    let tables: BTreeSet<String> = valid.iter().filter_map(table_of).collect();
    if let Some(table) = table_of(field).filter(|table| !tables.contains(table) && !tables.is_empty()) {
        let tables: Vec<String> = tables.into_iter().collect();
        let message = format!("found {table}.{}, and FROM has no \"{table}\": expected one of {}", field.name, tables.join(", "));
        return (message, Some(Reason::UnknownTable));
    }
    let shown = |column: &&Column| field.name.starts_with("__") || !column.name.starts_with("__");
    let shown: Vec<&Column> = valid.iter().filter(shown).collect();
    let near = nearest(&field.name, shown.iter().map(|column| column.name.as_str()));
    let mut names: Vec<String> = Vec::new();
    for column in shown {
        let name = match table_of(column).filter(|_| tables.len() > 1) {
            Some(table) => format!("{table}.{}", column.name),
            None => column.name.clone(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > LISTED {
        names.truncate(LISTED);
        names.push("..".into());
    }
    let near = near.map(|near| format!("did you mean \"{near}\"? ")).or_else(|| as_text(&field.name)).unwrap_or_default();
    let expected = if names.is_empty() { "there are no columns here".to_owned() } else { format!("expected one of {}", names.join(", ")) };
    (format!("{NO_COLUMN}{}\": {near}{expected}", field.name), Some(Reason::UnknownColumn))
}

/// A name that must have been in double quotes may be meant as a text.
fn as_text(name: &str) -> Option<String> {
    let needs_none = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (!needs_none).then(|| text_hint(name))
}

fn text_hint(name: &str) -> String {
    format!("for a text, write '{}'; ", name.replace('\'', "''"))
}

/// Returns the message that no column has a name, with how the name is written as a text, if it is in double quotes in
/// the SQL. `None` for another message, and for one that says so already.
pub(crate) fn with_text_hint(message: &str, sql: &str) -> Option<String> {
    let name = unknown_column(message)?;
    let (found, expected) = message.split_at_checked(NO_COLUMN.len() + name.len() + "\": ".len())?;
    let hint = text_hint(name);
    (!expected.contains(&hint) && is_in_double_quotes(name, sql)).then(|| format!("{found}{hint}{expected}"))
}

/// Whether the SQL has this name in double quotes, without a table in front of it.
fn is_in_double_quotes(name: &str, sql: &str) -> bool {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap_or_default();
    let is_name = |token: &Token| matches!(token, Token::Word(word) if word.quote_style == Some('"') && word.value == name);
    tokens.iter().enumerate().any(|(at, token)| is_name(token) && (at == 0 || tokens[at - 1] != Token::Period))
}

const NO_COLUMN: &str = "there is no column \"";

/// Returns the name if the message says that no column has it.
pub fn unknown_column(message: &str) -> Option<&str> {
    let (name, _) = message.strip_prefix(NO_COLUMN)?.split_once('"')?;
    Some(name)
}

const NO_RELATION: &str = "there is no stream or view \"";

/// Returns the name if the message says that no stream or view has it.
pub fn unknown_relation(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(NO_RELATION)?;
    Some(rest.split_once('"')?.0)
}

fn same_name(name: &str) -> MessageAndReason {
    let message = format!("two columns are called \"{}\": expected different names (.. AS another)", constants_as_sql(name));
    (message, Some(Reason::RepeatedColumn))
}

/// The planner names an aggregate itself, by its text without casts: another alias changes nothing.
fn same_aggregate(name: &str) -> MessageAndReason {
    let message = format!(
        "two aggregates are called \"{}\", as casts are left out of their names: expected the cast in a subquery, under a name of its \
         own, such as FROM (SELECT .., CAST(x AS TEXT) AS x_text FROM ..)",
        constants_as_sql(name)
    );
    (message, Some(Reason::RepeatedColumn))
}

/// Rewrites the planner's messages by their shapes. Our own functions already say what they take.
fn planning(text: &str) -> MessageAndReason {
    let text = constants_as_sql(&without_prefixes(text));
    let between = |before: &str, after: &str| {
        let (_, rest) = text.split_once(before)?;
        Some(rest.split_once(after)?.0)
    };
    if let Some(said) = after_coercion(&text) {
        return (in_our_types(said), None);
    }
    if let Some(call) = between("No function matches the given name and argument types '", "'.") {
        return (wrong_arguments(&text, call), None);
    }
    if let Some(name) = between("Invalid function '", "'") {
        if let Some(here) = known_elsewhere(name) {
            return (format!("there is no function \"{name}\": write {here}"), Some(Reason::UnknownFunction));
        }
        // DataFusion's own suggestion may be far off, but it knows functions that a caller has added.
        let near = nearest(name, known_names().chain(between("Did you mean '", "'")));
        let near = near.map_or(String::new(), |near| format!(": did you mean \"{near}\"?"));
        return (format!("there is no function \"{name}\"{near}"), Some(Reason::UnknownFunction));
    }
    if let Some(name) = between("table '", "' not found") {
        return (format!("{NO_RELATION}{}\"", name.rsplit('.').next().unwrap_or(name)), Some(Reason::UnknownTable));
    }
    if let Some(column) = between("must be in GROUP BY or an aggregate function: While expanding wildcard, column \"", "\" must") {
        let column = column.rsplit('.').next().unwrap_or(column);
        let message = format!("the column \"{column}\" is neither in GROUP BY nor inside an aggregate: expected it in one of them");
        return (message, Some(Reason::UngroupedColumn));
    }
    if let Some(name) = between("Projections require unique expression names but the expression \"", "\" at position ") {
        let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
        // The expression comes before an alias, the table before a column.
        let alias = name.rsplit_once(" AS ").map(|(_, alias)| alias).filter(|alias| is_name(alias));
        let column = name.rsplit('.').next().filter(|_| is_name(name));
        return same_name(alias.or(column).unwrap_or(name));
    }
    let text = in_our_types(&text);
    let expected = if is_without_unit(&text) { ": expected an interval, such as INTERVAL '30 minutes'" } else { "" };
    (format!("{text}{expected}"), None)
}

/// Whether a number stands where only an interval can: beside one in a comparison, or added to a time.
fn is_without_unit(text: &str) -> bool {
    const NUMBERS: [&str; 5] = ["BIGINT", "INT", "DOUBLE", "DECIMAL", "UInt64"];
    let compared = text.strip_prefix("Cannot infer common argument type for comparison operation ");
    let computed = text.strip_prefix("Cannot coerce arithmetic expression ");
    let added = computed.filter(|types| types.contains(" + ") || types.contains(" - "));
    let has = |types: &str, wanted: &[&str]| types.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| wanted.contains(&word));
    let is_interval = compared.is_some_and(|types| has(types, &["INTERVAL"]) && has(types, &NUMBERS));
    is_interval || added.is_some_and(|types| has(types, &["INTERVAL", "TIME", "TIMESTAMP", "TIMESTAMPTZ"]) && has(types, &NUMBERS))
}

/// What a function of ours says of its arguments.
fn after_coercion(text: &str) -> Option<&str> {
    let (_, said) = text.split_once("user-defined coercion failed with: ")?;
    Some(said.split(" No function matches").next().unwrap_or(said).trim_end_matches('.'))
}

/// `found sum(TEXT), expected a number, e.g. CAST(.. AS DECIMAL(18,2))`.
fn wrong_arguments(text: &str, call: &str) -> String {
    let expected = text.split_once("Candidate functions:").map_or("", |(_, candidates)| candidates);
    let mut forms: Vec<String> = Vec::new();
    for form in expected.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains("Null")) {
        let form = in_our_types(&with_numbers(form));
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    let of_a_number = call.split_once('(').map(|(name, _)| format!("{name}({NUMBER})"));
    // A form with a duration may be listed as well: no stream column has that type.
    let is_of_a_number = of_a_number.is_some_and(|of_a_number| forms.contains(&of_a_number));
    let expected = if is_of_a_number { NUMBER.to_owned() } else { forms.join(" or ") };
    let found = in_our_types(call);
    let cast = if found.contains("TEXT") && expected.contains(NUMBER) { format!(", e.g. {CAST}") } else { String::new() };
    format!("found {found}, expected {expected}{cast}")
}

/// Rewrites `sum(UInt64)` to `sum(a number)`, and likewise its other forms.
fn with_numbers(form: &str) -> String {
    let form = form.replace("Numeric(1)", NUMBER).replace("Numeric(2)", &format!("{NUMBER}, {NUMBER}"));
    word_by_word(&form, |word| match word {
        "String" => "TEXT",
        "Integer" | "Float" | "Decimal" | "Decimal128" => NUMBER,
        "Int8" | "Int16" | "Int32" | "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" | "Float16" | "Float32" | "Float64" => NUMBER,
        word => word,
    })
}

/// Removes the kind names that nested errors put in front of the message.
fn without_prefixes(text: &str) -> String {
    let prefixes = ["Error during planning: ", "Execution error: ", "Internal error: "];
    prefixes.iter().fold(text.to_owned(), |text, prefix| text.replace(prefix, ""))
}

/// Starts the sentence in lower case, as messages do; words in capitals stay.
fn first_lower(text: String) -> String {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if first.is_ascii_uppercase() && second.is_ascii_lowercase() => {
            format!("{}{}", first.to_ascii_lowercase(), &text[1..])
        }
        _ => text,
    }
}

/// Replaces Arrow's type names with those used in definitions.
fn in_our_types(text: &str) -> String {
    const OURS: [(&str, &str); 10] = [
        ("LargeUtf8", "TEXT"),
        ("Utf8View", "TEXT"),
        ("Utf8", "TEXT"),
        ("Int64", "BIGINT"),
        ("Int32", "INT"),
        ("Float64", "DOUBLE"),
        ("Decimal128", "DECIMAL"),
        ("Boolean", "BOOLEAN"),
        ("Date32", "DATE"),
        ("Date64", "DATE"),
    ];
    // Arrow names the default type of decimals, whichever was asked for.
    let text = text.replace(" to value of Decimal128(38, 10) type", " to value of DECIMAL type");
    let text = times_in_our_types(&constants_as_sql(&text));
    word_by_word(&text, |word| OURS.iter().find(|(theirs, _)| *theirs == word).map_or(word, |(_, ours)| ours))
}

/// Replaces the types of times, whose names have a unit in Arrow: `Timestamp(ns, "+TZ")`, `Time64(µs)`.
fn times_in_our_types(text: &str) -> String {
    const PARTS: [(&str, &str); 4] = [("Timestamp", "TIMESTAMP"), ("Time32", "TIME"), ("Time64", "TIME"), ("Duration", "INTERVAL")];
    let mut text = text.to_owned();
    for unit in ["s", "ms", "µs", "ns"] {
        for (theirs, ours) in PARTS {
            text = text.replace(&format!("{theirs}({unit})"), ours);
        }
        let zoned = format!("Timestamp({unit}, \"");
        while let Some((before, rest)) = text.split_once(&zoned)
            && let Some((_, after)) = rest.split_once("\")")
        {
            text = format!("{before}TIMESTAMPTZ{after}");
        }
    }
    for unit in ["YearMonth", "DayTime", "MonthDayNano"] {
        text = text.replace(&format!("Interval({unit})"), "INTERVAL");
    }
    text
}

/// Returns the text with `write` applied to each of its words (letters and digits).
fn word_by_word<'a>(text: &'a str, write: impl Fn(&'a str) -> &'a str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, other) = match word {
            0 => rest.split_at(rest.chars().next().map_or(0, char::len_utf8)),
            end => rest.split_at(end),
        };
        written.push_str(write(word));
        rest = other;
    }
    written
}

#[cfg(test)]
mod tests;
