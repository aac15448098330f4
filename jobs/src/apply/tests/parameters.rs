//! Parameters in files: they give the initial value, and what was set since stays.

use committed::parameters::{Setting, set};

use super::*;
use crate::parameters::list;

const SINK: &str = "CREATE SINK scored WITH (topic = 'scored') AS SELECT p.id, p.amount > param('most') AS is_much FROM pay p";
const BUSY: &str = "CREATE ALERT busy WITH (topic = 'alerts') AS SELECT device FROM velocity WHERE n_1h >= param('most')";
const MOST: &str = "CREATE PARAMETER most = 20";

struct World {
    catalog: Catalog,
    storage: ObjectStorage,
    log: Arc<dyn Log>,
    functions: Functions,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, storage, log) = services(&folder).await;
        World { catalog, storage, log, functions: Functions::standard(), _folder: folder }
    }

    async fn apply(&self, texts: &[&str], prune: bool) -> Result<Changes> {
        let target = target_of(&self.catalog, &self.storage, &*self.log, &self.functions);
        apply_files(&target, &definitions(texts), prune, 7).await
    }

    async fn set(&self, value: &str) {
        let setting = Setting { parameter: "most", value, set_by: "ann", now: 8 };
        set(&self.catalog, &self.functions, setting).await.unwrap();
    }

    /// The version and the value in effect.
    async fn value(&self) -> (u32, String) {
        let state = self.catalog.state().await.unwrap();
        let most = state.parameters.iter().find(|record| &*record.parameter == "most").unwrap();
        (most.version, most.value.clone())
    }
}

fn in_effect(version: u32, value: &str) -> (u32, String) {
    (version, value.to_owned())
}

fn value_of(changes: &Changes) -> (Option<&str>, &str) {
    let value = changes.changes.iter().find_map(|change| change.value.as_ref()).unwrap();
    (value.before.as_deref(), &value.after)
}

