//! Finds conflicts between definitions: all definitions share one namespace, and a topic belongs to
//! one stream.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::found::Found;
use super::tokens::TextPosition;
use crate::Diagnostic;

/// The definitions so far, and their places.
#[derive(Debug, Default)]
pub(super) struct KnownDefinitions {
    names: HashMap<Arc<str>, (&'static str, Defined)>,
    topics: HashMap<Arc<str>, (Arc<str>, Defined)>,
}

#[derive(Debug)]
struct Defined {
    file: Option<PathBuf>,
    at: TextPosition,
}

impl KnownDefinitions {
    /// Adds a definition. If an earlier one has its name or topic, returns the conflict instead.
    pub(super) fn conflict(&mut self, item: &Found, file: Option<&Path>) -> Option<Diagnostic> {
        let (kind, name, name_at) = match item {
            Found::Stream { definition, name_at, .. } => ("stream", &definition.name, *name_at),
            Found::View { definition, name_at } => ("view", &definition.name, *name_at),
            Found::Sink { definition, name_at } => ("sink", &definition.name, *name_at),
            Found::Alert { definition, name_at } => ("alert", &definition.name, *name_at),
            Found::Parameter { definition, name_at } => ("parameter", &definition.name, *name_at),
        };
        if let Some((other_kind, other)) = self.names.get(name) {
            let article = if *other_kind == "alert" { "an" } else { "a" };
            let problem = name_at.error(format!("the {kind} '{name}' has the name of {article} {other_kind}"));
            let help =
                format!("streams, views, sinks, alerts and parameters share one space of names; the other one is at {}", other.place());
            return Some(problem.help(help).leaving_out(Some(name.to_string())));
        }
        let here = |at| Defined { file: file.map(Path::to_path_buf), at };
        if let Found::Stream { definition, topic_at, .. } = item {
            if let Some((stream, other)) = self.topics.get(&definition.topic) {
                let message = format!("the topic '{}' belongs to the stream '{stream}' already", definition.topic);
                let help = format!("one topic is one stream; the other one is at {}", other.place());
                return Some(topic_at.error(message).help(help).leaving_out(Some(name.to_string())));
            }
            self.topics.insert(definition.topic.clone(), (name.clone(), here(*topic_at)));
        }
        self.names.insert(name.clone(), (kind, here(name_at)));
        None
    }
}

impl Defined {
    fn place(&self) -> String {
        let file = self.file.as_ref().map(|file| format!("{}:", file.display())).unwrap_or_default();
        format!("{file}{}:{}", self.at.line, self.at.column)
    }
}
