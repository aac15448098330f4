use super::*;

fn stall(stream: &str) -> Stall {
    Stall { stream: stream.into(), sink: "scored".into(), error: "no right".into() }
}

fn left_out(stalls: &Stalls, now: Instant) -> Vec<String> {
    stalls.left_out(now).iter().map(|stream| stream.to_string()).collect()
}

#[test]
fn a_stream_that_fails_again_is_left_out_for_longer_and_longer_and_the_others_are_not() {
    let (mut stalls, begin) = (Stalls::default(), Instant::now());
    stalls.failed(stall("s"), begin);
    assert!(left_out(&stalls, begin).is_empty() && stalls.outage(begin).is_none(), "a first failure may be of the moment");
    assert!(stalls.current(begin).is_empty());
    assert!(stalls.is_trial(begin));
    let mut now = begin;
    let mut pauses = Vec::new();
    for _ in 0..10 {
        stalls.failed(stall("s"), now);
        assert_eq!(left_out(&stalls, now), ["s"]);
        let from = now;
        while !left_out(&stalls, now).is_empty() {
            now += Duration::from_millis(50);
        }
        pauses.push(now - from);
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[9] == LONGEST_PAUSE, "{pauses:?}");
    let outage = stalls.outage(now).unwrap();
    assert_eq!((outage.what, outage.lasting), (SINK_STALLED, now - begin));
    assert!(outage.error.contains("\"scored\" over the stream \"s\"") && outage.error.contains("no right"), "{}", outage.error);
    assert_eq!(stalls.current(now), [(&stall("s"), begin)]);
    stalls.passed("s");
    assert!(stalls.outage(now).is_none() && !stalls.is_trial(now));
}

#[test]
fn an_outage_names_the_error_of_each_sink() {
    let (mut stalls, now) = (Stalls::default(), Instant::now());
    let another = Stall { stream: "t".into(), sink: "another".into(), error: "no topic; it was deleted".into() };
    for stall in [stall("s"), another] {
        stalls.failed(stall.clone(), now);
        stalls.failed(stall, now);
    }
    let outage = stalls.outage(now).unwrap();
    assert_eq!(
        outage.error,
        "the sink \"scored\" over the stream \"s\", which is not read meanwhile: no right; \
         the sink \"another\" over the stream \"t\", which is not read meanwhile: no topic; it was deleted"
    );
    let errors = [("scored", "no right"), ("another", "no topic; it was deleted")];
    assert_eq!(outage.errors, errors.map(|(sink, error)| (sink.into(), error.into())).into());
}

#[test]
fn a_stream_that_is_read_again_without_a_failure_begins_anew() {
    let (mut stalls, now) = (Stalls::default(), Instant::now());
    stalls.failed(stall("s"), now);
    stalls.failed(stall("s"), now);
    let later = now + FIRST_PAUSE + TRIAL;
    assert!(stalls.outage(later).is_none(), "no event came that could show it");
    stalls.failed(stall("s"), later);
    assert!(left_out(&stalls, later).is_empty());
}

#[tokio::test]
async fn a_sink_that_is_paused_holds_nothing_up() {
    let definition = |kind, name: &str, sql: &str| catalog::DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.into(),
        status: catalog::DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let definitions = [
        definition(
            catalog::DefinitionKind::Stream,
            "s",
            "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (topic = 's', event_time = 'ts')",
        ),
        definition(
            catalog::DefinitionKind::Sink,
            "scored",
            "CREATE SINK scored WITH (topic = 'out') AS SELECT e.id FROM s e LEFT JOIN gone v ON v.id = e.id",
        ),
    ];
    let pauses = vec![catalog::PauseRecord { kind: catalog::DefinitionKind::Sink, name: "scored".into(), since: 1 }];
    let (mut stalls, now) = (Stalls::default(), Instant::now());
    for (pauses, held) in [(Vec::new(), &["s"][..]), (pauses, &[])] {
        let state = catalog::CatalogState { definitions: definitions.iter().cloned().collect(), pauses, ..Default::default() };
        let registry = Registry::load(&state, &engine::functions::Functions::standard()).await.unwrap();
        assert!(registry.sinks[0].plan.is_err());
        stalls.failed(stall("s"), now);
        stalls.failed(stall("s"), now);
        stalls.note_unplanned(&registry, now);
        assert_eq!(left_out(&stalls, now), held);
        assert_eq!(stalls.outage(now).is_some(), !held.is_empty());
    }
}
