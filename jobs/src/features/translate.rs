//! Translates a script to definitions: its streams, a view for each event type and keys, and one sink.

use std::collections::BTreeSet;
use std::fmt::Write;

use definitions::durations::parse_duration;

use super::expression::{Argument, Expression, event_types, expand, is_boolean};
use super::script::{FeatureSink, Field, Script, Source};
use super::streams::{EventType, ScriptStreams};
use super::text::{LINE_COMMENT, listed, made_from, one_line, quoted, unused};
use super::{File, Mistake};
use crate::output::count_of;

/// What the names of the sink's event begin with.
const EVENT: &str = "e.";

/// Translates a whole script. Whatever has no exact form is added to `mistakes`.
pub(super) fn files(script_name: &str, script: &Script, mistakes: &mut Vec<Mistake>) -> Vec<File> {
    let streams = ScriptStreams::new(script);
    mistakes.extend(streams.mistakes());
    let mut files = streams.files(script_name);
    let Some(sink) = &script.sink else { return files };
    let Some(event_type) = streams.event_type(&sink.event_type) else {
        let message = format!("there is no `set-source` for the event type `{}`", sink.event_type);
        mistakes.push(Mistake { line: sink.line, message });
        return files;
    };
    let mut translator =
        Translator { script, streams: &streams, event_type: &sink.event_type, views: Vec::new(), line: 0, is_put_out: true };
    let mut columns = Vec::new();
    for feature in &script.features {
        translator.line = feature.line;
        let translated = match event_type.source.fields.iter().any(|field| field.name == feature.name) {
            true => Err(format!("the feature `{}` has the name of a field of `{}`", feature.name, sink.event_type)),
            false => expand(&feature.expression, &script.macros, 0).and_then(|expanded| translator.over_event(&expanded)),
        };
        match translated {
            Ok(sql) => {
                let lines = listed(std::iter::once(feature.line).chain(feature.repeated.iter().copied()));
                columns.push((format!("{sql} AS {}", feature.name), format!("{LINE_COMMENT}{lines}: {}", one_line(&feature.text))));
            }
            Err(message) => mistakes.push(Mistake { line: feature.line, message }),
        }
    }
    // Afterwards, so that they find the views that the sink joins.
    translator.is_put_out = false;
    for feature in &script.kept {
        translator.line = feature.line;
        translator.event_type = &feature.event_type;
        if let Err(message) = expand(&feature.expression, &script.macros, 0).and_then(|expanded| translator.keep(&expanded)) {
            mistakes.push(Mistake { line: feature.line, message });
        }
    }
    files.extend(translator.views.iter().map(|view| view.file(script_name)));
    files.push(sink_file(script_name, sink, event_type, columns, &translator.views));
    files
}

/// `features`: the columns, each with its comment.
fn sink_file(script_name: &str, sink: &FeatureSink, event_type: &EventType<'_>, features: Vec<(String, String)>, views: &[View]) -> File {
    let mut text = made_from(script_name, &sink.line.to_string(), &sink.notes);
    let key = sink.key.as_ref().map(|key| format!(", key = '{key}'")).unwrap_or_default();
    let _ = write!(text, "CREATE SINK {} WITH (topic = {}{key}, features = '{}') AS\nSELECT ", sink.name, quoted(&sink.topic), sink.mode);
    let fields = event_type.selected(EVENT).map(|(column, _)| (column, String::new()));
    let columns: Vec<(String, String)> = fields.chain(features).collect();
    for (index, (column, comment)) in columns.iter().enumerate() {
        let comma = if index + 1 < columns.len() { "," } else { "" };
        let indent = if index == 0 { "" } else { "       " };
        let _ = writeln!(text, "{indent}{column}{comma}{comment}");
    }
    let mut clauses = vec![(format!("FROM {} e", event_type.stream), String::new())];
    for (index, view) in views.iter().enumerate().filter(|(_, view)| view.is_joined()) {
        let alias = format!("v{}", index + 1);
        let on: Vec<String> = view.keys.iter().map(|key| format!("{alias}.{} = {}", key.name, key.value)).collect();
        let on = if on.is_empty() { "true".to_owned() } else { on.join(" AND ") };
        clauses.push((format!("LEFT JOIN {} {alias} ON {on}", view.name), format!("{LINE_COMMENT}{}", view.lines())));
    }
    if let Some(condition) = event_type.condition(EVENT) {
        clauses.push((format!("WHERE {condition}"), format!("{LINE_COMMENT}{}", event_type.source.line)));
    }
    for (index, (clause, comment)) in clauses.iter().enumerate() {
        let end = if index + 1 < clauses.len() { "" } else { ";" };
        let _ = writeln!(text, "{clause}{end}{comment}");
    }
    File { path: format!("sinks/{}.sql", sink.name), text }
}

