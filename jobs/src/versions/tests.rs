use engine::functions::Functions;

use super::*;

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (format = 'json', event_time = 'ts')";
const MINUTE: Micros = 60_000_000;
const FOR_A_DAY: Micros = 24 * 60 * MINUTE;

use DefinitionStatus::{Active, Building, Kept, Retired};
use types::Strategy::{Full, Incremental};

fn record(kind: DefinitionKind, name: &str, version: u32, sql: &str, status: DefinitionStatus) -> DefinitionRecord {
    let kept_until = (status == Kept).then_some(FOR_A_DAY);
    DefinitionRecord {
        kind,
        name: name.into(),
        version,
        sql: sql.into(),
        status,
        created_at: 0,
        // A version is kept from when the next one is served.
        since: Micros::from(version) + Micros::from(status == Kept),
        kept_until,
        rolled_back: false,
    }
}

/// Versions of the view `v`, each with another column.
async fn catalog(versions: &[DefinitionStatus]) -> (CatalogState, Registry) {
    let sql = |version: u32| format!("CREATE VIEW v AS\nSELECT k,\n  count(*) AS n{version}\nFROM s GROUP BY k");
    let view = |(status, version): (&DefinitionStatus, u32)| record(DefinitionKind::View, "v", version, &sql(version), *status);
    let mut definitions = vec![record(DefinitionKind::Stream, "s", 1, STREAM, Active)];
    definitions.extend(versions.iter().zip(1..).map(view));
    let state = CatalogState { definitions: definitions.into_iter().collect(), ..CatalogState::default() };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    (state, registry)
}

fn statuses(state: &CatalogState, changed: &[DefinitionRecord]) -> Vec<(u32, DefinitionStatus)> {
    let views = state.definitions.iter().filter(|record| record.kind == DefinitionKind::View);
    views
        .map(|record| {
            let now = changed.iter().find(|changed| changed.version == record.version).unwrap_or(record);
            (now.version, now.status)
        })
        .collect()
}

fn name(text: &str) -> Result<VersionName, String> {
    text.parse()
}

#[test]
fn a_version_is_named_by_its_number_after_an_at() {
    assert_eq!(name("v"), Ok(VersionName { view: "v".into(), version: None }));
    assert_eq!(name("v@12").map(|name| name.to_string()), Ok("v@12".to_owned()));
    assert_eq!(name("v@x"), Err("found 'x' after the @, expected the number of a version: v@2".to_owned()));
    assert!(name("v@0").is_err() && name("v@").is_err() && name("@2").is_err() && name("").is_err());
}

#[tokio::test]
async fn the_versions_say_what_each_is_and_what_it_changed() {
    let (state, registry) = catalog(&[Retired, Kept, Active, Building]).await;
    let versions = versions(&state, &registry, "v", MINUTE).unwrap();
    let states: Vec<String> = versions.versions.iter().map(VersionReport::state).collect();
    assert_eq!(versions.served, Some(3));
    assert_eq!(states, ["dropped", "kept until 1970-01-02T00:00:00Z", "served", "building, waits for its run"]);
    assert_eq!(versions.versions[0].differs, "the first version");
    assert_eq!(versions.versions[1].differs, "+1 -1 from version 1: count(*) AS n2");
}

#[tokio::test]
async fn the_views_say_what_they_read_and_how_they_run() {
    let sql = |name: &str, options: &str| format!("CREATE VIEW {name} {options} AS SELECT k, count(*) AS n FROM s GROUP BY k");
    let view = |name: &str, version: u32, options: &str, status| record(DefinitionKind::View, name, version, &sql(name, options), status);
    let staging = record(DefinitionKind::View, "plain", 1, "CREATE VIEW plain AS SELECT k, ts FROM s", Active);
    let definitions = vec![
        record(DefinitionKind::Stream, "s", 1, STREAM, Active),
        view("w", 4, "WITH (every = '1h', strategy = 'full')", Building),
        view("w", 3, "", Active),
        view("w", 2, "", Kept),
        view("gone", 1, "", Retired),
        staging,
        view("a", 1, "WITH (every = '1h')", Active),
    ];
    let state = CatalogState { definitions: definitions.into_iter().collect(), ..CatalogState::default() };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let listed = list_views(&state, &registry, MINUTE);
    let shown: Vec<_> =
        listed.iter().map(|view| (&*view.view, view.version, view.state(), view.strategy, view.schedule.as_deref())).collect();
    let expected = [
        ("a", 1, "served".to_owned(), Some(Incremental), Some("every 1h")),
        ("plain", 1, "inlined".to_owned(), None, None),
        ("w", 3, "served".to_owned(), Some(Incremental), None),
        ("w", 4, "building, waits for its run".to_owned(), Some(Full), Some("every 1h")),
    ];
    assert_eq!(shown, expected);
    assert_eq!((listed[0].streams.concat().as_str(), listed[1].streams.len()), ("s", 0));
}

