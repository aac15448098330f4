//! The types of fields without `--type`: what the expressions of the script use a field as.

use std::collections::{BTreeMap, BTreeSet};

use super::expression::{Argument, Expression, is_boolean};

/// What a field has to be for an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldUse {
    Number,
    Text,
    Boolean,
}

impl FieldUse {
    fn noun(self) -> &'static str {
        match self {
            FieldUse::Number => "a number",
            FieldUse::Text => "a text",
            FieldUse::Boolean => "true or false",
        }
    }

    fn sql_type(self) -> &'static str {
        match self {
            FieldUse::Number => "DOUBLE",
            FieldUse::Text => "TEXT",
            FieldUse::Boolean => "BOOLEAN",
        }
    }
}

/// How a script uses its fields. A name stands for one type, whichever event type has the field.
#[derive(Debug, Default)]
pub(super) struct FieldUses {
    /// By the field's name, each with its line.
    uses: BTreeMap<String, Vec<(FieldUse, usize)>>,
    /// Fields that are compared with each other.
    compared: Vec<(String, String)>,
}

impl FieldUses {
    /// Adds the uses in an expression without macros.
    pub fn add(&mut self, line: usize, expression: &Expression) {
        let Expression::Call(name, arguments) = expression else { return };
        if name.starts_with("F_") {
            for argument in arguments {
                self.add_number(line, argument.value.as_ref().unwrap_or(&argument.expression));
            }
            return;
        }
        let [_, _, target, on @ ..] = arguments.as_slice() else { return };
        match name.as_str() {
            "SUM" | "AVG" | "MAX" | "MIN" | "VARIANCE" => self.add_number(line, &target.expression),
            "COUNT" => self.add_key(line, target),
            _ => self.add(line, &target.expression),
        }
        for key in on {
            self.add_key(line, key);
        }
    }

    fn add_number(&mut self, line: usize, expression: &Expression) {
        match expression {
            Expression::Name(name) => self.add_use(name, FieldUse::Number, line),
            other => self.add(line, other),
        }
    }

    fn add_key(&mut self, line: usize, Argument { expression, value }: &Argument) {
        self.add(line, expression);
        let Some(value) = value else { return };
        self.add(line, value);
        let Expression::Name(name) = expression else { return };
        match value {
            Expression::Name(constant) if is_boolean(constant) => self.add_use(name, FieldUse::Boolean, line),
            Expression::Name(other) => self.compared.push((name.clone(), other.clone())),
            Expression::Number(_) | Expression::Call(..) => self.add_use(name, FieldUse::Number, line),
            Expression::Text(_) => self.add_use(name, FieldUse::Text, line),
        }
    }

    fn add_use(&mut self, name: &str, found: FieldUse, line: usize) {
        self.uses.entry(name.to_owned()).or_default().push((found, line));
    }

    /// The type of a field: TEXT if nothing asks for another one.
    pub fn sql_type(&self, name: &str) -> Result<&'static str, String> {
        let uses: Vec<(FieldUse, usize)> =
            self.same_type(name).into_iter().filter_map(|name| self.uses.get(name)).flatten().copied().collect();
        let Some(&(first, line)) = uses.first() else { return Ok(FieldUse::Text.sql_type()) };
        match uses.iter().find(|(other, _)| *other != first) {
            None => Ok(first.sql_type()),
            Some((other, other_line)) => Err(format!(
                "--type is missing: line {line} uses `{name}`, or a field that it is compared with, as {}, and line {other_line} as {}",
                first.noun(),
                other.noun()
            )),
        }
    }

    /// The name, and those of all fields that are compared with it, or with one of them.
    fn same_type<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::from([name]);
        loop {
            let before = found.len();
            for (one, other) in &self.compared {
                if found.contains(one.as_str()) || found.contains(other.as_str()) {
                    found.extend([one.as_str(), other.as_str()]);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }
}