/// A key of a view.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ViewKey {
    name: String,
    /// Over the view's events.
    expression: String,
    /// The expression over the sink's event that is looked up.
    value: String,
}

struct ViewColumn {
    name: String,
    aggregate: String,
    /// The lines of the script that use it.
    lines: BTreeSet<usize>,
    /// Whether the sink reads it.
    is_put_out: bool,
}

/// A view in the making.
struct View {
    name: String,
    from: String,
    keys: Vec<ViewKey>,
    columns: Vec<ViewColumn>,
}

impl View {
    /// Whether the sink reads it.
    fn is_joined(&self) -> bool {
        self.columns.iter().any(|column| column.is_put_out)
    }

    /// Whether it has the keys that `other` has, whatever a sink looks up.
    fn is_keyed_like(&self, other: &View) -> bool {
        self.from == other.from && self.keys.iter().map(|key| &key.expression).eq(other.keys.iter().map(|key| &key.expression))
    }

    /// The lines of the script that read the view.
    fn lines(&self) -> String {
        let lines: BTreeSet<usize> = self.columns.iter().flat_map(|column| &column.lines).copied().collect();
        listed(lines)
    }

    fn file(&self, script_name: &str) -> File {
        let keys: Vec<&str> = self.keys.iter().map(|key| key.expression.as_str()).collect();
        let mut text =
            format!("-- Made by `basestream features` from {script_name}.\nCREATE VIEW {} WITH (every = '1h') AS\nSELECT ", self.name);
        for ViewKey { name, expression, .. } in &self.keys {
            let is_column = expression.rsplit('.').next() == Some(name.as_str());
            let alias = if is_column { String::new() } else { format!(" AS {name}") };
            let _ = write!(text, "{expression}{alias},\n       ");
        }
        for (index, ViewColumn { name, aggregate, lines, is_put_out }) in self.columns.iter().enumerate() {
            let comma = if index + 1 < self.columns.len() { "," } else { "" };
            let indent = if index == 0 { "" } else { "       " };
            let kept = if *is_put_out { "" } else { " (kept, and not put out)" };
            let _ = writeln!(text, "{indent}{aggregate} AS {name}{comma}{LINE_COMMENT}{}{kept}", listed(lines.iter().copied()));
        }
        let _ = write!(text, "FROM {}", self.from);
        if !keys.is_empty() {
            let _ = write!(text, "\nGROUP BY {}", keys.join(", "));
        }
        text.push_str(";\n");
        File { path: format!("views/{}.sql", self.name), text }
    }
}

struct Translator<'a> {
    script: &'a Script,
    streams: &'a ScriptStreams<'a>,
    /// The feature's event type: the sink's, if the sink puts it out.
    event_type: &'a str,
    views: Vec<View>,
    line: usize,
    /// Whether the sink puts the feature out.
    is_put_out: bool,
}

