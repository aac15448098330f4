use std::collections::BTreeMap;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, LeaseRecord, PartitionRecord, PauseRecord};
use committed::registry::Registry;
use engine::functions::Functions;
use event_log::PartitionBounds;
use types::vector::{Offset, PartitionId};

use super::*;
use crate::status::Status;
use crate::status::problems::Failing;

/// A stream of which 3 of 8 records are committed, and sinks over it, while a process is alive.
async fn facts() -> Facts {
    let stream = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 'in', event_time = 'ts')";
    let sink = |name: &str| {
        let sql = format!("CREATE SINK {name} WITH (topic = 'of_{name}') AS SELECT e.id FROM s e");
        DefinitionRecord::first(DefinitionKind::Sink, name, &sql)
    };
    let unplanned = "CREATE SINK unplanned WITH (topic = 'of_unplanned') AS SELECT e.gone FROM s e";
    let definitions = [
        DefinitionRecord::first(DefinitionKind::Stream, "s", stream),
        DefinitionRecord::first(DefinitionKind::Sink, "unplanned", unplanned),
        sink("alive"),
        sink("paused"),
        sink("scored"),
    ];
    let partition = PartitionRecord {
        id: PartitionId::new("s", 0),
        next_offset: Offset(3),
        log_identity: "log".into(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    let lease =
        LeaseRecord { name: format!("{NODE_LEASE}4711-1a2b"), owner: "4711-1a2b".into(), epoch: 1, expires_at: 60_000_000, pin: None };
    let state = CatalogState {
        definitions: definitions.into_iter().collect(),
        partitions: [(partition.id.clone(), partition)].into(),
        leases: vec![lease],
        pauses: vec![PauseRecord { kind: DefinitionKind::Sink, name: "paused".into(), since: 1_000_000 }],
        ..CatalogState::default()
    };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let error = "the sink \"scored\" over the stream \"s\", which is not read meanwhile: no right".into();
    Facts {
        ends: BTreeMap::from([("s".into(), Ok(vec![PartitionBounds { partition: 0, begin: Offset(0), end: Offset(8) }]))]),
        failing: vec![Failing {
            what: speed::SINK_STALLED.into(),
            seconds: 240,
            error,
            errors: [("scored".into(), "no right".into())].into(),
        }],
        registry: Some(Ok(registry)),
        state,
        ..Facts::default()
    }
}

#[tokio::test]
async fn each_sink_has_a_line_with_what_holds_it_up() {
    let status = Status::from_facts(&facts().await, &[]);
    let text = status.text();
    let line = |sink: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(&format!("{sink} "))).unwrap_or_else(|| panic!("{sink} in {text}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    assert_eq!(line("sink"), ["sink", "version", "status", "stream", "lag", "topic", "error"]);
    assert_eq!(line("alive"), ["alive", "1", "live", "s", "5", "of_alive", "-"]);
    assert_eq!(line("paused"), ["paused", "1", "paused", "s", "5", "of_paused", "-"]);
    assert_eq!(line("scored"), ["scored", "1", "stalled", "s", "5", "of_scored", "no right"]);
    let unplanned = line("unplanned");
    assert_eq!(unplanned[..6], ["unplanned", "1", "cannot be planned", "s", "5", "of_unplanned"]);
    assert_ne!(unplanned[6], "-", "{unplanned:?}");

    let scored = status.sinks.iter().find(|sink| &*sink.sink == "scored").unwrap();
    assert_eq!(scored.position, Some("s/0:3".parse().unwrap()));
    assert_eq!(scored.stalled, Some(StalledReport { seconds: 240, error: "no right".into() }));
}

/// The lease of a process that died lasts a while; one that ended gave it back.
#[tokio::test]
async fn a_sink_that_no_process_runs_is_not_called_live() {
    let (alive, paused) = ("alive", "paused");
    let states = |facts: &Facts| -> Vec<(String, &'static str, bool)> {
        let status = Status::from_facts(facts, &[]);
        let shown = status.sinks.iter().filter(|sink| [alive, paused].contains(&&*sink.sink));
        shown.map(|sink| (sink.sink.to_string(), sink.state(), sink.running)).collect()
    };
    let expected = |state, running| vec![(alive.to_owned(), state, running), (paused.to_owned(), "paused", running)];
    let running = facts().await;
    assert_eq!(states(&running), expected("live", true));
    let died = Facts { now: 60_000_000, ..running.clone() };
    assert_eq!(states(&died), expected("no process runs it", false));
    let mut ended = running;
    ended.state.leases.clear();
    assert_eq!(states(&ended), expected("no process runs it", false));
    let text = Status::from_facts(&ended, &[]).text();
    assert!(text.lines().any(|line| line.starts_with("alive ") && line.contains("  no process runs it  ")), "{text}");
}

#[tokio::test]
async fn without_an_answer_of_the_log_the_lag_is_not_known() {
    let ends = BTreeMap::from([("s".into(), Err("broker is down".into()))]);
    let status = Status::from_facts(&Facts { ends, ..facts().await }, &[]);
    assert!(status.sinks.iter().all(|sink| sink.lag.is_none()), "{:?}", status.sinks);
}
