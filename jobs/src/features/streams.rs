//! The streams of a script: one for each event type, or one for a topic that may have several.
//!
//! A topic belongs to one stream. Each event type of such a topic is a view without an aggregate, which the views of
//! features read like a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::script::{Field, Script, Source, TIME_FIELD};
use super::text::{LINE_COMMENT, listed, made_from, quoted, unused};
use super::{File, Mistake};
use crate::sql_names::is_plain;

/// The streams of a script.
#[derive(Debug)]
pub(super) struct ScriptStreams<'a>(Vec<TopicStream<'a>>);

/// The stream of one topic.
#[derive(Debug)]
struct TopicStream<'a> {
    name: String,
    columns: Vec<TopicColumn<'a>>,
    event_types: Vec<EventType<'a>>,
}

/// A column of a stream.
#[derive(Debug)]
struct TopicColumn<'a> {
    name: String,
    field: &'a Field,
    /// The lines of the script that define the field, for one event type or another.
    lines: BTreeSet<usize>,
}

/// The events of one type.
#[derive(Debug)]
pub(super) struct EventType<'a> {
    pub name: &'a str,
    pub source: &'a Source,
    /// The stream that has them.
    pub stream: String,
    /// For each field of the source, its column in the stream.
    columns: Vec<String>,
}

impl<'a> ScriptStreams<'a> {
    /// Combines the event types of each topic into a stream.
    pub fn new(script: &'a Script) -> ScriptStreams<'a> {
        let mut topics: BTreeMap<&str, Vec<(&'a str, &'a Source)>> = BTreeMap::new();
        for (name, source) in &script.sources {
            topics.entry(source.topic.as_str()).or_default().push((name.as_str(), source));
        }
        let mut streams: Vec<TopicStream<'a>> = Vec::new();
        for (topic, sources) in topics {
            let taken = |name: &str| {
                script.sources.contains_key(name)
                    || script.sink.as_ref().is_some_and(|sink| sink.name == name)
                    || streams.iter().any(|stream| stream.name == name)
            };
            let name = match sources.as_slice() {
                [(event_type, Source { type_condition: None, .. })] => (*event_type).to_owned(),
                _ => stream_name(topic, taken),
            };
            streams.push(TopicStream::new(name, &sources));
        }
        ScriptStreams(streams)
    }

    /// Returns the event type with this name.
    pub fn event_type(&self, name: &str) -> Option<&EventType<'a>> {
        self.0.iter().flat_map(|stream| &stream.event_types).find(|event_type| event_type.name == name)
    }

    /// Whether a stream or an event type has this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|stream| stream.name == name) || self.event_type(name).is_some()
    }

    /// What keeps event types from being streams, or from being in one.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for stream in &self.0 {
            for (index, event_type) in stream.event_types.iter().enumerate() {
                if let Err(message) = event_type.check(&stream.event_types[..index]) {
                    mistakes.push(Mistake { line: event_type.source.line, message });
                }
            }
        }
        mistakes
    }

    /// Returns the files with the definitions of the streams and of their event types.
    pub fn files(&self, script_name: &str) -> Vec<File> {
        let mut files = Vec::new();
        for stream in &self.0 {
            files.push(stream.file(script_name));
            files.extend(stream.event_types.iter().filter_map(|event_type| event_type.file(script_name)));
        }
        files
    }
}

/// The name of a topic's stream: the topic's words, where nothing else is named so.
fn stream_name(topic: &str, taken: impl Fn(&str) -> bool) -> String {
    let lower = topic.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let name = words.join("_");
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && is_plain(&name);
    match is_name && !taken(&name) {
        true => name,
        false => unused(&format!("events_{name}"), taken),
    }
}

impl<'a> TopicStream<'a> {
    fn new(name: String, sources: &[(&'a str, &'a Source)]) -> TopicStream<'a> {
        let is_field = |name: &str| sources.iter().any(|(_, source)| source.fields.iter().any(|field| field.name == name));
        let mut columns: Vec<TopicColumn<'a>> = Vec::new();
        let mut event_types = Vec::new();
        for &(event_type, source) in sources {
            let mut own = Vec::new();
            for field in &source.fields {
                let index = columns.iter().position(|column| column.field.is_like(field)).unwrap_or_else(|| {
                    let is_column = |name: &str| columns.iter().any(|column| column.name == name);
                    let name = match is_column(&field.name) {
                        false => field.name.clone(),
                        true => unused(&format!("{event_type}_{}", field.name), |name| is_column(name) || is_field(name)),
                    };
                    columns.push(TopicColumn { name, field, lines: BTreeSet::new() });
                    columns.len() - 1
                });
                columns[index].lines.insert(field.line);
                own.push(columns[index].name.clone());
            }
            event_types.push(EventType { name: event_type, source, stream: name.clone(), columns: own });
        }
        TopicStream { name, columns, event_types }
    }

    fn file(&self, script_name: &str) -> File {
        let lines: BTreeSet<usize> = self.event_types.iter().map(|event_type| event_type.source.line).collect();
        let notes: BTreeSet<&String> = self.event_types.iter().flat_map(|event_type| &event_type.source.notes).collect();
        let mut text = made_from(script_name, &listed(lines), notes);
        let _ = writeln!(text, "CREATE STREAM {} (", self.name);
        for (index, TopicColumn { name, field, lines }) in self.columns.iter().enumerate() {
            let is_needed = self.event_types.iter().any(|event_type| event_type.needs(name));
            let needed = if is_needed { " NOT NULL" } else { "" };
            let comma = if index + 1 < self.columns.len() { "," } else { "" };
            let path = quoted(&field.path);
            let unit = field.unit.as_ref().map(|unit| format!(", unit = {}", quoted(unit))).unwrap_or_default();
            let lines = listed(lines.iter().copied());
            let _ = writeln!(text, "  {name} {}{needed} OPTIONS (path = {path}{unit}){comma}{LINE_COMMENT}{lines}", field.sql_type);
        }
        if let Some(EventType { source, .. }) = self.event_types.first() {
            let _ = write!(text, ") WITH (topic = {}, format = 'json', event_time = '{}'", quoted(&source.topic), source.time);
            for (option, name) in [("id", &source.id), ("key", &source.key)] {
                if let Some(name) = name {
                    let _ = write!(text, ", {option} = '{name}'");
                }
            }
        }
        text.push_str(");\n");
        File { path: format!("streams/{}.sql", self.name), text }
    }
}