impl Translator<'_> {
    /// A feature of which only what its operators count is kept.
    fn keep(&mut self, expression: &Expression) -> Result<(), String> {
        self.source(self.event_type)?;
        if event_types(expression).is_empty() {
            return Err("--mode update keeps what operators count, and there is no operator: expected one such as COUNT".into());
        }
        self.over_event(expression).map(drop)
    }

    /// An expression over the sink's event and the rows of views.
    fn over_event(&mut self, expression: &Expression) -> Result<String, String> {
        match expression {
            Expression::Call(name, arguments) if name.starts_with("F_") => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.over_event(operand(argument)?)?);
                }
                self.check_operands(name, arguments, self.event_type)?;
                function(name, &values)
            }
            Expression::Call(name, arguments) if name == "FLAT_COUNT_DISTINCT" => self.linked(arguments),
            Expression::Call(name, arguments) => self.aggregate(name, arguments),
            plain => self.plain(plain, self.event_type, EVENT),
        }
    }

    /// An expression over the fields of one event, without operators.
    fn over_fields(&self, expression: &Expression, event_type: &str, alias: &str) -> Result<String, String> {
        match expression {
            Expression::Call(name, arguments) if name.starts_with("F_") => {
                let mut values = Vec::new();
                for argument in arguments {
                    values.push(self.over_fields(operand(argument)?, event_type, alias)?);
                }
                self.check_operands(name, arguments, event_type)?;
                function(name, &values)
            }
            Expression::Call(name, _) => Err(format!(
                "{name} is an operand that depends on other events, and has no exact form here: a view cannot read another view's row"
            )),
            plain => self.plain(plain, event_type, alias),
        }
    }

    /// Refuses operands that are no numbers, where a function computes with DOUBLE.
    fn check_operands(&self, function: &str, arguments: &[Argument], event_type: &str) -> Result<(), String> {
        if !["F_DIVIDE", "F_POW", "F_EXP", "F_LOG", "F_SQRT"].contains(&function) {
            return Ok(());
        }
        arguments.iter().try_for_each(|argument| self.check_number(function, operand(argument)?, event_type))
    }

    /// Refuses what is no number, but can be converted to one: a time would be its microseconds.
    fn check_number(&self, of: &str, expression: &Expression, event_type: &str) -> Result<(), String> {
        let refused = |found: String| Err(format!("{of} takes numbers, found {found}: expected a field whose --type is a number"));
        match expression {
            Expression::Name(name) if is_boolean(name) => refused(format!("`{name}`")),
            Expression::Name(name) => match self.field(event_type, name)?.sql_type.as_str() {
                "INT" | "BIGINT" | "DOUBLE" => Ok(()),
                decimal if decimal.starts_with("DECIMAL") => Ok(()),
                other => refused(format!("the field `{name}`, which is {other}")),
            },
            Expression::Number(_) => Ok(()),
            Expression::Text(text) => refused(quoted(text)),
            Expression::Call(name, arguments) if name.starts_with("F_") => {
                arguments.iter().try_for_each(|argument| self.check_number(of, operand(argument)?, event_type))
            }
            Expression::Call(name, arguments) if matches!(name.as_str(), "MAX" | "MIN") => {
                let Measured { event_type, target, .. } = measured(name, arguments)?;
                self.check_number(of, &target.expression, event_type)
            }
            Expression::Call(..) => Ok(()),
        }
    }

    fn plain(&self, expression: &Expression, event_type: &str, alias: &str) -> Result<String, String> {
        match expression {
            Expression::Name(name) if is_boolean(name) => Ok(name.clone()),
            Expression::Name(name) => {
                let field = self.field(event_type, name)?;
                let in_stream = self.streams.event_type(event_type).filter(|_| alias == EVENT).map(|event_type| event_type.column(field));
                Ok(format!("{alias}{}", in_stream.unwrap_or(name)))
            }
            Expression::Number(number) => Ok(number.clone()),
            Expression::Text(text) => Ok(quoted(text)),
            Expression::Call(name, _) => Err(format!("{name} cannot stand here")),
        }
    }

    fn source(&self, event_type: &str) -> Result<&Source, String> {
        self.script.sources.get(event_type).ok_or_else(|| format!("there is no `set-source` for the event type `{event_type}`"))
    }

    fn field(&self, event_type: &str, name: &str) -> Result<&Field, String> {
        let found = self.source(event_type)?.fields.iter().find(|field| field.name == name);
        found.ok_or_else(|| format!("the event type `{event_type}` has no field `{name}`"))
    }

    /// `OPERATOR(window, event_type, target[=value], on1[=value], ..)`.
    fn aggregate(&mut self, operator: &str, arguments: &[Argument]) -> Result<String, String> {
        const OPERATORS: &str = "COUNT, SUM, AVG, MAX, MIN, VARIANCE, COUNT_DISTINCT, SET, LIST or FLAT_COUNT_DISTINCT, or a function F_..";
        if !["COUNT", "SUM", "AVG", "MAX", "MIN", "VARIANCE", "COUNT_DISTINCT", "SET", "LIST"].contains(&operator) {
            return Err(format!("there is no operator {operator}; expected {OPERATORS}"));
        }
        let Measured { window, event_type, target, on } = measured(operator, arguments)?;
        let time = self.source(event_type)?.time.clone();
        // COUNT counts the events that have the target's value: its target is the first of the keys.
        let bound: Vec<&Argument> = if operator == "COUNT" { std::iter::once(target).chain(on).collect() } else { on.iter().collect() };
        let (keys, filters) = self.keys(event_type, &bound, "")?;
        let mut filter: Vec<String> = filters;
        let (label, call) = if operator == "COUNT" {
            ("count".to_owned(), "count(*)".to_owned())
        } else {
            if target.value.is_some() {
                return Err(format!("the target of {operator} is what is measured, and cannot have a value"));
            }
            let value = self.over_fields(&target.expression, event_type, "")?;
            if operator == "VARIANCE" {
                self.check_number(operator, &target.expression, event_type)?;
            }
            let label = match &target.expression {
                Expression::Name(name) => format!("{}_{name}", operator.to_ascii_lowercase()),
                _ => operator.to_ascii_lowercase(),
            };
            let call = match operator {
                "VARIANCE" => format!("var_pop(CAST({value} AS DOUBLE))"),
                "COUNT_DISTINCT" => format!("count(DISTINCT {value})"),
                "SET" => format!("array_agg(DISTINCT {value} ORDER BY {value})"),
                "LIST" => format!("array_agg({value} ORDER BY {time})"),
                _ => format!("{}({value})", operator.to_ascii_lowercase()),
            };
            if matches!(operator, "SET" | "LIST") {
                filter.push(format!("{value} IS NOT NULL"));
            }
            (label, call)
        };
        filter.push(format!("within({time}, '{window}')"));
        let aggregate = format!("{call} FILTER (WHERE {})", filter.join(" AND "));
        let by: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        let name = if by.is_empty() { format!("{event_type}_all") } else { format!("{event_type}_by_{}", by.join("_")) };
        Ok(self.column(View { name, from: event_type.to_owned(), keys, columns: Vec::new() }, &format!("{label}_{window}"), aggregate))
    }

    /// `FLAT_COUNT_DISTINCT(window, event_type, target, SET(window, event_type, through, on1[=value], ..))`: the
    /// different targets of the events whose `through` is in the set.
    fn linked(&mut self, arguments: &[Argument]) -> Result<String, String> {
        let operator = "FLAT_COUNT_DISTINCT";
        let Measured { window, event_type, target, on } = measured(operator, arguments)?;
        let expected = "FLAT_COUNT_DISTINCT(window, event_type, target, SET(window, event_type, through, on, ..))";
        let [Argument { expression: Expression::Call(inner, set), value: None }, far_on @ ..] = on else {
            return Err(format!("expected {expected}"));
        };
        if inner != "SET" {
            return Err(format!("expected {expected}, found {inner} in the place of SET"));
        }
        let Measured { window: near_window, event_type: near, target: through, on: near_on } = measured("SET", set)?;
        let (Expression::Name(target), None, Expression::Name(through), None) =
            (&target.expression, &target.value, &through.expression, &through.value)
        else {
            return Err(format!("the targets of {operator} and of its SET are fields without a value"));
        };
        self.field(event_type, target)?;
        self.field(event_type, through)?;
        self.field(near, through)?;
        let (far_keys, far_filters) = self.keys(event_type, &far_on.iter().collect::<Vec<_>>(), "l.")?;
        if !far_keys.is_empty() {
            return Err(format!(
                "{operator} with other keys beside one SET has no exact form: expected `field=constant` for each, or {expected}"
            ));
        }
        let (keys, near_filters) = self.keys(near, &near_on.iter().collect::<Vec<_>>(), "c.")?;
        if keys.is_empty() {
            return Err(format!("the SET in {operator} needs a key whose value is not a constant; expected {expected}"));
        }
        let (near_time, far_time) = (self.source(near)?.time.clone(), self.source(event_type)?.time.clone());
        let windows = [format!("within(c.{near_time}, '{near_window}')"), format!("within(l.{far_time}, '{window}')")];
        let conditions: Vec<String> = near_filters.into_iter().chain(far_filters).chain(windows).collect();
        let aggregate = format!("count(DISTINCT l.{target}) FILTER (WHERE {})", conditions.join(" AND "));
        let by: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        let name = format!("{near}_{}_links_{event_type}_by_{through}", by.join("_"));
        let from = format!("{near} c JOIN {event_type} l ON c.{through} = l.{through}");
        let column = format!("{target}_{near_window}_{window}");
        Ok(self.column(View { name, from, keys, columns: Vec::new() }, &column, aggregate))
    }

    /// The keys with what is looked up, and the conditions of those that are bound to a constant. `alias` is what names
    /// begin with in the view's SELECT.
    fn keys(&self, event_type: &str, bound: &[&Argument], alias: &str) -> Result<(Vec<ViewKey>, Vec<String>), String> {
        let (mut keys, mut filters): (Vec<ViewKey>, Vec<String>) = (Vec::new(), Vec::new());
        for argument in bound {
            let name = match &argument.expression {
                Expression::Name(name) if !is_boolean(name) => name.clone(),
                Expression::Call(function, _) => unused(&function.to_ascii_lowercase(), |name| keys.iter().any(|key| key.name == name)),
                _ => return Err("a key is a field of the event type, or a function of its fields; a constant stands behind its `=`".into()),
            };
            let expression = self.over_fields(&argument.expression, event_type, alias)?;
            if let Some(constant) = argument.value.as_ref().and_then(constant) {
                filters.push(format!("{expression} = {constant}"));
                continue;
            }
            if keys.iter().any(|key| key.expression == expression) {
                return Err("a key is named twice".into());
            }
            let value =
                self.over_fields(argument.value.as_ref().unwrap_or(&argument.expression), self.event_type, EVENT).map_err(|message| {
                    let is_name = matches!(argument.value, Some(Expression::Name(_)));
                    if is_name { format!("{message}; a text stands in single quotes") } else { message }
                })?;
            keys.push(ViewKey { name, expression, value });
        }
        keys.sort();
        Ok((keys, filters))
    }

    /// Adds a column to the view with these keys and values, unless it is there, and returns how a sink names it.
    fn column(&mut self, wanted: View, label: &str, aggregate: String) -> String {
        let is_put_out = self.is_put_out;
        let is_wanted = |view: &View| view.is_keyed_like(&wanted) && (!is_put_out || view.keys == wanted.keys);
        let found = self.views.iter().position(is_wanted);
        let index = found.unwrap_or_else(|| {
            let name = unused(&wanted.name, |name| self.views.iter().any(|view| view.name == name) || self.streams.has(name));
            self.views.push(View { name, ..wanted });
            self.views.len() - 1
        });
        let view = &mut self.views[index];
        let alias = format!("v{}", index + 1);
        if let Some(known) = view.columns.iter_mut().find(|known| known.aggregate == aggregate) {
            known.lines.insert(self.line);
            return format!("{alias}.{}", known.name);
        }
        let taken = |name: &str| view.columns.iter().any(|column| column.name == name) || view.keys.iter().any(|key| key.name == name);
        let name = unused(label, taken);
        view.columns.push(ViewColumn { name: name.clone(), aggregate, lines: BTreeSet::from([self.line]), is_put_out });
        format!("{alias}.{name}")
    }
}

