//! Parameters: values have consecutive versions, the newest of a live parameter is in effect, and none is lost.

use super::*;

on_every_engine!(
    the_newest_value_of_each_parameter_is_in_the_state,
    a_version_is_given_once,
    a_dropped_parameter_is_not_set_and_goes_on_where_it_ended,
    of_two_that_set_at_the_same_time_one_wins,
    the_newest_thousand_values_are_kept,
    a_commit_on_other_values_or_definitions_is_a_conflict,
);

fn definition(name: &str, version: u32, status: DefinitionStatus) -> Add {
    Add::Definition(DefinitionRecord {
        kind: DefinitionKind::Parameter,
        name: name.into(),
        version,
        sql: format!("CREATE PARAMETER {name} = 20"),
        status,
        created_at: 1,
        since: 1,
        kept_until: None,
        rolled_back: false,
    })
}

fn value(name: &str, version: u32, value: &str) -> ParameterRecord {
    let (parameter, value_type) = (name.into(), "BIGINT".to_owned());
    ParameterRecord { parameter, version, value_type, value: value.to_owned(), set_at: 7, set_by: "ann, \"a\"".to_owned() }
}

async fn set(catalog: &Catalog, record: &ParameterRecord) -> Result<Revision> {
    catalog.commit(adds(vec![Add::Parameter(record.clone())])).await
}

async fn defined(test: &TestCatalog, name: &str) {
    let add = vec![definition(name, 1, DefinitionStatus::Active), Add::Parameter(value(name, 1, "20"))];
    test.catalog.commit(adds(add)).await.unwrap();
}

async fn the_newest_value_of_each_parameter_is_in_the_state(test: &TestCatalog) {
    defined(test, "b").await;
    defined(test, "a").await;
    for version in 2..=30 {
        set(&test.catalog, &value("b", version, &version.to_string())).await.unwrap();
    }
    let newest = [value("a", 1, "20"), value("b", 30, "30")];
    assert_eq!(test.another().await.state().await.unwrap().parameters, newest);
    assert_eq!(test.catalog.state().await.unwrap().parameters, newest, "also where an earlier state was read");
    let history = test.catalog.parameter_values("b", 2).await.unwrap();
    assert_eq!(history, [value("b", 30, "30"), value("b", 29, "29")]);
    assert_eq!(test.catalog.parameter_values("b", 100).await.unwrap().len(), 30);
    assert_eq!(test.catalog.parameter_values("nobody", 100).await.unwrap(), []);
}

async fn a_version_is_given_once(test: &TestCatalog) {
    defined(test, "a").await;
    for version in [1, 3] {
        let error = set(&test.catalog, &value("a", version, "30")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    set(&test.catalog, &value("a", 2, "30")).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().parameters, [value("a", 2, "30")]);
}

async fn a_dropped_parameter_is_not_set_and_goes_on_where_it_ended(test: &TestCatalog) {
    assert_eq!(set(&test.catalog, &value("a", 1, "20")).await.unwrap_err().kind(), ErrorKind::Conflict);
    defined(test, "a").await;
    test.catalog.commit(adds(vec![definition("a", 1, DefinitionStatus::Retired)])).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().parameters, [value("a", 1, "20")]);
    assert_eq!(set(&test.catalog, &value("a", 2, "30")).await.unwrap_err().kind(), ErrorKind::Conflict);
    let again = vec![definition("a", 2, DefinitionStatus::Active), Add::Parameter(value("a", 2, "40"))];
    test.catalog.commit(adds(again)).await.unwrap();
    assert_eq!(test.catalog.state().await.unwrap().parameters, [value("a", 2, "40")]);
    assert_eq!(test.catalog.parameter_values("a", 9).await.unwrap().len(), 2);
}

async fn of_two_that_set_at_the_same_time_one_wins(test: &TestCatalog) {
    defined(test, "a").await;
    let (first, second) = (test.another().await, test.another().await);
    for version in 2..12 {
        let (one, two) = (value("a", version, "1"), value("a", version, "2"));
        let (one, two) = tokio::join!(set(&first, &one), set(&second, &two));
        assert!(one.is_ok() != two.is_ok(), "{one:?}, {two:?}");
    }
    assert_eq!(test.catalog.parameter_values("a", 100).await.unwrap().len(), 11);
}

/// Of each parameter, also where the other one is set no more.
async fn the_newest_thousand_values_are_kept(test: &TestCatalog) {
    defined(test, "a").await;
    defined(test, "b").await;
    let values = (2..=1_003).map(|version| Add::Parameter(value("b", version, &version.to_string())));
    test.catalog.commit(adds(values.collect())).await.unwrap();
    let kept = test.catalog.parameter_values("b", 5_000).await.unwrap();
    let versions = (kept.first().map(|value| value.version), kept.last().map(|value| value.version));
    assert_eq!((kept.len(), versions), (1_000, (Some(1_003), Some(4))));
    assert_eq!(test.another().await.state().await.unwrap().parameters, [value("a", 1, "20"), value("b", 1_003, "1003")]);
    set(&test.catalog, &value("b", 1_004, "7")).await.unwrap();
}

async fn a_commit_on_other_values_or_definitions_is_a_conflict(test: &TestCatalog) {
    defined(test, "a").await;
    defined(test, "b").await;
    let before = test.catalog.state().await.unwrap();
    let values = [Expect::ParameterVersions(before.parameter_versions()), Expect::Live(before.live_versions())];
    let [values, definitions] = values.map(|expected| Commit { expect: vec![expected], ..Commit::default() });
    for commit in [&values, &definitions] {
        test.catalog.commit(commit.clone()).await.unwrap();
    }
    set(&test.catalog, &value("b", 2, "30")).await.unwrap();
    assert_eq!(test.catalog.commit(values.clone()).await.unwrap_err().kind(), ErrorKind::Conflict);
    test.catalog.commit(definitions.clone()).await.unwrap();
    let now = Expect::ParameterVersions(test.catalog.state().await.unwrap().parameter_versions());
    let now = Commit { expect: vec![now], ..Commit::default() };
    test.catalog.commit(now.clone()).await.unwrap();
    test.catalog.commit(adds(vec![definition("b", 1, DefinitionStatus::Retired)])).await.unwrap();
    for commit in [now, definitions] {
        let error = test.catalog.commit(commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "the parameter was dropped: {error}");
    }
}
