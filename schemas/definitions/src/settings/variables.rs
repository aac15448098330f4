//! Environment variables: substituted in strings, and as overrides of keys.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeValue;

use crate::{Diagnostic, Diagnostics};

const PREFIX: &str = "BASESTREAM__";

/// The environment that settings are read with. It has no `Debug` output because it contains secrets.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

/// A key's value from the environment.
pub(super) struct Override<'a> {
    pub(super) variable: &'a str,
    pub(super) keys: Vec<String>,
    pub(super) value: DeValue<'a>,
}

impl Variables {
    /// The variables of this process. Variables that are not UTF-8 are left out.
    pub fn from_process() -> Self {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the overrides, and the mistakes in their names.
    pub(super) fn overrides(&self) -> (Vec<Override<'_>>, Diagnostics) {
        let mut overrides = Vec::new();
        let mut problems = Diagnostics::new();
        for (variable, text) in &self.0 {
            let Some(name) = variable.strip_prefix(PREFIX) else { continue };
            match keys(name) {
                Some(keys) => {
                    let value = value(&keys, text);
                    overrides.push(Override { variable, keys, value });
                }
                None => problems.push(
                    Diagnostic::error(0, 0, "the variable names no setting")
                        .help("expected BASESTREAM__SECTION__KEY, such as BASESTREAM__LOG__URL")
                        .in_file(Some(Path::new(variable))),
                ),
            }
        }
        (overrides, problems)
    }

    /// Replaces `${NAME}` and `${file:/path}`; `$${` becomes `${`. Paths are relative to `folder`.
    pub(super) fn substitute(&self, text: &str, folder: &Path) -> Result<String, String> {
        let mut result = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, behind) = (&rest[..at], &rest[at + 2..]);
            if let Some(escaped) = before.strip_suffix('$') {
                result.push_str(escaped);
                result.push_str("${");
                rest = behind;
                continue;
            }
            let Some(end) = behind.find('}') else {
                return Err("found '${' without '}'; expected ${NAME} or ${file:/path}, or $${ for a plain ${".to_owned());
            };
            result.push_str(before);
            result.push_str(&self.value_of(&behind[..end], folder)?);
            rest = &behind[end + 1..];
        }
        result.push_str(rest);
        Ok(result)
    }

    fn value_of(&self, name: &str, folder: &Path) -> Result<Cow<'_, str>, String> {
        if let Some(path) = name.strip_prefix("file:") {
            let content =
                std::fs::read_to_string(folder.join(path)).map_err(|error| format!("the file of ${{{name}}} cannot be read: {error}"))?;
            let content = content.strip_suffix('\n').unwrap_or(&content);
            return Ok(Cow::Owned(content.strip_suffix('\r').unwrap_or(content).to_owned()));
        }
        match self.get(name) {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => Err(format!("the environment variable of ${{{name}}} is not set")),
        }
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

/// `LOG__URL` becomes `log`, `url`. librdkafka's properties have dots where a variable has `_`.
fn keys(name: &str) -> Option<Vec<String>> {
    let mut keys: Vec<String> = name.split("__").map(str::to_lowercase).collect();
    if keys.len() < 2 || keys.iter().any(String::is_empty) {
        return None;
    }
    if is_property(&keys) {
        keys[2] = keys[2].replace('_', ".");
    }
    Some(keys)
}

/// Returns a TOML value (`4`, `true`, `"text"`), or else the text unchanged. Properties are always text: a password may
/// look like a number.
fn value<'a>(keys: &[String], text: &'a str) -> DeValue<'a> {
    match DeValue::parse(text) {
        Ok(value) if !is_property(keys) => value.into_inner(),
        _ => DeValue::String(Cow::Borrowed(text)),
    }
}

fn is_property(keys: &[String]) -> bool {
    matches!(keys, [section, table, _] if section == "log" && table == "properties")
}
