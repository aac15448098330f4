//! The lines of a script: event types with their fields, macros, features and the sink.

use std::collections::BTreeMap;

use super::Mistake;
use super::expression::{self, Expression, Macro};
use crate::sql_names::is_plain;

/// What the lines of a script define.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// By event type.
    pub sources: BTreeMap<String, Source>,
    pub sink: Option<FeatureSink>,
    pub features: Vec<Feature>,
    pub macros: BTreeMap<String, Macro>,
}

/// One event type.
#[derive(Debug)]
pub(super) struct Source {
    pub line: usize,
    pub topic: String,
    /// Where the topic may have other event types too.
    pub type_condition: Option<TypeCondition>,
    pub time: String,
    pub id: Option<String>,
    pub key: Option<String>,
    pub fields: Vec<Field>,
}

/// The field that has an event's type, and its value for one event type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeCondition {
    pub field: String,
    pub value: String,
}

/// One field of an event type.
#[derive(Debug)]
pub(super) struct Field {
    pub line: usize,
    pub name: String,
    pub path: String,
    pub sql_type: String,
    /// Of a time that is a number.
    pub unit: Option<String>,
}

impl Field {
    /// Whether both have one name and are read in the same way.
    pub fn is_like(&self, other: &Field) -> bool {
        (&self.name, &self.path, &self.sql_type, &self.unit) == (&other.name, &other.path, &other.sql_type, &other.unit)
    }
}

/// Where the features go.
#[derive(Debug)]
pub(super) struct FeatureSink {
    pub line: usize,
    pub event_type: String,
    pub name: String,
    pub topic: String,
    pub key: Option<String>,
    pub mode: &'static str,
}

/// One `add-feature`.
#[derive(Debug)]
pub(super) struct Feature {
    pub line: usize,
    pub name: String,
    /// As it is written.
    pub text: String,
    pub expression: Expression,
}

