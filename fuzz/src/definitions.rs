//! Fuzzes definitions: a file's text becomes streams, views and their plans, or mistakes with their places.

use definitions::Definitions;
use definitions::parse::{parse_definitions, parse_stream, parse_view};
use engine::functions::Functions;
use engine::plan::{Planner, explain};

use crate::installation::{STREAMS, runtime};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (found, diagnostics) = parse_definitions(&[(None, text.to_owned())]);
    let lines = text.split('\n').count();
    for diagnostic in diagnostics.iter() {
        assert!(diagnostic.line <= lines, "line {} of {lines}: {diagnostic}", diagnostic.line);
        assert!(!diagnostic.message.is_empty());
    }
    for stream in &found.streams {
        let again = parse_stream(&stream.sql).unwrap_or_else(|error| panic!("kept text no longer parses: {error}\n{}", stream.sql));
        assert_eq!((&again.columns, &again.topic, &again.dedup_within), (&stream.columns, &stream.topic, &stream.dedup_within));
    }
    for view in &found.views {
        let again = parse_view(&view.sql).unwrap_or_else(|error| panic!("kept text no longer parses: {error}\n{}", view.sql));
        assert_eq!((&again.select, &again.windows, &again.schedule), (&view.select, &view.windows, &view.schedule));
    }
    runtime().block_on(plan(found));
}

/// Plans the views over their own streams and those of the installation.
async fn plan(mut found: Definitions) {
    let known = STREAMS.iter().map(|sql| parse_stream(sql).expect("the installation's streams parse"));
    let known: Vec<_> = known.filter(|stream| found.streams.iter().all(|own| own.name != stream.name)).collect();
    found.streams.extend(known);
    let (plans, diagnostics) = Planner::new(&found, Functions::standard()).plan_all().await;
    for plan in plans {
        let _ = serde_json::to_string(&explain::explain(&plan));
    }
    let _ = diagnostics.to_string();
}
