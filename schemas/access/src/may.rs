//! The one decision about rights.
//!
//! | role | reads views, streams | appends to streams | asks for runs, sets parameters | the process, `system.*` |
//! | --- | --- | --- | --- | --- |
//! | reader | yes | | | reads |
//! | writer | | yes | | |
//! | operator | yes | | yes | reads |
//! | admin | yes | yes | yes | yes |
//!
//! A grant that is limited reaches the views and streams it names, and nothing of the process. A view needs no right on
//! the streams that it reads.

use std::fmt;

use catalog::Role;
use types::{Error, Result};

use crate::principal::{Grant, GrantScope, Principal};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A lookup or a SELECT; metrics.
    Read,
    /// Events into a stream.
    Append,
    /// A run, a replay, a repair, a parameter.
    Operate,
    /// Tokens, definitions.
    Administer,
}

/// With what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object<'a> {
    /// A view: its answer and its states.
    View(&'a str),
    Stream(&'a str),
    /// A parameter of sinks and alerts.
    Parameter(&'a str),
    /// A table of `system`, which describes everything.
    System(&'a str),
    /// The process: its metrics.
    Process,
    /// All of the installation.
    Installation,
}

/// Whether a principal may do it.
pub fn may(principal: &Principal, action: Action, object: Object<'_>) -> bool {
    principal.grants.iter().any(|grant| is_granted(grant, action, object))
}

/// The same, with an error that says what is lacking.
///
/// Errors: `Forbidden`.
pub fn allow(principal: &Principal, action: Action, object: Object<'_>) -> Result<()> {
    match may(principal, action, object) {
        true => Ok(()),
        false => Err(forbidden(principal, format!("may not {action} {object}: expected {}", expected(action, object)))),
    }
}

/// Allows a principal that may read some view, whichever that is.
///
/// Errors: `Forbidden`.
pub fn allow_some_view(principal: &Principal) -> Result<()> {
    let has_view = |grant: &Grant| grant.only.as_ref().is_none_or(|only| !only.views.is_empty());
    match principal.grants.iter().any(|grant| has_role(grant.role, Action::Read) && has_view(grant)) {
        true => Ok(()),
        false => Err(forbidden(principal, format!("may not read any view: expected the role {}", roles(Action::Read)))),
    }
}

fn forbidden(principal: &Principal, what: String) -> Error {
    let message = format!("\"{}\" {what}", principal.name);
    Error::forbidden(message).with("principal", &principal.name).with("roles", principal.roles())
}

fn is_granted(grant: &Grant, action: Action, object: Object<'_>) -> bool {
    has_role(grant.role, action) && grant.only.as_ref().is_none_or(|only| reaches(only, object))
}

fn has_role(role: Role, action: Action) -> bool {
    match (role, action) {
        (Role::Admin, _) => true,
        (Role::Reader | Role::Operator, Action::Read) => true,
        (Role::Writer, Action::Append) => true,
        (Role::Operator, Action::Operate) => true,
        (Role::Reader | Role::Writer | Role::Operator, _) => false,
    }
}

fn reaches(only: &GrantScope, object: Object<'_>) -> bool {
    match object {
        Object::View(view) => only.views.contains(view),
        Object::Stream(stream) => only.streams.contains(stream),
        Object::Parameter(_) | Object::System(_) | Object::Process | Object::Installation => false,
    }
}

fn roles(action: Action) -> &'static str {
    match action {
        Action::Read => "reader, operator or admin",
        Action::Append => "writer or admin",
        Action::Operate => "operator or admin",
        Action::Administer => "admin",
    }
}

fn expected(action: Action, object: Object<'_>) -> String {
    let roles = roles(action);
    match object {
        Object::View(_) | Object::Stream(_) => format!("the role {roles}, not limited to others"),
        Object::Parameter(_) | Object::System(_) | Object::Process | Object::Installation => {
            format!("the role {roles}, not limited to views or streams")
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Append => "append to",
            Action::Operate => "operate",
            Action::Administer => "administer",
        })
    }
}

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::View(view) => write!(f, "the view \"{view}\""),
            Object::Stream(stream) => write!(f, "the stream \"{stream}\""),
            Object::Parameter(parameter) => write!(f, "the parameter \"{parameter}\""),
            Object::System(table) => write!(f, "system.{table}"),
            Object::Process => f.write_str("the process"),
            Object::Installation => f.write_str("the installation"),
        }
    }
}

#[cfg(test)]
mod tests;
