use catalog::{CatalogState, DefinitionRecord, PauseRecord};
use committed::registry::Registry;
use engine::functions::Functions;
use types::vector::Vector;

use super::*;

fn id(partition: i32) -> PartitionId {
    PartitionId::new("s", partition)
}

#[test]
fn a_stream_is_as_old_as_its_oldest_partition_and_unknown_where_one_is() {
    let place = |waiting, complete_to| Place { id: id(0), position: 0, waiting, complete_to };
    let fresh = |places: &[Place]| freshness(places.iter());
    assert_eq!(fresh(&[place(Some(1), Some(2_000_000)), place(Some(2), Some(1_000_000))]), (Some(3), Some("1970-01-01T00:00:01Z".into())));
    assert_eq!(fresh(&[place(None, Some(2_000_000)), place(Some(2), None)]), (None, None));
    assert_eq!(fresh(&[]), (Some(0), None));
}

/// A registry with a stream `s` and a sink over it.
async fn registry(pauses: Vec<PauseRecord>) -> Registry {
    let stream = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 'in', event_time = 'ts')";
    let sink = "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id FROM s e";
    let definitions =
        [DefinitionRecord::first(DefinitionKind::Stream, "s", stream), DefinitionRecord::first(DefinitionKind::Sink, "scored", sink)]
            .into_iter()
            .collect();
    Registry::load(&CatalogState { definitions, pauses, ..Default::default() }, &Functions::standard()).await.unwrap()
}

#[tokio::test]
async fn a_sink_says_where_it_is_and_why_it_puts_nothing_out() {
    let committed: Vector = "other/0:7,s/0:3,s/1:4".parse().unwrap();
    let place = |id, waiting| Place { id, position: 0, waiting, complete_to: None };
    let places = [place(id(0), Some(2)), place(id(1), Some(3)), place(PartitionId::new("other", 0), Some(100))];
    let stall =
        |sink: &str, seconds| (Stall { stream: "s".into(), sink: sink.into(), error: "no right".into() }, Duration::from_secs(seconds));
    let stalls = [stall("scored", 3), stall("scored", 240), stall("another", 900)];

    let live = registry(Vec::new()).await.sinks.remove(0);
    let report = sink(SinkStatus::new(&live, &committed, &[]), &places, &stalls);
    let status = SinkStatus {
        sink: "scored".into(),
        version: 1,
        topic: "out".into(),
        stream: Some("s".into()),
        position: Some("s/0:3,s/1:4".parse().unwrap()),
        lag: Some(0),
        paused_since: None,
        refused: None,
        stalled: Some(StalledReport { seconds: 240, error: "no right".into() }),
        running: true,
    };
    assert_eq!(report, SinkReport { status: status.clone(), waiting: Some(5) });

    let pause = PauseRecord { kind: DefinitionKind::Sink, name: "scored".into(), since: 1_000_000 };
    let live = registry(vec![pause]).await.sinks.remove(0);
    let report = sink(SinkStatus::new(&live, &committed, &[]), &places, &[]);
    let paused = SinkStatus { paused_since: Some("1970-01-01T00:00:01Z".into()), stalled: None, ..status };
    assert_eq!(report, SinkReport { status: paused, waiting: Some(5) });
}
