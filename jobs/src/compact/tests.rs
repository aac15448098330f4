use catalog::{Add, Commit, DefinitionKind, DefinitionRecord};
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;

use super::*;
use crate::installation::Installation;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn each_failure_doubles_the_wait_up_to_an_hour() {
    let waits: Vec<u64> = (0..9).map(|failures| wait(MINUTE, failures).as_secs() / 60).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(wait(MINUTE, u32::MAX), LONGEST_WAIT);
    assert_eq!(wait(24 * LONGEST_WAIT, 3), 24 * LONGEST_WAIT, "rounds that are a day apart stay so");
}

/// In a round in which nothing is due, planning the views takes longest.
#[tokio::test(flavor = "multi_thread")]
async fn views_are_planned_again_only_once_definitions_have_changed() {
    const STREAM: &str = "CREATE STREAM pay (k TEXT, ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts')";
    const VIEW: &str = "CREATE VIEW v AS SELECT k, count(*) AS n FROM pay GROUP BY k";
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(&folder).await;
    let (compacting, mut registry, mut plans) = (installation.compacting(), None, Vec::new());
    for view in [VIEW.to_owned(), VIEW.to_owned(), VIEW.replace("count(*)", "max(ts)")] {
        let records = [(DefinitionKind::Stream, "pay", STREAM), (DefinitionKind::View, "v", &*view)];
        let add = records.map(|(kind, name, sql)| Add::Definition(DefinitionRecord::first(kind, name, sql))).to_vec();
        installation.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        compacting.due(&installation.catalog.state().await.unwrap(), &mut registry).await.unwrap();
        plans.extend(registry.iter().map(|registry| registry.views[0].plan.clone()));
    }
    assert!(Arc::ptr_eq(&plans[0], &plans[1]), "nothing has changed");
    assert!(!Arc::ptr_eq(&plans[1], &plans[2]), "the view has another text");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_that_the_catalog_no_longer_has_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(&folder).await;
    let compacting = installation.compacting();
    compacting.lock_group_starts().insert(Uuid::now_v7());
    compacting.due(&installation.catalog.state().await.unwrap(), &mut None).await.unwrap();
    assert!(compacting.lock_group_starts().is_empty());
}

async fn installation(folder: &tempfile::TempDir) -> Installation {
    let settings = Settings::parse("", &folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}