#[tokio::test]
async fn a_switch_goes_to_what_is_being_built_or_to_what_is_named() {
    let (state, registry) = catalog(&[Kept, Active, Building]).await;
    let (switched, records) = decide::switch(&state, &registry, ("v", None), MINUTE).unwrap();
    assert_eq!((switched.from, switched.version, switched.changed), (Some(2), 3, true));
    assert_eq!(switched.kept_until.as_deref(), Some("1970-01-02T00:01:00Z"));
    assert_eq!(statuses(&state, &records), [(1, Kept), (2, Kept), (3, Active)]);
    let (_, records) = decide::switch(&state, &registry, ("v", Some(1)), MINUTE).unwrap();
    assert_eq!(statuses(&state, &records), [(1, Active), (2, Kept), (3, Building)]);
    let (switched, records) = decide::switch(&state, &registry, ("v", Some(2)), MINUTE).unwrap();
    assert_eq!((switched.changed, records), (false, vec![]), "it is served already");
}

#[tokio::test]
async fn a_rollback_and_another_go_back_and_forth() {
    let (mut state, registry) = catalog(&[Retired, Kept, Active]).await;
    for (from, to, rolled_back) in [(3, 2, true), (2, 3, false)] {
        let (switched, records) = decide::roll_back(&state, &registry, "v", MINUTE + i64::from(from)).unwrap();
        assert_eq!((switched.from, switched.version), (Some(from), to));
        state = crate::apply::with_records(&state, &records);
        // Unchanged files have the newest version: it is not served again by them.
        assert_eq!(state.definitions.iter().any(|record| record.rolled_back), rolled_back);
    }
    assert_eq!(statuses(&state, &[]), [(1, Retired), (2, Kept), (3, Active)]);
}

/// Its text says what the change to it wanted: the version before it was not to be kept.
#[tokio::test]
async fn a_rollback_keeps_the_version_that_it_leaves_whatever_the_text_before_says() {
    let (mut state, registry) = catalog(&[Kept, Active]).await;
    let before = state.definitions.get(DefinitionKind::View, "v", 1).unwrap().clone();
    let sql = "CREATE VIEW v WITH (keep_old = '0s') AS SELECT k, count(*) AS n1 FROM s GROUP BY k".into();
    state.definitions.extend([DefinitionRecord { sql, ..before }]);
    let (switched, records) = decide::roll_back(&state, &registry, "v", MINUTE).unwrap();
    assert_eq!((switched.version, switched.kept_until.is_some()), (1, true));
    assert_eq!(statuses(&state, &records), [(1, Active), (2, Kept)]);
    let (_, records) = decide::switch(&state, &registry, ("v", Some(1)), MINUTE).unwrap();
    assert_eq!(statuses(&state, &records), [(1, Active), (2, Retired)], "a switch follows the text");
}

#[tokio::test]
async fn what_is_served_is_dropped_only_with_the_view_and_on_purpose() {
    let (state, _) = catalog(&[Retired, Kept, Active, Building]).await;
    let drop = |version, is_sure| decide::drop_view(&state, ("v", version), is_sure, MINUTE);
    for version in [2, 4] {
        let (dropped, records) = drop(Some(version), false).unwrap();
        assert_eq!((dropped.versions, dropped.is_whole), (vec![version], false));
        assert!(!records.is_empty() && records.iter().all(|record| record.status == Retired && record.version == version));
    }
    let refused = drop(None, false).unwrap_err();
    assert!(refused.message().contains("is served: dropping it ends its answers, and drops its versions 2, 3, 4"), "{refused}");
    let (dropped, records) = drop(None, true).unwrap();
    assert_eq!((dropped.versions, dropped.is_whole, records.len()), (vec![2, 3, 4], true, 3));
    let refused = drop(Some(3), true).unwrap_err();
    assert!(refused.message().contains("version 3 of the view \"v\" is the served one, and others are live"), "{refused}");
    let (state, _) = catalog(&[Active]).await;
    let refused = decide::drop_view(&state, ("v", None), false, MINUTE).unwrap_err();
    assert!(refused.message().ends_with("and drops its version 1"), "{refused}");
}