/// The arguments of an operator.
struct Measured<'a> {
    window: &'a str,
    event_type: &'a str,
    target: &'a Argument,
    /// The keys.
    on: &'a [Argument],
}

/// A constant as SQL.
fn constant(expression: &Expression) -> Option<String> {
    match expression {
        Expression::Number(number) => Some(number.clone()),
        Expression::Text(text) => Some(quoted(text)),
        Expression::Name(name) if is_boolean(name) => Some(name.clone()),
        Expression::Name(_) | Expression::Call(..) => None,
    }
}

fn measured<'a>(operator: &str, arguments: &'a [Argument]) -> Result<Measured<'a>, String> {
    let form = || format!("expected {operator}(window, event_type, target[=value], on[=value], ..)");
    let [window, event_type, target, on @ ..] = arguments else {
        return Err(format!("{}, found {}", form(), count_of(arguments.len(), "argument")));
    };
    let (Expression::Name(window), None) = (&window.expression, &window.value) else { return Err(form()) };
    let (Expression::Name(event_type), None) = (&event_type.expression, &event_type.value) else { return Err(form()) };
    parse_duration(window).map_err(|error| format!("the window of {operator}: {error}"))?;
    Ok(Measured { window, event_type, target, on })
}

/// What a function takes: the value of an argument that has one.
fn operand(argument: &Argument) -> Result<&Expression, String> {
    match (&argument.expression, &argument.value) {
        (expression, None) => Ok(expression),
        (Expression::Name(_), Some(value)) => Ok(value),
        (_, Some(_)) => Err("an argument of a function is `name=value` or an expression: only a name stands before `=`".into()),
    }
}

