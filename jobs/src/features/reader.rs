//! Reads a script line by line, in the spelling of this project or that of the literature.

use std::collections::{BTreeMap, BTreeSet};

use super::Mistake;
use super::expression::{self, Expression, Macro, expand};
use super::feature_lines::{FeatureLine, FeatureMode, SinkLine, add_features};
use super::field_types::FieldUses;
use super::options::{LineOptions, event_type_name, field_name, identifier, sql_type};
use super::script::{Field, Script, Source, TIME_FIELD, TypeCondition};

/// The field that has an event's type, where `set-source` names neither event types nor this field.
const TYPE_FIELD: &str = "event_type";
/// How the literature writes the time of an event.
const TIME_UNIT: &str = "ms";

/// Reads a script, and lists every line that is not understood.
pub(super) fn read(text: &str) -> (Script, Vec<Mistake>) {
    let (mut reader, mut mistakes) = (ScriptReader::default(), Vec::new());
    for (line, text) in lines(text) {
        if let Err(message) = reader.read_line(line, &text) {
            reader.refused.extend(text.split_whitespace().next().map(str::to_owned));
            mistakes.push(Mistake { line, message });
        }
    }
    let script = reader.into_script(&mut mistakes);
    (script, mistakes)
}

/// Lines with their numbers. One that ends with a backslash goes on in the next, unless it is a comment.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let is_comment = !goes_on && line.trim_start().starts_with('#');
        let continues = line.trim_end().strip_suffix('\\').filter(|_| !is_comment);
        let (part, continued) = continues.map_or((line, false), |part| (part, true));
        match lines.last_mut() {
            Some((_, last)) if goes_on => last.push_str(part),
            _ => lines.push((index + 1, part.to_owned())),
        }
        goes_on = continued;
    }
    lines
}

/// What the lines of a script say so far.
#[derive(Default)]
struct ScriptReader {
    sources: BTreeMap<String, Source>,
    macros: BTreeMap<String, Macro>,
    /// The `set-source` without event types: its topic has those that no other one names.
    whole_topic: Option<SourceLine>,
    sink: Option<SinkLine>,
    fields: Vec<FieldLine>,
    features: Vec<FeatureLine>,
    application: Option<String>,
    /// The lines of which nothing is made.
    unneeded: Vec<String>,
    /// The commands of lines that are not understood: what they would define is not missed.
    refused: BTreeSet<String>,
}

/// What a `set-source` says of each of its event types.
struct SourceLine {
    line: usize,
    topic: Option<String>,
    time: String,
    id: Option<String>,
    key: Option<String>,
    type_field: Option<String>,
    notes: Vec<String>,
}

impl SourceLine {
    fn source(&self, event_type: &str, type_value: &str) -> Source {
        let condition = |field: &String| TypeCondition { field: field.clone(), value: type_value.to_owned() };
        Source {
            line: self.line,
            topic: self.topic.clone().unwrap_or_else(|| event_type.to_owned()),
            type_condition: self.type_field.as_ref().map(condition),
            time: self.time.clone(),
            id: self.id.clone(),
            key: self.key.clone(),
            notes: self.notes.clone(),
            fields: Vec::new(),
        }
    }
}

/// A field of one event type, whose `set-source` may come later.
struct FieldLine {
    line: usize,
    event_type: String,
    /// The event type in the letter case of the script.
    written_type: String,
    name: String,
    path: String,
    sql_type: Option<String>,
    unit: Option<String>,
}