#[tokio::test]
async fn what_there_is_not_is_refused_with_what_there_is() {
    let (state, registry) = catalog(&[Retired, Active]).await;
    let message = |outcome: Result<(Switched, Vec<DefinitionRecord>)>| outcome.unwrap_err().to_string();
    let switch = |view: &str, version| message(decide::switch(&state, &registry, (view, version), MINUTE));
    assert!(switch("w", None).contains("there is no view \"w\""));
    assert!(switch("s", None).contains("\"s\" is a stream"));
    assert!(switch("v", Some(7)).contains("the view \"v\" has no version 7: expected one of 1, 2"));
    assert!(switch("v", Some(1)).contains("version 1 of the view \"v\" is gone: it was dropped at 1970-01-01T00:00:00.000001Z"));
    assert!(switch("v", None).contains("no version of the view \"v\" is being built"));
    assert!(message(decide::roll_back(&state, &registry, "v", MINUTE)).contains("no version of the view \"v\" is kept"));
    let (gone, registry) = catalog(&[Retired]).await;
    assert!(message(decide::roll_back(&gone, &registry, "v", MINUTE)).contains("the view \"v\" was dropped"));
}

/// A view that others read is part of their text.
#[tokio::test]
async fn a_view_that_others_read_is_not_dropped() {
    let (mut state, _) = catalog(&[Active]).await;
    let reader = "CREATE VIEW r AS WITH v AS (SELECT k FROM s) SELECT k, count(*) AS n FROM v GROUP BY k";
    state.definitions.extend([record(DefinitionKind::View, "r", 1, reader, Active)]);
    let refused = decide::drop_view(&state, ("v", None), true, MINUTE).unwrap_err();
    assert!(refused.message().contains("the view \"r\" reads it"), "{refused}");
}

/// Events would wait for the sink, and the alert would fall silent.
#[tokio::test]
async fn a_version_that_a_sink_or_an_alert_could_not_read_is_not_served() {
    let functions = Functions::standard();
    let sink = "CREATE SINK o WITH (topic = 'out') AS SELECT e.k, v.n2 FROM s e LEFT JOIN v ON v.k = e.k";
    let alert = "CREATE ALERT o WITH (topic = 'out') AS SELECT k, n2 FROM v WHERE n2 > 3";
    for (kind, text) in [(DefinitionKind::Sink, sink), (DefinitionKind::Alert, alert)] {
        let (mut state, _) = catalog(&[Kept, Active]).await;
        state.definitions.extend([record(kind, "o", 1, text, Active)]);
        let registry = Registry::load(&state, &functions).await.unwrap();
        let (_, rolled_back) = decide::roll_back(&state, &registry, "v", MINUTE).unwrap();
        let (_, dropped) = decide::drop_view(&state, ("v", None), true, MINUTE).unwrap();
        let refusal = async |records: &[DefinitionRecord]| {
            refuse_breaking(&registry, &with_records(&state, records), &functions).await.map_err(|e| e.to_string())
        };
        for records in [&rolled_back, &dropped] {
            let refused = refusal(records).await.unwrap_err();
            assert!(refused.contains(&format!("the {} \"o\" could no longer be planned", kind.word())), "{refused}");
        }
        let (_, kept) = decide::drop_view(&state, ("v", Some(1)), false, MINUTE).unwrap();
        assert_eq!(refusal(&kept).await, Ok(()));
        // What cannot be planned already is no reason to stay where one is.
        let after = with_records(&state, &rolled_back);
        let broken = Registry::load(&after, &functions).await.unwrap();
        assert_eq!(refuse_breaking(&broken, &with_records(&after, &kept), &functions).await.map_err(|e| e.to_string()), Ok(()));
    }
}

/// The schedule of the one after it would come to an end without a word.
#[tokio::test]
async fn a_view_that_another_runs_after_is_not_dropped() {
    let (mut state, _) = catalog(&[Kept, Active]).await;
    let follower = "CREATE VIEW r WITH (after = 'v') AS SELECT k, count(*) AS n FROM s GROUP BY k";
    state.definitions.extend([record(DefinitionKind::View, "r", 1, follower, Active)]);
    let drop = |state: &CatalogState, version| decide::drop_view(state, ("v", version), true, MINUTE);
    let refused = drop(&state, None).unwrap_err();
    assert!(refused.message().contains("the view \"r\" runs after it"), "{refused}");
    assert!(drop(&state, Some(1)).is_ok(), "the served version goes on");
    state.definitions.extend([record(DefinitionKind::View, "r", 1, follower, Retired)]);
    assert!(drop(&state, None).is_ok());
}
