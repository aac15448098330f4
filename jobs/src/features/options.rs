//! The options of a script's line, and what their values are.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::sql_names::is_plain;

/// What the JSON of a source or a sink may have beside the topic. `basestream.toml` says it for all streams and sinks.
const CONNECTION: [&str; 7] = ["bootstrap.servers", "broker", "brokers", "group", "group.id", "offset", "zookeeper"];

/// The options of one line.
pub(super) struct LineOptions(BTreeMap<String, String>);

impl LineOptions {
    /// Parses the words of a line, each option with its value.
    pub fn new(words: &[String]) -> Result<LineOptions, String> {
        let mut options = BTreeMap::new();
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let Some(name) = option.strip_prefix("--") else { return Err(format!("expected `--option value`, found `{option}`")) };
            if let Some((name, _)) = name.split_once('=') {
                return Err(format!("expected a space and the value behind --{name}, found `{option}`"));
            }
            let value = match words.next() {
                Some(value) if !value.starts_with("--") => value.clone(),
                Some(found) => return Err(format!("expected the value of {option}, found `{found}`")),
                None => return Err(format!("expected the value of {option}, found the end of the line")),
            };
            if options.insert(name.to_owned(), value).is_some() {
                return Err(format!("{option} is given twice"));
            }
        }
        Ok(LineOptions(options))
    }

    /// Removes an option and returns its value.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// An option that has two spellings.
    pub fn take_either(&mut self, name: &str, other: &str) -> Result<Option<String>, String> {
        match (self.take(name), self.take(other)) {
            (Some(_), Some(_)) => Err(format!("--{name} and --{other} are one option: expected one of them")),
            (value, None) | (None, value) => Ok(value),
        }
    }

    /// Removes an option that the line must have.
    pub fn required(&mut self, name: &str) -> Result<String, String> {
        self.take(name).ok_or_else(|| missing(name))
    }

    /// Removes an option with two spellings that the line must have.
    pub fn required_either(&mut self, name: &str, other: &str) -> Result<String, String> {
        self.take_either(name, other)?.ok_or_else(|| missing(name))
    }

    /// Removes an option whose value has to be a name.
    pub fn optional_name(&mut self, name: &str) -> Result<Option<String>, String> {
        self.take(name).map(|value| identifier(&value)).transpose()
    }

    /// The topic, named by `--topic` or in the JSON of the option `json`, and the members of the JSON that are not
    /// used.
    pub fn topic(&mut self, json: &str) -> Result<(Option<String>, Vec<&'static str>), String> {
        let mut topic = self.take("topic");
        let Some(text) = self.take(json) else { return Ok((topic, Vec::new())) };
        let expected = || format!("expected --{json} as '{{\"topic\": \"..\"}}', found `{text}`");
        let members: BTreeMap<String, Value> = serde_json::from_str(&text).map_err(|_| expected())?;
        let mut unused = Vec::new();
        for (name, value) in members {
            if name == "topic" {
                let Value::String(found) = value else { return Err(expected()) };
                if topic.as_ref().is_some_and(|topic| *topic != found) {
                    return Err(format!("--topic and --{json} name different topics"));
                }
                topic = Some(found);
                continue;
            }
            let Some(known) = CONNECTION.into_iter().find(|known| *known == name) else {
                let known = CONNECTION.join(", ");
                return Err(format!("`{name}` of --{json} has no exact form: expected topic, or what is not used: {known}"));
            };
            unused.push(known);
        }
        Ok((topic, unused))
    }

    /// Refuses options that were not taken.
    pub fn end(self) -> Result<(), String> {
        self.0.into_keys().next().map_or(Ok(()), |name| Err(format!("there is no option --{name} in this line")))
    }
}

fn missing(name: &str) -> String {
    format!("--{name} is missing")
}

pub(super) fn sql_type(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    let known = ["TEXT", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DATE", "UUID", "TIMESTAMPTZ"];
    if known.contains(&upper.as_str()) || (upper.starts_with("DECIMAL(") && upper.ends_with(')')) {
        return Ok(upper);
    }
    Err(format!("--type is one of {} or DECIMAL(p,s), found `{text}`", known.join(", ")))
}

pub(super) fn identifier(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.contains("__");
    if !good {
        return Err(format!("expected a name of letters, digits and single underscores, found `{text}`"));
    }
    match is_plain(&name) {
        true => Ok(name),
        false => Err(format!("`{name}` is a word of SQL: expected another name")),
    }
}

/// The name of a field. The member of the events may have another one.
pub(super) fn field_name(text: &str) -> Result<String, String> {
    identifier(text).map_err(|message| format!("{message}; --path can read a member of any name"))
}

/// The name of an event type. The type field of the events may have any value.
pub(super) fn event_type_name(text: &str) -> Result<String, String> {
    identifier(text).map_err(|message| format!("{message}; --type-value can name any value of a type field, as `{text}`"))
}