/// A function over values.
fn function(name: &str, values: &[String]) -> Result<String, String> {
    let double = |value: &String| format!("CAST({value} AS DOUBLE)");
    let sql = match (name, values) {
        ("F_ADD", [a, b]) => format!("({a} + {b})"),
        ("F_MINUS", [a, b]) => format!("({a} - {b})"),
        ("F_MULTIPLY", [a, b]) => format!("({a} * {b})"),
        // Without a divisor there is no quotient: NULL.
        ("F_DIVIDE", [a, b]) => format!("({} / nullif({}, 0))", double(a), double(b)),
        ("F_SUM", [_, ..]) => format!("({})", values.join(" + ")),
        // Where there is no real number, NULL: aggregates leave it out, while a NaN would be in all sums of its window.
        ("F_POW", [a, b]) => format!("CASE WHEN {0} >= 0 OR {1} = floor({1}) THEN power({0}, {1}) END", double(a), double(b)),
        ("F_EXP", [a]) => format!("exp({})", double(a)),
        ("F_LOG", [a]) => format!("CASE WHEN {0} > 0 THEN ln({0}) END", double(a)),
        ("F_SQRT", [a]) => format!("CASE WHEN {0} >= 0 THEN sqrt({0}) END", double(a)),
        ("F_ABS", [a]) => format!("abs({a})"),
        ("F_SUM", []) => return Err("F_SUM takes at least 1 argument, found 0".into()),
        ("F_ADD" | "F_MINUS" | "F_MULTIPLY" | "F_DIVIDE" | "F_POW", _) => {
            return Err(format!("{name} takes 2 arguments, found {}", values.len()));
        }
        ("F_EXP" | "F_LOG" | "F_SQRT" | "F_ABS", _) => return Err(format!("{name} takes 1 argument, found {}", values.len())),
        _ => {
            let known = "F_ADD, F_MINUS, F_MULTIPLY, F_DIVIDE, F_SUM, F_POW, F_EXP, F_LOG, F_SQRT or F_ABS";
            return Err(format!("there is no exact form of {name}; expected {known}"));
        }
    };
    Ok(sql)
}
