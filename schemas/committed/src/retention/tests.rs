use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus};
use engine::functions::Functions;

use super::*;

const DAY: Micros = 86_400_000_000;

async fn registry(stream_options: &str, windows: &[&str]) -> Registry {
    let definition = |kind, name: String, sql: String| DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql,
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let stream = format!("CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (format = 'json', event_time = 'ts'{stream_options})");
    let view = |(nth, window): (usize, &&str)| {
        let sql = format!("CREATE VIEW v{nth}{window} AS SELECT k, count(*) AS n FROM s GROUP BY k");
        definition(DefinitionKind::View, format!("v{nth}"), sql)
    };
    let mut definitions = vec![definition(DefinitionKind::Stream, "s".into(), stream)];
    definitions.extend(windows.iter().enumerate().map(view));
    Registry::load(&CatalogState { definitions: definitions.into_iter().collect(), ..CatalogState::default() }, &Functions::standard())
        .await
        .unwrap()
}

const WEEK: &str = " WITH (windows = '7d')";

#[tokio::test]
async fn an_answer_reaches_past_the_archive_where_a_window_begins_before_the_retention() {
    let registry = registry(", retention = '30d'", &[WEEK]).await;
    let (stream, view, now) = (&registry.streams["s"].definition, registry.view("v0", 1).unwrap(), 100 * DAY);
    assert_eq!(archive_kept(&registry, stream), Some(Duration::from_secs(30 * 86_400)));
    let reaches = |t| reaches_past_archive(&registry, view, stream, t, now);
    assert!(!reaches(now) && !reaches(77 * DAY));
    assert!(reaches(77 * DAY - 1) && reaches(0));
}

#[tokio::test]
async fn an_archive_that_is_kept_for_ever_is_not_reached_past() {
    for (options, windows) in [("", &[WEEK][..]), (", retention = '30d'", &[WEEK, ""][..])] {
        let registry = registry(options, windows).await;
        let (stream, view) = (&registry.streams["s"].definition, registry.view("v0", 1).unwrap());
        assert_eq!(archive_kept(&registry, stream), None);
        assert!(!reaches_past_archive(&registry, view, stream, 0, 100 * DAY));
    }
}