impl ScriptReader {
    fn read_line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let words = shlex::split(text).ok_or("a quote is not closed")?;
        let Some((command, rest)) = words.split_first() else { return Ok(()) };
        match (command.as_str(), rest) {
            ("config-application", _) => return self.config_application(line, rest),
            ("activate" | "start", []) => {
                self.unneeded.push(format!("{command} (line {line})"));
                return Ok(());
            }
            ("activate" | "start", _) => return Err(format!("{command} has no options")),
            _ => {}
        }
        let mut options = LineOptions::new(rest)?;
        match command.as_str() {
            "set-source" => self.set_source(line, &mut options)?,
            "set-sink" => self.set_sink(line, &mut options)?,
            "add-field" => self.add_field(line, &mut options)?,
            "add-macro" => self.add_macro(&mut options)?,
            "add-feature" => self.add_feature(line, &mut options)?,
            other => {
                let known = "set-source, set-sink, add-field, add-macro, add-feature, config-application, activate or start";
                return Err(format!("expected {known}, found `{other}`"));
            }
        }
        options.end()
    }

    fn config_application(&mut self, line: usize, rest: &[String]) -> Result<(), String> {
        let name = match rest {
            [name] if !name.starts_with("--") => name,
            [option, name] if option == "--application" => name,
            _ => return Err("expected `config-application NAME`".into()),
        };
        if let Some(other) = self.application.as_ref().filter(|other| *other != name) {
            return Err(format!("the script is one of the application `{other}`: expected a script for each application"));
        }
        self.application = Some(name.clone());
        self.unneeded.push(format!("config-application (line {line})"));
        Ok(())
    }

    /// One event type, several of one topic, or all of one topic.
    fn set_source(&mut self, line: usize, options: &mut LineOptions) -> Result<(), String> {
        let written = options.take("event-type");
        let (topic, unused) = options.topic("source")?;
        let type_value = options.take("type-value");
        let source = SourceLine {
            line,
            topic,
            time: options.optional_name("time")?.unwrap_or_else(|| TIME_FIELD.to_owned()),
            id: options.optional_name("id")?,
            key: options.optional_name("key")?,
            type_field: options.optional_name("type-field")?,
            notes: unused_note("source", line, &unused, "a stream reads its topic from the beginning"),
        };
        let written: Option<Vec<&str>> = written.as_ref().map(|written| written.split(',').map(str::trim).collect());
        let is_one = written.as_ref().is_some_and(|written| written.len() == 1);
        if type_value.is_some() && (source.type_field.is_none() || !is_one) {
            return Err("--type-value is what the --type-field of one event type has: expected it beside both".into());
        }
        let Some(written) = written else {
            if source.topic.is_none() {
                return Err("--event-type is missing".into());
            }
            return match self.whole_topic.replace(source) {
                Some(_) => Err("--event-type is missing: there is a `set-source` without it already".into()),
                None => Ok(()),
            };
        };
        if source.topic.is_none() && !is_one {
            return Err("--topic is missing: expected the one topic that has these event types".into());
        }
        for written in written {
            let event_type = event_type_name(written)?;
            // Unlike names, values differ by letter case.
            let own = source.source(&event_type, type_value.as_deref().unwrap_or(written));
            if self.sources.insert(event_type.clone(), own).is_some() {
                return Err(format!("the event type `{event_type}` has a `set-source` already"));
            }
        }
        Ok(())
    }

    fn set_sink(&mut self, line: usize, options: &mut LineOptions) -> Result<(), String> {
        let (topic, unused) = options.topic("sink")?;
        let mode = match options.take("mode").as_deref() {
            None => None,
            Some("upget") => Some(FeatureMode::Upget),
            Some("get") => Some(FeatureMode::Get),
            Some(other) => return Err(format!("--mode is `upget` or `get`, found `{other}`")),
        };
        let sink = SinkLine {
            line,
            event_type: options.optional_name("event-type")?,
            name: options.optional_name("name")?,
            topic: topic.ok_or("--topic is missing")?,
            key: options.optional_name("key")?,
            mode,
            notes: unused_note("sink", line, &unused, "a sink puts its records into the same log"),
        };
        match self.sink.replace(sink) {
            Some(_) => Err("the script has a `set-sink` already".into()),
            None => Ok(()),
        }
    }

    /// One field of several event types.
    fn add_field(&mut self, line: usize, options: &mut LineOptions) -> Result<(), String> {
        let written = options.required_either("name", "field-name")?;
        let name = field_name(&written)?;
        // Unlike names, members of JSON differ by letter case.
        let path = options.take_either("path", "field-path")?.unwrap_or_else(|| format!("$.{written}"));
        let sql_type = options.take("type").map(|written| sql_type(&written)).transpose()?;
        let unit = options.take("unit");
        for written_type in options.required("event-type")?.split(',').map(str::trim) {
            let event_type = identifier(written_type)?;
            let (name, path, sql_type, unit) = (name.clone(), path.clone(), sql_type.clone(), unit.clone());
            self.fields.push(FieldLine { line, event_type, written_type: written_type.to_owned(), name, path, sql_type, unit });
        }
        Ok(())
    }

    fn add_macro(&mut self, options: &mut LineOptions) -> Result<(), String> {
        let (name, parameters) = signature(&options.required("name")?)?;
        let body = expression::parse(&options.required("replace")?)?;
        match self.macros.insert(name.clone(), Macro { parameters, body }) {
            Some(_) => Err(format!("there is a macro {name} already")),
            None => Ok(()),
        }
    }

    fn add_feature(&mut self, line: usize, options: &mut LineOptions) -> Result<(), String> {
        let name = options.optional_name("name")?;
        let text = options.required_either("expr", "feature")?;
        let mode = options.take("mode").map(|mode| FeatureMode::parse(&mode)).transpose()?;
        let event_type = options.optional_name("event-type")?;
        if let Some(name) = &name {
            if mode == Some(FeatureMode::Update) {
                return Err("--mode update puts nothing out, and --name is what the sink calls a feature: expected one of them".into());
            }
            if self.features.iter().any(|feature| feature.name.as_ref() == Some(name)) {
                return Err(format!("there is a feature `{name}` already"));
            }
        }
        self.features.push(FeatureLine { line, event_type, name, expression: expression::parse(&text)?, text, mode });
        Ok(())
    }

    /// What the lines mean together.
    fn into_script(mut self, mistakes: &mut Vec<Mistake>) -> Script {
        if let Some(topic) = self.whole_topic.take()
            && let Err(mistake) = self.add_whole_topic(topic)
        {
            mistakes.push(mistake);
        }
        self.add_fields(mistakes);
        let ScriptReader { sources, macros, sink, features, application, unneeded, refused, .. } = self;
        let mut script = Script { sources, macros, ..Script::default() };
        match sink {
            None if refused.contains("set-sink") => {}
            None => mistakes.push(Mistake { line: 1, message: "the script has no `set-sink`".into() }),
            Some(mut sink) => {
                if !unneeded.is_empty() {
                    sink.notes.push(format!("Not needed here: {}.", unneeded.join(", ")));
                }
                if application.is_some() {
                    sink.notes.push("Events count whichever application they name.".into());
                }
                add_features(&mut script, sink, features, mistakes);
            }
        }
        script
    }

    /// A source for each event type that has fields and no source.
    fn add_whole_topic(&mut self, mut topic: SourceLine) -> Result<(), Mistake> {
        // Of each, how it is written first.
        let mut written: BTreeMap<String, String> = BTreeMap::new();
        for field in self.fields.iter().filter(|field| !self.sources.contains_key(&field.event_type)) {
            written.entry(field.event_type.clone()).or_insert_with(|| field.written_type.clone());
        }
        if topic.type_field.is_none() {
            let has_type =
                |event_type: &String| self.fields.iter().any(|field| field.event_type == *event_type && field.name == TYPE_FIELD);
            topic.type_field = written.keys().all(has_type).then(|| TYPE_FIELD.to_owned());
        }
        if written.is_empty() {
            let message = "--event-type is missing, and no `add-field` names an event type of the topic".into();
            return Err(Mistake { line: topic.line, message });
        }
        if let (None, [event_type]) = (&topic.type_field, Vec::from_iter(written.keys()).as_slice()) {
            topic.notes.push(format!("No field has the type of an event: each event of the topic is one of {event_type}."));
        }
        self.sources.extend(written.into_iter().map(|(event_type, written)| {
            let source = topic.source(&event_type, &written);
            (event_type, source)
        }));
        Ok(())
    }

    /// Gives the fields to their sources, each with a type.
    fn add_fields(&mut self, mistakes: &mut Vec<Mistake>) {
        let mut uses = FieldUses::default();
        for feature in &self.features {
            if let Ok(expanded) = expand(&feature.expression, &self.macros, 0) {
                uses.add(feature.line, &expanded);
            }
        }
        for field in std::mem::take(&mut self.fields) {
            let line = field.line;
            let added = match self.sources.get_mut(&field.event_type) {
                None if self.refused.contains("set-source") => Ok(()),
                None => Err(format!("there is no `set-source` for the event type `{}`", field.event_type)),
                Some(source) => add_field(source, field, &uses),
            };
            if let Err(message) = added {
                mistakes.push(Mistake { line, message });
            }
        }
    }
}

