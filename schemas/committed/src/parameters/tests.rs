use catalog::{DefinitionKind, DefinitionRecord, DefinitionStatus};
use engine::parameters::UsedParameters;
use types::ErrorKind;

use super::*;

const DEFINITIONS: [(DefinitionKind, &str, &str); 6] = [
    (DefinitionKind::Stream, "s", "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (event_time = 'ts')"),
    (DefinitionKind::View, "v", "CREATE VIEW v AS SELECT k, count(*) AS n, max(ts) AS last_seen FROM s GROUP BY k"),
    (DefinitionKind::Sink, "out", "CREATE SINK out WITH (topic = 'out') AS SELECT e.k, e.x > param('most') AS is_much FROM s e"),
    (
        DefinitionKind::Alert,
        "silent",
        "CREATE ALERT silent WITH (topic = 'a') AS SELECT k FROM v WHERE last_seen < as_of() - param('silence')",
    ),
    (DefinitionKind::Parameter, "most", "CREATE PARAMETER most = 20"),
    (DefinitionKind::Parameter, "silence", "CREATE PARAMETER silence = INTERVAL '30 minutes'"),
];

fn definition((kind, name, sql): (DefinitionKind, &str, &str), version: u32, status: DefinitionStatus) -> Add {
    Add::Definition(DefinitionRecord {
        kind,
        name: name.into(),
        version,
        sql: sql.to_owned(),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    })
}

fn value(parameter: &str, version: u32, value_type: &str, value: &str) -> Add {
    Add::Parameter(ParameterRecord {
        parameter: parameter.into(),
        version,
        value_type: value_type.to_owned(),
        value: value.to_owned(),
        set_at: 0,
        set_by: "files".to_owned(),
    })
}

async fn commit(catalog: &Catalog, add: Vec<Add>) {
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
}

async fn catalog() -> Catalog {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let values = [value("most", 1, "BIGINT", "20"), value("silence", 1, "INTERVAL", "30 minutes")];
    let definitions = DEFINITIONS.into_iter().map(|of| definition(of, 1, DefinitionStatus::Active));
    commit(&catalog, definitions.chain(values).collect()).await;
    catalog
}

async fn set_to(catalog: &Catalog, parameter: &str, value: &str) -> Result<ParameterChange> {
    set(catalog, &Functions::standard(), Setting { parameter, value, set_by: "ann", now: 7 }).await
}

fn used(registry: &Registry) -> (UsedParameters, UsedParameters) {
    let (sink, alert) = (registry.sinks[0].plan.as_ref().unwrap(), registry.alerts[0].plan.as_ref().unwrap());
    (sink.parameters.clone(), alert.parameters.clone())
}

