use catalog::{Add, Catalog, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use definitions::parse;
use engine::functions::Functions;
use tokio::sync::watch;
use types::ErrorKind;
use uuid::Uuid;

use super::*;
use crate::SinkSettings;

fn stream(topic: &str) -> String {
    format!("CREATE STREAM pay (ts TIMESTAMPTZ NOT NULL) WITH (topic = '{topic}', format = 'json', event_time = 'ts')")
}

#[tokio::test]
async fn an_event_in_a_topic_that_its_stream_has_left_is_not_said_to_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &Default::default()).await.unwrap();
    let record = DefinitionRecord {
        kind: DefinitionKind::Stream,
        name: "pay".into(),
        version: 2,
        sql: stream("payments"),
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    catalog.commit(Commit { id: Uuid::now_v7(), add: vec![Add::Definition(record)], ..Commit::default() }).await.unwrap();
    for topic in ["paymnets", "payments"] {
        log.create_topic(topic, 1).await.unwrap();
    }
    let settings = SinkSettings { group: "basestream".into(), partitions: 1, max_future: Duration::ZERO };
    let sinks = Sinks::new(watch::channel(None).1, log, catalog, Functions::standard(), settings);
    let append = |topic: &str| {
        let definition = Arc::new(parse::parse_stream(&stream(topic)).unwrap());
        let event = NewRecord { value: Some(Bytes::from_static(b"{}")), ..NewRecord::default() };
        sinks.clone().append_event(("alarms".into(), definition), (event, None), Vec::new())
    };
    assert_eq!(append("paymnets").await.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    append("payments").await.map(drop).unwrap();
}

/// A topic may have more partitions by now than this process knows, or have been made anew with fewer.
#[tokio::test]
async fn all_partitions_are_reached_when_each_that_is_known_is() {
    let folder = tempfile::tempdir().unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &Default::default()).await.unwrap();
    log.create_topic("pay", 2).await.unwrap();
    let settings = SinkSettings { group: "basestream".into(), partitions: 1, max_future: Duration::ZERO };
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let sinks = Sinks::new(watch::channel(None).1, log, catalog, Functions::standard(), settings);
    for (topic, reached, expected) in [
        ("pay", vec![0, 1], vec![]),
        ("pay", vec![0, 1, 2], vec![]),
        ("pay", vec![0, 2], vec![1]),
        ("pay", vec![], vec![0, 1]),
        ("nothing", vec![], vec![0]),
    ] {
        let lacking = sinks.lacking(&topic.into(), &reached.iter().copied().collect()).await.unwrap();
        assert_eq!(lacking.into_iter().collect::<Vec<_>>(), expected, "{topic}: {reached:?}");
    }
}