impl EventType<'_> {
    /// The column of one of its fields.
    pub fn column(&self, field: &Field) -> &str {
        let known = self.source.fields.iter().zip(&self.columns).find(|(known, _)| known.name == field.name);
        known.map_or("", |(_, column)| column.as_str())
    }

    /// What a SELECT over the stream takes for each field, with the field. `alias` is what the stream's names begin
    /// with.
    pub fn selected(&self, alias: &str) -> impl Iterator<Item = (String, &Field)> {
        self.source.fields.iter().zip(&self.columns).map(move |(field, column)| match *column == field.name {
            true => (format!("{alias}{column}"), field),
            false => (format!("{alias}{column} AS {}", field.name), field),
        })
    }

    /// What holds for its events alone. `None` if all events of the stream are of this type.
    pub fn condition(&self, alias: &str) -> Option<String> {
        let condition = self.source.type_condition.as_ref()?;
        Some(format!("{alias}{} = {}", condition.field, quoted(&condition.value)))
    }

    /// Whether no event is without this column.
    fn needs(&self, column: &str) -> bool {
        column == self.source.time || Some(column) == self.source.id.as_deref()
    }

    /// The columns that one stream has once, with their options.
    fn roles(&self) -> [(&'static str, Option<&str>); 4] {
        let Source { time, id, key, type_condition, .. } = self.source;
        let type_field = type_condition.as_ref().map(|condition| condition.field.as_str());
        [("time", Some(time.as_str())), ("id", id.as_deref()), ("key", key.as_deref()), ("type-field", type_field)]
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.source.fields.iter().find(|field| field.name == name)
    }

    /// Checks it beside the event types of its topic that come before it.
    fn check(&self, before: &[EventType<'_>]) -> Result<(), String> {
        let name = self.name;
        for (option, field) in self.roles() {
            if let Some(field) = field.filter(|field| self.field(field).is_none()) {
                if (option, field) == ("time", TIME_FIELD) {
                    return Err(format!(
                        "the event type `{name}` has no field `{TIME_FIELD}`, the time of an event where --time names no other: expected an \
                         `add-field` of it, or --time"
                    ));
                }
                return Err(format!("--{option} names `{field}`, and no `add-field` gives the event type `{name}` this field"));
            }
        }
        let condition = self.source.type_condition.as_ref();
        if let Some(field) = condition.and_then(|condition| self.field(&condition.field)).filter(|field| field.sql_type != "TEXT") {
            return Err(format!(
                "--type-field names `{}`, whose type is {}: expected a field of the type TEXT",
                field.name, field.sql_type
            ));
        }
        let Some(first) = before.first() else { return Ok(()) };
        let (topic, other) = (&self.source.topic, first.name);
        if condition.is_none() || first.source.type_condition.is_none() {
            return Err(format!(
                "the topic `{topic}` has the event types `{other}` and `{name}`: expected --type-field, the field that has an event's type"
            ));
        }
        if self.roles() != first.roles() {
            return Err(format!(
                "the topic `{topic}` is one stream, with the event types `{other}` and `{name}`: expected the same --time, --id, --key and \
                 --type-field for both"
            ));
        }
        for (option, field) in self.roles() {
            let both = field.and_then(|field| self.field(field).zip(first.field(field)));
            if let Some((field, _)) = both.filter(|(own, others)| !own.is_like(others)) {
                return Err(format!(
                    "the topic `{topic}` is one stream, and --{option} names `{}`, which `{other}` and `{name}` define differently: expected \
                     the same path, type and unit for both",
                    field.name
                ));
            }
        }
        match before.iter().find(|other| other.source.type_condition.as_ref() == condition) {
            Some(same) => {
                Err(format!("`{}` and `{name}` have the same --type-value: expected one of its own for each event type", same.name))
            }
            None => Ok(()),
        }
    }

    /// Its view, if its stream may have other events too.
    fn file(&self, script_name: &str) -> Option<File> {
        let condition = self.condition("")?;
        let line = self.source.line;
        let mut text = made_from(script_name, &line.to_string(), []);
        let _ = write!(text, "CREATE VIEW {} AS\nSELECT ", self.name);
        for (index, (column, field)) in self.selected("").enumerate() {
            let indent = if index == 0 { "" } else { "       " };
            let comma = if index + 1 < self.columns.len() { "," } else { "" };
            let _ = writeln!(text, "{indent}{column}{comma}{LINE_COMMENT}{}", field.line);
        }
        let _ = writeln!(text, "FROM {}\nWHERE {condition};{LINE_COMMENT}{line}", self.stream);
        Some(File { path: format!("views/{}.sql", self.name), text })
    }
}
