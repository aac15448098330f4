//! The file of an edited sink: its CREATE SINK, and the views and parameters beside it that are not applied like that.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind};
use definitions::{Definitions, Origin, ParameterDefinition, SinkDefinition, StreamDefinition, ViewDefinition, parse};
use engine::parameters::Parameters;
use types::{Error, Result};

use crate::apply::{means_the_same, names_as_staging, normalised, self_contained};
use crate::input_file::read_input_text;
use crate::mistakes::Mistakes;

/// What the file of an edited sink defines otherwise than it is applied.
pub(super) struct EditedFile {
    pub(super) sink: Arc<SinkDefinition>,
    /// The views that the sink names.
    pub(super) views: Vec<ViewDefinition>,
    /// The other views that these may name: those of the file, and those that are applied alone.
    pub(super) others: Vec<ViewDefinition>,
    /// Those with another type or initial value. If both are as applied, the value in effect stays.
    parameters: Vec<ParameterDefinition>,
}

impl EditedFile {
    /// Reads the file of an edited definition of the sink `name`. Notes what cannot be compared with what is applied.
    /// `None` if there is no such definition, which is noted too.
    pub(super) fn read(state: &CatalogState, file: &Path, name: &str, mistakes: &mut Mistakes) -> Result<Option<EditedFile>> {
        let Some((sink, file)) = mistakes.noted(edited_definition(file, name))? else { return Ok(None) };
        note_streams(state, &file.streams, mistakes);
        let applied = views_applied_alone(state, &file)?;
        let known = Definitions { views: file.views.iter().chain(&applied).cloned().collect(), ..Definitions::default() };
        let is_edited = |view: &&ViewDefinition| {
            let before = state.served_or_building(DefinitionKind::View, &view.name);
            before.is_none_or(|before| !means_the_same(&before.sql, &normalised(&self_contained(view, &known))))
        };
        let edited: BTreeSet<&Arc<str>> = file.views.iter().filter(is_edited).map(|view| &view.name).collect();
        let names = parse::names_in(&sink.select);
        let is_read = |view: &ViewDefinition| names.contains(&*view.name) && edited.contains(&view.name);
        let (views, others): (Vec<ViewDefinition>, Vec<ViewDefinition>) = known.views.iter().cloned().partition(is_read);
        note_names(state, &views, mistakes);
        let read = views.iter().flat_map(|view| parse::names_in(&view.select)).chain(names.iter().cloned()).collect();
        note_readers(&applied, &read, &edited, mistakes);
        let mut parameters = Vec::new();
        for parameter in file.parameters {
            if is_another(state, &parameter)? {
                parameters.push(parameter);
            }
        }
        Ok(Some(EditedFile { sink: Arc::new(sink), views, others, parameters }))
    }

    /// The values in effect, with those of the file.
    pub(super) fn values(&self, in_effect: &Parameters) -> Parameters {
        in_effect.iter().chain(Parameters::initial(&self.parameters).iter()).cloned().collect()
    }

    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| *parameter.name == *name)
    }
}

/// Reads the edited definition of a sink. Returns all definitions of its file too.
fn edited_definition(file: &Path, name: &str) -> Result<(SinkDefinition, Definitions)> {
    let text = read_input_text(file)?;
    let (definitions, diagnostics) = parse::parse_definitions(&[(Some(file.to_path_buf()), text)]);
    diagnostics.into_result()?;
    let Some(definition) = definitions.sinks.iter().find(|sink| *sink.name == *name).cloned() else {
        let found: Vec<&str> = definitions.sinks.iter().map(|sink| &*sink.name).collect();
        let found = if found.is_empty() { "no CREATE SINK".to_owned() } else { format!("CREATE SINK {}", found.join(", ")) };
        return Err(Error::input(format!("{} does not define the sink \"{name}\"", file.display()))
            .with("found", found)
            .with("expected", format!("CREATE SINK {name} ..")));
    };
    Ok((definition, definitions))
}

/// The live views that the file does not have.
fn views_applied_alone(state: &CatalogState, file: &Definitions) -> Result<Vec<ViewDefinition>> {
    let is_alone = |name: &&Arc<str>| file.views.iter().all(|view| view.name != **name);
    let names: BTreeSet<&Arc<str>> = state.live(DefinitionKind::View).map(|record| &record.name).filter(is_alone).collect();
    let served = names.into_iter().filter_map(|name| state.served_or_building(DefinitionKind::View, name));
    served.map(|record| parse::parse_view(&record.sql)).collect()
}

/// Notes each stream that is not applied like that: the archive has no events of it.
fn note_streams(state: &CatalogState, streams: &[StreamDefinition], mistakes: &mut Mistakes) {
    for stream in streams {
        let applied = state.served_or_building(DefinitionKind::Stream, &stream.name);
        if applied.is_none_or(|applied| normalised(&applied.sql) != normalised(&stream.sql)) {
            let message = format!("the file of the edited sink has the stream \"{}\" otherwise than it is applied", stream.name);
            let expected = "a stream as it is applied: events are archived as their stream is defined there";
            mistakes.add(mistake_at(&stream.origin, message).with("expected", expected));
        }
    }
}

/// A mistake in a definition of the file, with its place.
fn mistake_at(origin: &Origin, message: String) -> Error {
    let mistake = Error::input(message);
    match &origin.file {
        Some(file) => mistake.with("file", file.display()).with("line", origin.line),
        None => mistake,
    }
}

/// Notes each view with the name of a stream.
fn note_names(state: &CatalogState, views: &[ViewDefinition], mistakes: &mut Mistakes) {
    for view in views {
        if state.live(DefinitionKind::Stream).any(|stream| stream.name == view.name) {
            let message = format!("the file of the edited sink has the view \"{}\", and the catalog has a stream of that name", view.name);
            mistakes.add(mistake_at(&view.origin, message).with("expected", "another name"));
        }
    }
}

/// Notes each view that is read as it is applied, with an edited one in its text.
fn note_readers(applied: &[ViewDefinition], read: &BTreeSet<String>, edited: &BTreeSet<&Arc<str>>, mistakes: &mut Mistakes) {
    for reader in applied.iter().filter(|view| read.contains(&*view.name)) {
        for view in edited.iter().filter(|view| names_as_staging(&reader.sql, view)) {
            let name = &reader.name;
            let message =
                format!("the view \"{name}\" reads \"{view}\", which the file of the edited sink has otherwise than it is applied");
            mistakes.add(Error::input(message).with("expected", format!("CREATE VIEW {name} in the file too")));
        }
    }
}

/// Whether a parameter is new, or has another type or initial value than is applied.
fn is_another(state: &CatalogState, parameter: &ParameterDefinition) -> Result<bool> {
    let Some(applied) = state.served_or_building(DefinitionKind::Parameter, &parameter.name) else { return Ok(true) };
    let before = parse::parse_parameter(&applied.sql)?;
    Ok((before.value_type, &before.value) != (parameter.value_type, &parameter.value))
}

#[cfg(test)]
mod tests;