#[tokio::test]
async fn files_give_the_initial_value_and_what_was_set_stays_until_they_give_another() {
    let world = World::new().await;
    let changes = world.apply(&[STREAM, VIEW, SINK, BUSY, MOST], false).await.unwrap();
    assert_eq!((change_kind(&changes, "most"), value_of(&changes)), (&ChangeKind::Added { version: 1 }, (None, "20")));
    world.set("30").await;
    let again = world.apply(&[STREAM, VIEW, SINK, BUSY, MOST], false).await.unwrap();
    assert!(again.is_empty(true));
    assert_eq!((value_of(&again), world.value().await), ((Some("30"), "30"), in_effect(2, "30")));

    let described = "CREATE PARAMETER most BIGINT = 20 WITH (description = 'payments an hour')";
    let changes = world.apply(&[STREAM, VIEW, SINK, BUSY, described], false).await.unwrap();
    assert!(matches!(change_kind(&changes, "most"), ChangeKind::Changed { from: 1, version: 2, .. }));
    assert_eq!((value_of(&changes), world.value().await), ((Some("30"), "30"), in_effect(2, "30")), "it begins with the same value");

    let changes = world.apply(&[STREAM, VIEW, SINK, BUSY, "CREATE PARAMETER most = 25"], false).await.unwrap();
    assert_eq!((value_of(&changes), world.value().await), ((Some("30"), "25"), in_effect(3, "25")));

    // A type is changed with the value, which may have the same text.
    world.set("20").await;
    world.apply(&[STREAM, VIEW, SINK, BUSY, "CREATE PARAMETER most DECIMAL(18,0) = 25"], false).await.unwrap();
    assert_eq!(world.value().await, in_effect(5, "25"));
    assert_eq!(world.catalog.parameter_values("most", 9).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_history_that_is_asked_for_is_there_without_earlier_values_too() {
    let world = World::new().await;
    world.apply(&[STREAM, MOST], false).await.unwrap();
    for (asked_for, history) in [(0, None), (9, Some(serde_json::json!([])))] {
        let shown = list(&world.catalog, &world.functions, None, asked_for).await.unwrap();
        assert_eq!(serde_json::to_value(&shown[0]).unwrap().get("history"), history.as_ref());
    }
}

#[tokio::test]
async fn a_parameter_that_is_used_is_not_dropped() {
    let world = World::new().await;
    world.apply(&[STREAM, VIEW, SINK, BUSY, MOST], false).await.unwrap();
    for (rest, user) in [([STREAM, VIEW, SINK], "sink \"scored\""), ([STREAM, VIEW, BUSY], "alert \"busy\"")] {
        let error = world.apply(&rest, true).await.unwrap_err();
        assert_eq!(error.message(), format!("the parameter \"most\" cannot be dropped: the {user} uses it"));
    }
    let files = definitions(&[STREAM, VIEW, SINK, BUSY]);
    let state = world.catalog.state().await.unwrap();
    let changes = plan_changes(&state, &files, &BTreeSet::new());
    assert!(checked_records(&state, &changes, true, 9, &world.functions).await.is_err(), "`plan` says the same");
    checked_records(&state, &changes, false, 9, &world.functions).await.unwrap();

    world.set("30").await;
    world.apply(&[STREAM, VIEW], true).await.unwrap();
    assert_eq!(statuses(&world.catalog.state().await.unwrap(), "most"), [(1, Retired)]);
    let error = world.apply(&[STREAM, VIEW, SINK], false).await.unwrap_err();
    assert!(error.message().contains("there is no parameter \"most\": no parameter is defined yet"), "{error}");
    // Defined again, it begins with the value of the files, and its versions go on.
    world.apply(&[STREAM, VIEW, SINK, MOST], false).await.unwrap();
    assert_eq!(world.value().await, in_effect(3, "20"));
}

#[tokio::test]
async fn a_parameter_is_not_changed_into_what_its_users_cannot_be_planned_with() {
    let world = World::new().await;
    let sink = "CREATE SINK scored WITH (topic = 'scored') AS SELECT p.id, p.ts - param('most') AS before FROM pay p";
    world.apply(&[STREAM, VIEW, sink, "CREATE PARAMETER most = INTERVAL '1 day'"], false).await.unwrap();
    let error = world.apply(&[STREAM, VIEW, sink, MOST], false).await.unwrap_err();
    assert!(error.message().contains("the sink \"scored\" could no longer be planned"), "{error}");
    assert_eq!(world.value().await, in_effect(1, "1 day"));
    let view = "CREATE VIEW most AS SELECT device, count(*) AS n FROM pay GROUP BY device";
    assert_eq!(
        reasons(&plan(&world.catalog.state().await.unwrap(), &[STREAM, VIEW, view]), "most"),
        "the catalog has a parameter of that name"
    );
}

/// What an apply was decided on does not hold any more once a parameter is set, or dropped by another apply.
#[tokio::test]
async fn an_apply_is_not_committed_beside_values_that_it_was_not_planned_with() {
    let world = World::new().await;
    world.apply(&[STREAM, VIEW, MOST], false).await.unwrap();
    let decided = async |texts: &[&str]| {
        let state = world.catalog.state().await.unwrap();
        let changes = plan(&state, texts);
        let records = checked_records(&state, &changes, false, 9, &world.functions).await.unwrap();
        commit_of(&state, &changes, records, 9)
    };
    let commit = decided(&[STREAM, VIEW, SINK, MOST]).await;
    world.set("30").await;
    assert_eq!(world.catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Conflict, "a new sink, and a value");
    world.apply(&[STREAM, VIEW, SINK, MOST], false).await.unwrap();

    let commit = decided(&[STREAM, VIEW, SINK, "CREATE PARAMETER most DECIMAL(18,2) = 25"]).await;
    world.set("40").await;
    assert_eq!(world.catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Conflict, "a new type, and a value");
    assert_eq!(world.value().await, in_effect(3, "40"));

    let commit = decided(&[STREAM, VIEW, BUSY, MOST]).await;
    world.apply(&[STREAM, VIEW], true).await.unwrap();
    assert_eq!(world.catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Conflict, "a new alert, and its parameter dropped");

    world.apply(&[STREAM, VIEW, MOST], false).await.unwrap();
    let commit = decided(&[STREAM, VIEW, BUSY, MOST]).await;
    world.apply(&[STREAM, MOST], true).await.unwrap();
    assert_eq!(world.catalog.commit(commit).await.unwrap_err().kind(), ErrorKind::Conflict, "a new alert, and its view dropped");
}