/// Reads a script, and lists every line that is not understood.
pub(super) fn read(text: &str) -> (Script, Vec<Mistake>) {
    let (mut reader, mut mistakes) = (ScriptReader::default(), Vec::new());
    for (line, text) in lines(text) {
        if let Err(message) = reader.read_line(line, &text) {
            mistakes.push(Mistake { line, message });
        }
    }
    let ScriptReader { mut script, fields } = reader;
    for (event_type, field) in fields {
        let line = field.line;
        let message = match script.sources.get_mut(&event_type) {
            None => Some(format!("there is no `set-source` for the event type `{event_type}`")),
            Some(source) if source.fields.iter().any(|other| other.name == field.name) => {
                Some(format!("the event type `{event_type}` has a field `{}` already", field.name))
            }
            Some(source) => {
                source.fields.push(field);
                None
            }
        };
        mistakes.extend(message.map(|message| Mistake { line, message }));
    }
    if script.sink.is_none() {
        mistakes.push(Mistake { line: 1, message: "the script has no `set-sink`".into() });
    }
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

/// What the lines of a script define so far.
#[derive(Default)]
struct ScriptReader {
    script: Script,
    /// Each with its event type, whose `set-source` may come later.
    fields: Vec<(String, Field)>,
}

impl ScriptReader {
    fn read_line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let words = shlex::split(text).ok_or("a quote is not closed")?;
        let Some((command, rest)) = words.split_first() else { return Ok(()) };
        let mut options = Options::new(rest)?;
        match command.as_str() {
            "set-source" => self.set_source(line, &mut options)?,
            "set-sink" => self.set_sink(line, &mut options)?,
            "add-field" => self.add_field(line, &mut options)?,
            "add-macro" => self.add_macro(&mut options)?,
            "add-feature" => self.add_feature(line, &mut options)?,
            other => {
                return Err(format!("expected set-source, set-sink, add-field, add-macro or add-feature, found `{other}`"));
            }
        }
        options.end()
    }

    /// One event type, or several of one topic.
    fn set_source(&mut self, line: usize, options: &mut Options) -> Result<(), String> {
        let written = options.required("event-type")?;
        let written: Vec<&str> = written.split(',').map(str::trim).collect();
        let topic = options.take("topic");
        if topic.is_none() && written.len() > 1 {
            return Err("--topic is missing: expected the one topic that has these event types".into());
        }
        let (time, id, key) = (options.name("time")?, options.optional_name("id")?, options.optional_name("key")?);
        let type_field = options.optional_name("type-field")?;
        let type_value = options.take("type-value");
        if type_value.is_some() && (type_field.is_none() || written.len() > 1) {
            return Err("--type-value is what the --type-field of one event type has: expected it beside both".into());
        }
        for written in written {
            let event_type = identifier(written)?;
            // Unlike names, values differ by letter case.
            let value = type_value.as_deref().unwrap_or(written);
            let source = Source {
                line,
                topic: topic.clone().unwrap_or_else(|| event_type.clone()),
                type_condition: type_field.clone().map(|field| TypeCondition { field, value: value.to_owned() }),
                time: time.clone(),
                id: id.clone(),
                key: key.clone(),
                fields: Vec::new(),
            };
            if self.script.sources.insert(event_type.clone(), source).is_some() {
                return Err(format!("the event type `{event_type}` has a `set-source` already"));
            }
        }
        Ok(())
    }

    fn set_sink(&mut self, line: usize, options: &mut Options) -> Result<(), String> {
        let event_type = options.name("event-type")?;
        let topic = options.required("topic")?;
        let mode = match options.take("mode").as_deref() {
            None | Some("upget") => "inclusive",
            Some("get") => "exclusive",
            Some(other) => return Err(format!("--mode is `upget` or `get`, found `{other}`")),
        };
        let name = options.optional_name("name")?.unwrap_or_else(|| format!("{event_type}_features"));
        let sink = FeatureSink { line, event_type, name, topic, key: options.optional_name("key")?, mode };
        match self.script.sink.replace(sink) {
            Some(_) => Err("the script has a `set-sink` already".into()),
            None => Ok(()),
        }
    }

    /// One field of several event types.
    fn add_field(&mut self, line: usize, options: &mut Options) -> Result<(), String> {
        let written = options.required("name")?;
        let name = identifier(&written)?;
        // Unlike names, members of JSON differ by letter case.
        let path = options.take("path").unwrap_or_else(|| format!("$.{written}"));
        let sql_type = sql_type(&options.required("type")?)?;
        let unit = options.take("unit");
        for event_type in options.required("event-type")?.split(',') {
            let field = Field { line, name: name.clone(), path: path.clone(), sql_type: sql_type.clone(), unit: unit.clone() };
            self.fields.push((identifier(event_type.trim())?, field));
        }
        Ok(())
    }

    fn add_macro(&mut self, options: &mut Options) -> Result<(), String> {
        let (name, parameters) = signature(&options.required("name")?)?;
        let body = expression::parse(&options.required("replace")?)?;
        match self.script.macros.insert(name.clone(), Macro { parameters, body }) {
            Some(_) => Err(format!("there is a macro {name} already")),
            None => Ok(()),
        }
    }

    fn add_feature(&mut self, line: usize, options: &mut Options) -> Result<(), String> {
        let name = options.name("name")?;
        let text = options.required("expr")?;
        if self.script.features.iter().any(|feature| feature.name == name) {
            return Err(format!("there is a feature `{name}` already"));
        }
        self.script.features.push(Feature { line, name, expression: expression::parse(&text)?, text });
        Ok(())
    }
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

fn sql_type(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    let known = ["TEXT", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DATE", "UUID", "TIMESTAMPTZ"];
    if known.contains(&upper.as_str()) || (upper.starts_with("DECIMAL(") && upper.ends_with(')')) {
        return Ok(upper);
    }
    Err(format!("--type is one of {} or DECIMAL(p,s), found `{text}`", known.join(", ")))
}

fn identifier(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.contains("__");
    if !good {
        return Err(format!("expected a name of letters, digits and single underscores, found `{text}`"));
    }
    match is_plain(&name) {
        true => Ok(name),
        false => Err(format!("`{name}` is a word of SQL: expected another name; `--path` can still read the member `{name}`")),
    }
}

/// The options of one line.
struct Options(BTreeMap<String, String>);

impl Options {
    fn new(words: &[String]) -> Result<Options, String> {
        let mut options = BTreeMap::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    if options.insert(name[2..].to_owned(), value.clone()).is_some() {
                        return Err(format!("{name} is given twice"));
                    }
                }
                [name, ..] => return Err(format!("expected `--option value`, found `{name}`")),
                [] => {}
            }
        }
        Ok(Options(options))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn required(&mut self, name: &str) -> Result<String, String> {
        self.take(name).ok_or_else(|| format!("--{name} is missing"))
    }

    fn name(&mut self, name: &str) -> Result<String, String> {
        identifier(&self.required(name)?)
    }

    fn optional_name(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name).map(|value| identifier(&value)).transpose()
    }

    fn end(self) -> Result<(), String> {
        self.0.into_keys().next().map_or(Ok(()), |name| Err(format!("there is no option --{name} in this line")))
    }
}
