//! Surveys a file's records as events of a stream: which times they span, and how many values its columns have.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use definitions::StreamDefinition;
use engine::events::Decoder;
use types::Result;
use types::tiles::Micros;

use super::input::{Input, Shape};

/// What the first records of a file contain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileSurvey {
    /// Records that are events of the stream.
    pub events: u64,
    pub earliest: Option<Micros>,
    pub latest: Option<Micros>,
    /// For each column of the stream, how many different values it has (arrays and nulls not counted).
    pub distinct: Vec<usize>,
    /// For each column, the value of the newest event.
    pub newest: Vec<Option<String>>,
}

/// Decodes up to `limit` records and skips those that are not events of the stream or are dated after `last`, which
/// would be dead letters.
pub fn survey(path: &Path, shape: Shape, stream: Arc<StreamDefinition>, limit: u64, last: Micros) -> Result<FileSurvey> {
    let input = Input::File(path.to_path_buf());
    let mut records = input.open(input.format(shape.format)?, shape, &stream)?;
    let mut seen: Vec<Column> = stream.columns.iter().map(|_| Column::default()).collect();
    let decoder = Decoder::new(stream)?;
    let mut survey = FileSurvey::default();
    while survey.events < limit {
        let Some(record) = records.next()? else { break };
        let Ok(event) = decoder.decode(Some(&record.value)) else { continue };
        let time = event.event_time();
        if time > last {
            continue;
        }
        survey.events += 1;
        survey.earliest = Some(survey.earliest.map_or(time, |earliest| earliest.min(time)));
        survey.latest = Some(survey.latest.map_or(time, |latest| latest.max(time)));
        for (column, value) in seen.iter_mut().zip(event.values()) {
            if let Some(text) = value.canonical_text() {
                column.add(&text, time);
            }
        }
    }
    survey.distinct = seen.iter().map(|column| column.hashes.len()).collect();
    survey.newest = seen.into_iter().map(|column| column.newest.map(|(_, text)| text)).collect();
    Ok(survey)
}

#[derive(Default)]
struct Column {
    hashes: HashSet<u64>,
    newest: Option<(Micros, String)>,
}

impl Column {
    fn add(&mut self, text: &str, time: Micros) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.hashes.insert(hasher.finish());
        match &mut self.newest {
            Some((newest, _)) if *newest > time => {}
            Some((newest, kept)) => {
                *newest = time;
                kept.clear();
                kept.push_str(text);
            }
            None => self.newest = Some((time, text.to_owned())),
        }
    }
}