#[tokio::test]
async fn a_value_that_is_set_is_followed_by_what_uses_it() {
    let (catalog, functions) = (catalog().await, Functions::standard());
    let before = Registry::load(&catalog.state().await.unwrap(), &functions).await.unwrap();
    assert_eq!(used(&before), ([("most".into(), 1)].into(), [("silence".into(), 1)].into()));
    let outcome = set_to(&catalog, "most", " 030").await.unwrap();
    let after = ParameterRecord { version: 2, value: "30".to_owned(), set_at: 7, set_by: "ann".to_owned(), ..outcome.before.clone() };
    assert_eq!((outcome.before.value.as_str(), &outcome.after), ("20", &after));

    let state = catalog.state().await.unwrap();
    assert_eq!(state.parameters[0], after);
    assert!(before.is_stale(&state) && !before.has_other_definitions(&state));
    let following = before.following(&state, &functions).await.unwrap();
    assert!(!following.is_stale(&state));
    assert_eq!(used(&following), ([("most".into(), 2)].into(), [("silence".into(), 1)].into()));
    assert_eq!(following.parameters, Registry::load(&state, &functions).await.unwrap().parameters);

    let listed = listed(&state).unwrap();
    let shown = listed.iter().map(|one| (&*one.in_effect.parameter, &*one.definition.value, &*one.in_effect.value, &one.used_by));
    let (sink, alert) = (BTreeSet::from(["out".into()]), BTreeSet::from(["silent".into()]));
    let silence = ("silence", "30 minutes", "30 minutes", &alert);
    assert_eq!(shown.collect::<Vec<_>>(), [("most", "20", "30", &sink), silence]);

    // The same value once more is no change.
    assert_eq!(set_to(&catalog, "most", "30").await.unwrap(), ParameterChange { before: after.clone(), after });
    assert_eq!(catalog.parameter_values("most", 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_cannot_be_a_value_changes_nothing() {
    let catalog = catalog().await;
    let revision = catalog.revision().await.unwrap();
    for (parameter, value, kind, message) in [
        ("mots", "30", ErrorKind::NotFound, "did you mean \"most\"? expected one of most, silence"),
        ("most", "many", ErrorKind::Input, "the parameter \"most\": the value 'many' is TEXT: expected BIGINT"),
        ("silence", "30", ErrorKind::Input, "the value '30' is BIGINT: expected an INTERVAL such as '30 minutes'"),
        (
            "silence",
            "3 lightyears",
            ErrorKind::Input,
            "the parameter \"silence\": the value '3 lightyears' is TEXT ('lightyears' is no unit): expected an INTERVAL such as",
        ),
        ("silence", "1 month", ErrorKind::Input, "the alert \"silent\" cannot be planned with this value"),
    ] {
        let error = set_to(&catalog, parameter, value).await.unwrap_err();
        assert!(error.kind() == kind && error.message().contains(message), "{parameter} {value}: {error}");
    }
    assert_eq!(catalog.revision().await.unwrap(), revision);
}

#[tokio::test]
async fn values_that_are_set_at_the_same_time_come_one_after_another() {
    let catalog = catalog().await;
    let all = (100..106).map(|value| {
        let catalog = catalog.clone();
        async move { set_to(&catalog, "most", &value.to_string()).await.unwrap().after.version }
    });
    let mut versions = futures::future::join_all(all).await;
    versions.sort_unstable();
    assert_eq!(versions, [2, 3, 4, 5, 6, 7]);
}

/// Whatever an apply commits after the value was checked: it is checked again with that.
#[tokio::test]
async fn a_value_is_not_set_beside_definitions_that_it_was_not_checked_with() {
    use DefinitionStatus::{Active, Retired};
    let (sink, alert, most, silence) = (DEFINITIONS[2], DEFINITIONS[3], DEFINITIONS[4], DEFINITIONS[5]);
    let functions = Functions::standard();
    let setting = |parameter, value| Setting { parameter, value, set_by: "ann", now: 7 };
    // Of each: what is set, what is committed meanwhile, and what setting then answers.
    let dropped = vec![definition(sink, 1, Retired), definition(most, 1, Retired)];
    let decimal = "CREATE PARAMETER most DECIMAL(18,2) = 25";
    let other_type =
        vec![definition(most, 1, Retired), definition((most.0, most.1, decimal), 2, Active), value("most", 2, "DECIMAL(18,2)", "25")];
    let described = "CREATE PARAMETER most BIGINT = 20 WITH (description = 'payments an hour')";
    let other_text = vec![definition(most, 1, Retired), definition((most.0, most.1, described), 2, Active)];
    let compared = "CREATE SINK out WITH (topic = 'out') AS SELECT e.k, e.ts - param('silence') AS before FROM s e";
    let other_sink = vec![definition(sink, 1, Retired), definition((sink.0, sink.1, compared), 2, Active)];
    for (parameter, asked, meanwhile, expected) in [
        ("most", "30", dropped, Err("there is no parameter \"most\"")),
        ("most", "30", other_type, Ok((3, "DECIMAL(18,2)"))),
        ("most", "30", other_text, Ok((2, "BIGINT"))),
        ("silence", "45 minutes", other_sink, Ok((2, "INTERVAL"))),
    ] {
        let catalog = catalog().await;
        let (_, decided) = decide(&catalog.state().await.unwrap(), &functions, setting(parameter, asked)).await.unwrap();
        commit(&catalog, meanwhile).await;
        let error = catalog.commit(decided.unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{parameter}: {error}");
        match (set_to(&catalog, parameter, asked).await, expected) {
            (Ok(outcome), Ok(expected)) => assert_eq!((outcome.after.version, &*outcome.after.value_type), expected),
            (Err(error), Err(expected)) => assert!(error.message().contains(expected), "{error}"),
            (outcome, expected) => panic!("{parameter}: {outcome:?}, expected {expected:?}"),
        }
    }

    // An alert that cannot be planned with the value comes meanwhile: without the check, it would stand there broken.
    let catalog = catalog().await;
    commit(&catalog, vec![definition(alert, 1, Retired)]).await;
    let (_, decided) = decide(&catalog.state().await.unwrap(), &functions, setting("silence", "1 month")).await.unwrap();
    commit(&catalog, vec![definition(alert, 2, Active)]).await;
    assert_eq!(catalog.commit(decided.unwrap()).await.unwrap_err().kind(), ErrorKind::Conflict);
    let error = set_to(&catalog, silence.1, "1 month").await.unwrap_err();
    assert!(error.message().contains("the alert \"silent\" cannot be planned with this value"), "{error}");
}