fn add_field(source: &mut Source, field: FieldLine, uses: &FieldUses) -> Result<(), String> {
    let FieldLine { line, event_type, name, path, sql_type, unit, .. } = field;
    if source.fields.iter().any(|other| other.name == name) {
        return Err(format!("the event type `{event_type}` has a field `{name}` already"));
    }
    let (sql_type, unit) = match (sql_type, unit) {
        (Some(sql_type), unit) => (sql_type, unit),
        (None, None) if name != source.time => (uses.sql_type(&name)?.to_owned(), None),
        (None, unit) => ("TIMESTAMPTZ".to_owned(), unit.or_else(|| Some(TIME_UNIT.to_owned()))),
    };
    source.fields.push(Field { line, name, path, sql_type, unit });
    Ok(())
}

/// A comment on the members of the option's JSON that nothing is made of.
fn unused_note(option: &str, line: usize, unused: &[&str], instead: &str) -> Vec<String> {
    if unused.is_empty() {
        return Vec::new();
    }
    vec![format!("Not used of --{option} (line {line}): {}. basestream.toml says where the log is; {instead}.", unused.join(", "))]
}

/// `M_NAME(a, b)`.
fn signature(text: &str) -> Result<(String, Vec<String>), String> {
    let expected = || format!("expected a macro's name and parameters as `M_NAME(a, b)`, found `{text}`");
    let Expression::Call(name, arguments) = expression::parse(text)? else { return Err(expected()) };
    if !name.starts_with("M_") {
        return Err(expected());
    }
    let mut parameters = Vec::new();
    for argument in arguments {
        match (argument.expression, argument.value) {
            (Expression::Name(parameter), None) if parameters.contains(&parameter) => {
                return Err(format!("the macro {name} has two parameters `{parameter}`"));
            }
            (Expression::Name(parameter), None) => parameters.push(parameter),
            _ => return Err(expected()),
        }
    }
    Ok((name, parameters))
}
