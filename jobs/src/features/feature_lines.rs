//! The lines `set-sink` and `add-feature` together: which features one sink puts out, under which names, and whether
//! they count the event.

use std::collections::BTreeMap;

use super::Mistake;
use super::expression::{Expression, Macro, event_types, expand};
use super::script::{Feature, FeatureSink, KeptFeature, Script};
use super::text::unused;
use crate::sql_names::is_plain;

/// The longest name that is made of an expression. A number may follow.
const LONGEST_NAME: usize = 90;

/// Whether a feature counts the event for which it is computed, and whether it is put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeatureMode {
    Upget,
    Get,
    Update,
}

impl FeatureMode {
    /// Parses the value of `--mode`.
    pub fn parse(text: &str) -> Result<FeatureMode, String> {
        match text {
            "upget" => Ok(FeatureMode::Upget),
            "get" => Ok(FeatureMode::Get),
            "update" => Ok(FeatureMode::Update),
            other => Err(format!("--mode is `upget`, `get` or `update`, found `{other}`")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            FeatureMode::Upget => "upget",
            FeatureMode::Get => "get",
            FeatureMode::Update => "update",
        }
    }
}

/// A `set-sink` line.
pub(super) struct SinkLine {
    pub line: usize,
    pub event_type: Option<String>,
    pub name: Option<String>,
    pub topic: String,
    pub key: Option<String>,
    pub mode: Option<FeatureMode>,
    pub notes: Vec<String>,
}

/// An `add-feature` line.
pub(super) struct FeatureLine {
    pub line: usize,
    pub event_type: Option<String>,
    pub name: Option<String>,
    /// The expression as it is written.
    pub text: String,
    pub expression: Expression,
    pub mode: Option<FeatureMode>,
}

/// Adds the sink and the features to the script, whose sources and macros are known.
pub(super) fn add_features(script: &mut Script, sink: SinkLine, lines: Vec<FeatureLine>, mistakes: &mut Vec<Mistake>) {
    let (kept, put_out): (Vec<FeatureLine>, Vec<FeatureLine>) =
        lines.into_iter().partition(|feature| feature.mode == Some(FeatureMode::Update));
    let first = || put_out.iter().find_map(|feature| feature.event_type.clone());
    let Some(event_type) = sink.event_type.clone().or_else(first) else {
        let message = "--event-type is missing: expected the event type for which features are computed, here or beside each feature";
        mistakes.push(Mistake { line: sink.line, message: message.into() });
        return;
    };
    for feature in &put_out {
        if let Some(other) = feature.event_type.as_ref().filter(|other| **other != event_type) {
            let message = format!(
                "the feature is one of `{other}`, and the sink puts out those of `{event_type}`: expected a script for each event type, or \
                 --mode update"
            );
            mistakes.push(Mistake { line: feature.line, message });
        }
    }
    let mode = common_mode(&sink, &event_type, &put_out, &kept, &script.macros, mistakes);
    let fields = script.sources.get(&event_type).into_iter().flat_map(|source| &source.fields).map(|field| field.name.clone());
    let taken: Vec<String> = fields.chain(put_out.iter().filter_map(|feature| feature.name.clone())).collect();
    script.features = named(put_out, taken);
    script.kept.extend(kept.into_iter().map(|FeatureLine { line, event_type: own, expression, .. }| KeptFeature {
        line,
        event_type: own.unwrap_or_else(|| event_type.clone()),
        expression,
    }));
    script.sink = Some(FeatureSink {
        line: sink.line,
        name: sink.name.unwrap_or_else(|| format!("{event_type}_features")),
        event_type,
        topic: sink.topic,
        key: sink.key,
        mode: if mode == FeatureMode::Get { "exclusive" } else { "inclusive" },
        notes: sink.notes,
    });
}

/// The mode of all features that can count the event. Others have the same value in either mode.
fn common_mode(
    sink: &SinkLine,
    event_type: &str,
    put_out: &[FeatureLine],
    kept: &[FeatureLine],
    macros: &BTreeMap<String, Macro>,
    mistakes: &mut Vec<Mistake>,
) -> FeatureMode {
    let mut common = sink.mode.map(|mode| (mode, sink.line));
    for feature in put_out {
        let Some(written) = feature.mode else { continue };
        let can_count_event = expand(&feature.expression, macros, 0).is_ok_and(|expanded| event_types(&expanded).contains(event_type));
        if !can_count_event {
            continue;
        }
        let is_of_event = |kept: &FeatureLine| kept.event_type.as_ref().is_none_or(|own| own == event_type);
        let is_updated = kept.iter().any(|kept| kept.expression == feature.expression && is_of_event(kept));
        let mode = if is_updated { FeatureMode::Upget } else { written };
        match common {
            None => common = Some((mode, feature.line)),
            Some((other, line)) if other != mode => {
                let message = format!(
                    "the feature has --mode {}, and line {line} --mode {}: a sink counts the event in all of its features or in none",
                    mode.name(),
                    other.name()
                );
                mistakes.push(Mistake { line: feature.line, message });
            }
            Some(_) => {}
        }
    }
    common.map_or(FeatureMode::Upget, |(mode, _)| mode)
}

/// Names the features that have no name. Those with one expression are one feature.
fn named(lines: Vec<FeatureLine>, mut taken: Vec<String>) -> Vec<Feature> {
    let mut features: Vec<Feature> = Vec::new();
    let mut unnamed: Vec<usize> = Vec::new();
    for FeatureLine { line, name, text, expression, .. } in lines {
        let same = unnamed.iter().copied().find(|&index| name.is_none() && features[index].expression == expression);
        if let Some(index) = same {
            features[index].repeated.push(line);
            continue;
        }
        let name = name.unwrap_or_else(|| {
            let name = unused(&name_of(&expression), |name| taken.iter().any(|taken| taken == name));
            taken.push(name.clone());
            unnamed.push(features.len());
            name
        });
        features.push(Feature { line, repeated: Vec::new(), name, text, expression });
    }
    features
}

/// The words of an expression, as `count_7d_payment_device_id`.
fn name_of(expression: &Expression) -> String {
    let mut words = Vec::new();
    add_words(expression, &mut words);
    let mut name = words.join("_");
    name.truncate(LONGEST_NAME);
    let name = name.trim_end_matches('_');
    match name.starts_with(|c: char| c.is_ascii_lowercase()) && is_plain(name) {
        true => name.to_owned(),
        false => format!("feature_{name}").trim_end_matches('_').to_owned(),
    }
}

fn add_words(expression: &Expression, words: &mut Vec<String>) {
    let (Expression::Name(text) | Expression::Number(text) | Expression::Text(text) | Expression::Call(text, _)) = expression;
    words.extend(text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_ascii_lowercase));
    if let Expression::Call(_, arguments) = expression {
        for argument in arguments {
            add_words(&argument.expression, words);
            argument.value.iter().for_each(|value| add_words(value, words));
        }
    }
}
