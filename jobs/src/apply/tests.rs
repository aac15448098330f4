use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use catalog::DefinitionStatus::{Active, Building, Kept, Redecoded, Retired};
use catalog::{
    Add, CheckpointRange, CheckpointRecord, Commit, DefinitionKind, DefinitionStatus, Expect, PartitionRecord, SinkSwitch,
    checkpoint_commit, drop_versions, serve_version, versions_commit,
};
use committed::registry::Registry;
use definitions::parse::parse_definitions;
use definitions::{KEEP_OLD, parse};
use proptest::prelude::*;
use types::ErrorKind;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::checked::refuse_orphans;
use super::commit::commit_of;
use super::inline::self_contained;
use super::*;
use crate::backfill::ReadingView;

mod parameters;

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL) \
    WITH (topic = 'pay', format = 'json', event_time = 'ts', id = 'id', key = 'device')";
const VIEW: &str = "CREATE VIEW velocity WITH (windows = '1h') AS SELECT device, count(*) AS n FROM pay GROUP BY device";

fn definitions(texts: &[&str]) -> Definitions {
    let sources: Vec<(Option<PathBuf>, String)> = texts.iter().map(|text| (None, (*text).to_owned())).collect();
    let (definitions, problems) = parse_definitions(&sources);
    assert!(problems.is_empty(), "{problems}");
    definitions
}

fn plan(state: &CatalogState, texts: &[&str]) -> Changes {
    plan_changes(state, &definitions(texts), &BTreeSet::new())
}

/// Returns the catalog after applying these files.
fn applied(state: &CatalogState, texts: &[&str], prune: bool) -> CatalogState {
    with_records(state, &records_of(state, &plan(state, texts), prune, 7))
}

/// Returns the catalog once a record of the stream is committed.
fn committed(state: &CatalogState) -> CatalogState {
    let mut after = state.clone();
    let id = PartitionId::new("pay", 0);
    let partition = PartitionRecord {
        id: id.clone(),
        next_offset: Offset(1),
        log_identity: String::new(),
        clock: None,
        max_event_time: None,
        complete_to: None,
    };
    after.partitions.insert(id, partition);
    after
}

fn change_kind<'a>(changes: &'a Changes, name: &str) -> &'a ChangeKind {
    &changes.changes.iter().find(|change| &*change.name == name).unwrap().change_kind
}

fn statuses(state: &CatalogState, name: &str) -> Vec<(u32, DefinitionStatus)> {
    let mut found: Vec<_> = state.definitions.iter().filter(|d| &*d.name == name).map(|d| (d.version, d.status)).collect();
    found.sort_by_key(|(version, _)| *version);
    found
}

fn reasons(changes: &Changes, name: &str) -> String {
    match change_kind(changes, name) {
        ChangeKind::Refused { reasons, .. } => reasons.join("; "),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn what_is_new_is_version_1_and_active_at_once() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    assert_eq!(statuses(&state, "pay"), [(1, Active)]);
    assert_eq!(statuses(&state, "velocity"), [(1, Active)]);
    assert!(plan(&state, &[STREAM, VIEW]).is_empty(true), "applying twice changes nothing");
}

#[test]
fn spaces_at_line_ends_and_semicolons_are_no_change() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let spaced = format!("{VIEW}  \n\n;\n");
    assert_eq!(change_kind(&plan(&state, &[STREAM, &spaced]), "velocity"), &ChangeKind::Unchanged { version: 1 });
}

#[test]
fn a_changed_view_is_built_beside_the_served_one() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let second = VIEW.replace("'1h'", "'1h, 7d'");
    let changes = plan(&state, &[STREAM, &second]);
    assert!(
        matches!(change_kind(&changes, "velocity"), ChangeKind::Changed { from: 1, version: 2, built_beside: true, diff } if diff.len() == 2)
    );
    let state = applied(&state, &[STREAM, &second], false);
    assert_eq!(statuses(&state, "velocity"), [(1, Active), (2, Building)]);
    let third = VIEW.replace("'1h'", "'30d'");
    let state = applied(&state, &[STREAM, &third], false);
    assert_eq!(statuses(&state, "velocity"), [(1, Active), (2, Retired), (3, Building)], "one version at a time is built");
}

#[test]
fn files_that_go_back_to_the_served_version_drop_the_one_being_built() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let state = applied(&state, &[STREAM, &VIEW.replace("'1h'", "'7d'")], false);
    assert_eq!(change_kind(&plan(&state, &[STREAM, VIEW]), "velocity"), &ChangeKind::Reverted { version: 1, dropped: 2 });
    assert_eq!(statuses(&applied(&state, &[STREAM, VIEW], false), "velocity"), [(1, Active), (2, Retired)]);
}

/// The text of the one live version with this number.
fn text_of(state: &CatalogState, version: u32) -> String {
    state.definitions.iter().find(|record| &*record.name == "velocity" && record.version == version).unwrap().sql.clone()
}

#[test]
fn options_of_runs_change_in_place() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let hourly = VIEW.replace("'1h'", "'1h', every = '1h', timeout = '10m'");
    let changes = plan(&state, &[STREAM, &hourly]);
    assert!(matches!(change_kind(&changes, "velocity"), ChangeKind::Adjusted { version: 1, diff } if diff.len() == 2), "{changes:?}");
    let records = records_of(&state, &changes, false, 7);
    let commit = commit_of(&state, &changes, records.clone(), 0);
    assert!(commit.expect.contains(&Expect::Revision(state.revision)), "a run may switch to the version: {commit:?}");
    let state = with_records(&state, &records);
    assert_eq!((statuses(&state, "velocity"), text_of(&state, 1)), (vec![(1, Active)], hourly.clone()));
    assert!(plan(&state, &[STREAM, &hourly]).is_empty(true), "applying twice changes nothing");
}

#[test]
fn options_of_a_version_that_is_built_change_in_place_and_so_do_those_of_the_one_that_files_go_back_to() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let weekly = VIEW.replace("'1h'", "'7d'");
    let state = applied(&state, &[STREAM, &weekly], false);
    let weekly_hourly = weekly.replace("'7d'", "'7d', every = '1h'");
    let state = applied(&state, &[STREAM, &weekly_hourly], false);
    assert_eq!(statuses(&state, "velocity"), [(1, Active), (2, Building)]);
    assert_eq!((text_of(&state, 1), text_of(&state, 2)), (VIEW.to_owned(), weekly_hourly));

    let back = VIEW.replace("'1h'", "'1h', every = '5m'");
    assert_eq!(change_kind(&plan(&state, &[STREAM, &back]), "velocity"), &ChangeKind::Reverted { version: 1, dropped: 2 });
    let state = applied(&state, &[STREAM, &back], false);
    assert_eq!((statuses(&state, "velocity"), text_of(&state, 1)), (vec![(1, Active), (2, Retired)], back));
}

/// The catalog after version 2 of the view was built, and version 1 is kept.
fn switched() -> (CatalogState, String) {
    let second = VIEW.replace("'1h'", "'7d'");
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let state = applied(&state, &[STREAM, &second], false);
    let records = serve_version(&state, "velocity", 2, KEEP_OLD, 7).unwrap();
    (with_records(&state, &records), second)
}

#[test]
fn files_that_go_back_to_a_kept_version_return_to_it_at_once() {
    let (state, second) = switched();
    assert_eq!(statuses(&state, "velocity"), [(1, Kept), (2, Active)]);
    assert!(plan(&state, &[STREAM, &second]).is_empty(true));
    assert_eq!(change_kind(&plan(&state, &[STREAM, VIEW]), "velocity"), &ChangeKind::Returned { from: 2, version: 1 });
    let returned = applied(&state, &[STREAM, VIEW], false);
    assert_eq!(statuses(&returned, "velocity"), [(1, Active), (2, Kept)]);
}

#[test]
fn files_go_back_and_forth_between_kept_versions() {
    let (state, second) = switched();
    let back = applied(&state, &[STREAM, VIEW], false);
    assert_eq!(change_kind(&plan(&back, &[STREAM, &second]), "velocity"), &ChangeKind::Returned { from: 1, version: 2 });
}

/// An `apply` of unchanged files, as by a start of `up`, does not undo it: not while the version is kept, and not
/// after.
#[test]
fn a_rollback_stands_until_the_files_change() {
    let (state, second) = switched();
    let mut records = serve_version(&state, "velocity", 1, KEEP_OLD, 8).unwrap();
    records.iter_mut().filter(|record| record.version == 2).for_each(|record| record.rolled_back = true);
    let state = with_records(&state, &records);
    let changes = plan(&state, &[STREAM, &second]);
    assert_eq!(change_kind(&changes, "velocity"), &ChangeKind::RolledBack { version: 1, from: 2, is_kept: true });
    assert!(changes.is_empty(true) && records_of(&state, &changes, true, 9).is_empty());
    let state = with_records(&state, &catalog::expired_versions(&state, Micros::MAX));
    assert_eq!(change_kind(&plan(&state, &[STREAM, &second]), "velocity"), &ChangeKind::RolledBack { version: 1, from: 2, is_kept: false });
    assert_eq!(change_kind(&plan(&state, &[STREAM, VIEW]), "velocity"), &ChangeKind::Unchanged { version: 1 });
    let reader = ReadingView { view: "velocity".into(), version: 1, status: Active, columns: vec!["pay.amount".into()] };
    let mut changes = plan(&state, &[STREAM, &second]);
    rebuilt::rebuild_readers(&state, &mut changes, &[reader], false);
    let rebuilt = with_records(&state, &records_of(&state, &changes, false, 9));
    assert_eq!(statuses(&rebuilt, "velocity"), [(1, Retired), (2, Retired), (3, Active)]);
    assert_eq!(
        change_kind(&plan(&rebuilt, &[STREAM, &second]), "velocity"),
        &ChangeKind::RolledBack { version: 3, from: 2, is_kept: false }
    );
    let third = VIEW.replace("'1h'", "'30d'");
    assert!(matches!(change_kind(&plan(&state, &[STREAM, &third]), "velocity"), ChangeKind::Changed { from: 1, version: 3, .. }));
}

#[test]
fn a_change_of_a_view_leaves_kept_versions_alone() {
    let (state, second) = switched();
    let third = VIEW.replace("'1h'", "'30d'");
    let building = applied(&state, &[STREAM, &third], false);
    assert_eq!(statuses(&building, "velocity"), [(1, Kept), (2, Active), (3, Building)]);
    assert_eq!(change_kind(&plan(&building, &[STREAM, &second]), "velocity"), &ChangeKind::Reverted { version: 2, dropped: 3 });
    assert_eq!(statuses(&applied(&building, &[STREAM, &second], false), "velocity"), [(1, Kept), (2, Active), (3, Retired)]);
    assert_eq!(statuses(&applied(&building, &[STREAM, VIEW], false), "velocity"), [(1, Active), (2, Kept), (3, Retired)]);
    assert_eq!(statuses(&applied(&building, &[STREAM], true), "velocity"), [(1, Retired), (2, Retired), (3, Retired)]);
}

/// States of two decodings of a column are never merged.
#[test]
fn a_version_that_reads_a_column_which_is_decoded_again_is_not_kept() {
    let reader = |version, status| ReadingView { view: "velocity".into(), version, status, columns: vec!["pay.amount".into()] };
    let rebuilt = |state: &CatalogState, texts: &[&str], readers: &[ReadingView]| {
        let mut changes = plan(state, texts);
        rebuilt::rebuild_readers(state, &mut changes, readers, false);
        let after = with_records(state, &records_of(state, &changes, false, 9));
        (statuses(&after, "velocity"), change_kind(&changes, "velocity").clone())
    };
    let (state, second) = switched();
    let (after, change_kind) = rebuilt(&state, &[STREAM, &second], &[reader(1, Kept)]);
    assert_eq!((after, change_kind), (vec![(1, Retired), (2, Active)], ChangeKind::Unchanged { version: 2 }), "the served one goes on");
    let (after, change_kind) = rebuilt(&state, &[STREAM, VIEW], &[reader(1, Kept)]);
    assert_eq!(after, [(1, Retired), (2, Active), (3, Building)], "the files are back at it, and its states are of no use");
    assert!(matches!(change_kind, ChangeKind::Changed { from: 2, version: 3, built_beside: true, .. }));
    let (after, _) = rebuilt(&state, &[STREAM, VIEW], &[reader(2, Active)]);
    assert_eq!(after, [(1, Active), (2, Retired)], "what is left is not kept");
    let (after, _) = rebuilt(&state, &[STREAM, &second], &[reader(1, Kept), reader(2, Active)]);
    assert_eq!(after, [(1, Retired), (2, Retired), (3, Active)]);
}

#[test]
fn a_changed_stream_is_decoded_by_its_new_version_at_once() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let wider = STREAM.replace("device TEXT,", "device TEXT, country TEXT,");
    let state = applied(&state, &[&wider, VIEW], false);
    assert_eq!(statuses(&state, "pay"), [(1, Retired), (2, Active)]);
}

#[test]
fn a_change_of_what_was_decided_is_refused_with_its_reason() {
    let state = committed(&applied(&CatalogState::default(), &[STREAM], false));
    let refused = |from: &str, to: &str| reasons(&plan(&state, &[&STREAM.replace(from, to)]), "pay");
    assert!(refused("topic = 'pay'", "topic = 'other'").contains("topic would change from pay to other"));
    assert!(refused(", key = 'device'", "").contains("key would change from device to none"));
    assert!(refused(" id = 'id',", "").contains("id would change from id to none"));
    assert!(refused("id TEXT NOT NULL", "id UUID NOT NULL").contains("\"id\" is the id, and its type, path or unit would change"));
    assert!(refused("device TEXT", "device BIGINT").contains("\"device\" is the key"));
    assert!(refused("ts TIMESTAMPTZ NOT NULL", "ts TIMESTAMPTZ NOT NULL OPTIONS (path = '$.at')").contains("\"ts\" is the event time"));
    assert!(refused("ts TIMESTAMPTZ NOT NULL", "ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 's')").contains("\"ts\" is the event time"));
    let both = STREAM.replace("device TEXT", "device BIGINT").replace("topic = 'pay'", "topic = 'p'");
    assert!(plan(&state, &[&both]).refusals().unwrap_err().message().contains("another; \"device\""), "one refusal lists every reason");
}

#[test]
fn a_stream_of_which_nothing_is_committed_may_change_in_any_way() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let dropped = applied(&state, &[], true);
    let changes_to = [
        ("topic = 'pay'", "topic = 'other'"),
        (", key = 'device'", ""),
        (" id = 'id',", ""),
        ("id TEXT NOT NULL", "id UUID NOT NULL"),
        ("ts TIMESTAMPTZ NOT NULL", "ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 's')"),
    ];
    for (from, to) in changes_to {
        let changed = STREAM.replace(from, to);
        let changes = plan(&state, &[&changed, VIEW]);
        assert!(matches!(change_kind(&changes, "pay"), ChangeKind::Changed { from: 1, version: 2, .. }), "{changed}");
        assert_eq!(changes.restarted, BTreeMap::from([(Arc::from("pay"), 2)]), "{changed}");
        assert_eq!(change_kind(&plan(&dropped, &[&changed]), "pay"), &ChangeKind::Added { version: 2 }, "its name is free: {changed}");
        for state in [&state, &dropped] {
            let error = plan(&committed(state), &[&changed, VIEW]).refusals().unwrap_err();
            assert!(error.message().contains("with another topic, or with this one once this stream is removed"), "{error}");
        }
    }
    let wider = STREAM.replace("device TEXT,", "device TEXT, country TEXT,");
    assert!(plan(&state, &[&wider, VIEW]).restarted.is_empty(), "its records are decided as before");
}

#[test]
fn an_alert_is_dropped_before_its_stream_begins_anew_in_another_topic() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, ALERT], false);
    let other = STREAM.replace("topic = 'pay'", "topic = 'other'");
    assert!(reasons(&plan(&state, &[&other, VIEW, ALERT]), "pay").contains("the alert \"busy\" may have evaluated offsets of pay"));
    let without_key = STREAM.replace(", key = 'device'", "");
    assert!(matches!(change_kind(&plan(&state, &[&without_key, VIEW, ALERT]), "pay"), ChangeKind::Changed { version: 2, .. }));
    let state = applied(&state, &[STREAM, VIEW], true);
    assert!(matches!(change_kind(&plan(&state, &[&other, VIEW, ALERT]), "pay"), ChangeKind::Changed { version: 2, .. }));
}

#[test]
fn other_columns_may_change_as_they_like() {
    let state = applied(&CatalogState::default(), &[STREAM], false);
    for amount in ["amount DOUBLE", "amount DECIMAL(18,2) OPTIONS (path = '$.sum')", "other TEXT NOT NULL"] {
        let changed = STREAM.replace("amount DECIMAL(18,2) NOT NULL", amount);
        assert!(matches!(change_kind(&plan(&state, &[&changed]), "pay"), ChangeKind::Changed { version: 2, .. }), "{amount}");
    }
}

#[test]
fn what_the_files_no_longer_define_stays_unless_pruned() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let changes = plan(&state, &[STREAM]);
    assert_eq!(change_kind(&changes, "velocity"), &ChangeKind::Missing { version: 1 });
    assert!(changes.is_empty(false) && !changes.is_empty(true));
    assert_eq!(statuses(&applied(&state, &[STREAM], false), "velocity"), [(1, Active)]);
    let pruned = applied(&state, &[STREAM], true);
    assert_eq!(statuses(&pruned, "velocity"), [(1, Retired)]);
    assert_eq!(
        change_kind(&plan(&pruned, &[STREAM, VIEW]), "velocity"),
        &ChangeKind::Added { version: 2 },
        "versions are never used again"
    );
}

#[test]
fn a_stream_that_a_live_view_reads_is_not_pruned() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let other = STREAM.replace("pay", "other");
    let changes = plan(&state, &[&other, &VIEW.replace("FROM pay", "FROM other")]);
    let records = records_of(&state, &changes, true, 7);
    let error = refuse_orphans(&with_records(&state, &records), &records).unwrap_err();
    assert!(error.message().contains("the view \"velocity\" reads it"), "version 1 is served until version 2 is built: {error}");
    let records = records_of(&state, &plan(&state, &[]), true, 7);
    refuse_orphans(&with_records(&state, &records), &records).unwrap();
}

#[test]
fn names_and_topics_of_what_is_live_are_taken() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW], false);
    let renamed = STREAM.replace("STREAM pay", "STREAM payments");
    assert!(reasons(&plan(&state, &[&renamed]), "payments").contains("belongs to the stream \"pay\""));
    let as_stream = STREAM.replace("STREAM pay", "STREAM velocity").replace("topic = 'pay'", "topic = 'v'");
    assert!(reasons(&plan(&state, &[&as_stream]), "velocity").contains("has a view of that name"));
}

#[test]
fn a_changed_staging_view_changes_the_views_that_build_on_it() {
    let staging = "CREATE VIEW big AS SELECT device, ts FROM pay WHERE amount > 100";
    let view = "CREATE VIEW bigs WITH (windows = '1h') AS SELECT device, count(*) AS n FROM big GROUP BY device";
    let files = definitions(&[STREAM, staging, view]);
    let names: BTreeSet<Arc<str>> = [Arc::from("big")].into();
    let changes = plan_changes(&CatalogState::default(), &files, &names);
    let state = with_records(&CatalogState::default(), &records_of(&CatalogState::default(), &changes, false, 7));
    let stored = &state.served_or_building(DefinitionKind::View, "bigs").unwrap().sql;
    assert!(stored.contains("WITH big AS (\nSELECT device, ts FROM pay WHERE amount > 100\n)"), "{stored}");
    let changed = definitions(&[STREAM, &staging.replace("100", "200"), view]);
    let changes = plan_changes(&state, &changed, &names);
    assert!(matches!(change_kind(&changes, "big"), ChangeKind::Changed { built_beside: false, .. }));
    assert!(matches!(change_kind(&changes, "bigs"), ChangeKind::Changed { built_beside: true, .. }));
}

#[test]
fn inlined_views_come_deepest_first_and_join_the_with_that_is_there() {
    let files = definitions(&[
        STREAM,
        "CREATE VIEW a AS SELECT device, ts, amount FROM pay",
        "CREATE VIEW b AS SELECT * FROM a WHERE amount > 1 -- a comment",
        "CREATE VIEW c AS\nWITH own AS (SELECT * FROM b) SELECT device, count(*) AS n FROM own GROUP BY device",
    ]);
    let text = self_contained(&files.views[2], &files);
    let (a, b, own) = (text.find("a AS (").unwrap(), text.find("b AS (").unwrap(), text.find("own AS (").unwrap());
    assert!(a < b && b < own, "{text}");
    assert_eq!(text.matches("WITH").count(), 1, "{text}");
    parse::parse_view(&text).unwrap();
}

#[tokio::test]
async fn a_stored_view_plans_without_the_views_it_was_made_of() {
    let files = definitions(&[
        STREAM,
        "CREATE VIEW a AS SELECT device, ts, amount FROM pay",
        "CREATE VIEW b AS SELECT * FROM a WHERE amount > 1",
        "CREATE VIEW c WITH (windows = '1h') AS SELECT device, count(*) AS n FROM b GROUP BY device",
    ]);
    let names: BTreeSet<Arc<str>> = ["a", "b"].map(Arc::from).into();
    let state = CatalogState::default();
    let state = with_records(&state, &records_of(&state, &plan_changes(&state, &files, &names), false, 7));
    let mut alone = state.clone();
    alone.definitions.rewrite(|records| records.retain(|record| matches!(&*record.name, "pay" | "c")));
    let registry = Registry::load(&alone, &Functions::standard()).await.unwrap();
    assert_eq!(registry.views.len(), 1);
    assert_eq!(Registry::load(&state, &Functions::standard()).await.unwrap().views.len(), 1);
}

async fn services(folder: &tempfile::TempDir) -> (Catalog, ObjectStorage, Arc<dyn Log>) {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let log = event_log::open(&format!("file://{}", folder.path().display()), &Default::default()).await.unwrap();
    (catalog, ObjectStorage::open("memory:///").unwrap(), log)
}

fn target_of<'a>(catalog: &'a Catalog, storage: &'a ObjectStorage, log: &'a dyn Log, functions: &'a Functions) -> ApplyTarget<'a> {
    ApplyTarget { catalog, storage, log, partitions: 2, functions, progress: &|_| {} }
}

async fn apply_files(target: &ApplyTarget<'_>, files: &Definitions, prune: bool, now: Micros) -> Result<Changes> {
    let wanted = Wanted::Definitions { definitions: files, staging: &BTreeSet::new() };
    apply(target, wanted, ApplyOptions { prune, ..ApplyOptions::default() }, now).await
}

#[tokio::test]
async fn a_column_that_a_served_view_reads_does_not_go() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let sum = VIEW.replace("count(*) AS n", "sum(amount) AS n");
    apply_files(&target, &definitions(&[STREAM, &sum]), false, 1).await.unwrap();
    let narrower = STREAM.replace(", amount DECIMAL(18,2) NOT NULL", "");
    let error = apply_files(&target, &definitions(&[&narrower, VIEW]), false, 2).await.unwrap_err();
    assert!(error.message().contains("could no longer be planned"), "{error}");
    assert_eq!(log.bounds("pay").await.unwrap().len(), 2, "the topic was made");
}

#[tokio::test]
async fn a_column_that_only_a_kept_version_reads_goes_once_that_version_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let sum = VIEW.replace("count(*) AS n", "sum(amount) AS n");
    apply_files(&target, &definitions(&[STREAM, &sum]), false, 1).await.unwrap();
    apply_files(&target, &definitions(&[STREAM, VIEW]), false, 2).await.unwrap();
    let state = catalog.state().await.unwrap();
    let switched = serve_version(&state, "velocity", 2, KEEP_OLD, 3).unwrap();
    catalog.commit(versions_commit(&state, Uuid::now_v7(), switched)).await.unwrap();
    let narrower = definitions(&[&STREAM.replace(", amount DECIMAL(18,2) NOT NULL", ""), VIEW]);
    let error = apply_files(&target, &narrower, false, 4).await.unwrap_err();
    let named = "version 1 of the view \"velocity\", which is kept, could no longer be planned: ";
    assert!(error.message().starts_with(named), "{error}");
    assert_eq!(error.fact("help"), Some("`basestream view drop velocity@1` drops this version"));
    let state = catalog.state().await.unwrap();
    let dropped = drop_versions(&state, "velocity", Some(1), 5);
    catalog.commit(versions_commit(&state, Uuid::now_v7(), dropped)).await.unwrap();
    apply_files(&target, &narrower, false, 6).await.unwrap();
}

#[tokio::test]
async fn a_retention_that_is_too_short_for_a_view_in_the_catalog_alone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let kept = |retention: &str| STREAM.replace("key = 'device'", &format!("key = 'device', retention = '{retention}'"));
    let week = VIEW.replace("'1h'", "'7d'");
    apply_files(&target, &definitions(&[&kept("30d"), &week]), false, 1).await.unwrap();

    let error = apply_files(&target, &definitions(&[&kept("1d")]), false, 2).await.unwrap_err();
    let reported = "view \"velocity\" (version 1): the stream \"pay\" keeps events for 1d, and the view counts them for 7d 1h (its";
    assert!(error.kind() == ErrorKind::Input && error.message().starts_with(reported), "{error}");
    assert_eq!(statuses(&catalog.state().await.unwrap(), "pay"), [(1, Active)], "nothing is changed");
    let state = catalog.state().await.unwrap();
    let planned = checked_records(&state, &plan(&state, &[&kept("1d")]), false, 2, &functions).await.unwrap_err();
    assert_eq!(planned.message(), error.message(), "`plan` says the same");

    // The version before is served until the shorter one has a snapshot; until then nothing is deleted.
    apply_files(&target, &definitions(&[&kept("1d"), VIEW]), false, 3).await.unwrap();
    assert_eq!(statuses(&catalog.state().await.unwrap(), "velocity"), [(1, Active), (2, Building)]);
    apply_files(&target, &definitions(&[&kept("2h")]), true, 4).await.unwrap();
}

#[tokio::test]
async fn two_applies_at_the_same_time_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let files = definitions(&[STREAM, VIEW]);
    let (a, b) = tokio::join!(apply_files(&target, &files, false, 1), apply_files(&target, &files, false, 1));
    a.unwrap();
    b.unwrap();
    let state = catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "pay"), [(1, Active)]);
    assert_eq!(statuses(&state, "velocity"), [(1, Active)]);
}

/// The first checkpoint of the stream, by a worker that decodes by this version of it.
fn first_checkpoint(version: u32) -> Commit {
    let range = CheckpointRange::of_events(PartitionId::new("pay", 0), 0, 1);
    let record = CheckpointRecord::new(Uuid::now_v7(), "worker", 1, vec![range]);
    let mut commit = checkpoint_commit(record, Vec::new(), &BTreeMap::new());
    commit.expect.push(Expect::NotRedecoded { stream: "pay".into(), version });
    commit
}

#[tokio::test]
async fn a_worker_of_the_version_before_commits_nothing_of_a_stream_that_began_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let other = STREAM.replace("topic = 'pay'", "topic = 'other'");
    apply_files(&target, &definitions(&[STREAM, VIEW]), false, 1).await.unwrap();
    apply_files(&target, &definitions(&[&other, VIEW]), false, 2).await.unwrap();
    let state = catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "pay"), [(1, Redecoded), (2, Active)]);
    assert_eq!(statuses(&state, "velocity"), [(1, Retired), (2, Active)], "fresh states of the topic before are of version 1");
    assert_eq!(catalog.commit(first_checkpoint(1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    catalog.commit(first_checkpoint(2)).await.unwrap();
    let error = apply_files(&target, &definitions(&[STREAM, VIEW]), false, 3).await.unwrap_err();
    assert!(error.message().contains("topic would change from other to pay"), "{error}");
}

#[tokio::test]
async fn the_name_and_the_topic_of_a_dropped_stream_are_free_unless_it_has_records() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    apply_files(&target, &definitions(&[STREAM]), false, 1).await.unwrap();
    apply_files(&target, &definitions(&[]), true, 2).await.unwrap();
    let renamed = STREAM.replace("STREAM pay", "STREAM payments");
    let other = STREAM.replace("topic = 'pay'", "topic = 'other'");
    apply_files(&target, &definitions(&[&renamed, &other]), false, 3).await.unwrap();
    let state = catalog.state().await.unwrap();
    assert_eq!((statuses(&state, "pay"), statuses(&state, "payments")), (vec![(1, Redecoded), (2, Active)], vec![(1, Active)]));
    assert_eq!(catalog.commit(first_checkpoint(1)).await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_topic_that_was_read_and_is_gone_is_not_created_anew() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    apply_files(&target_of(&catalog, &storage, &*log, &functions), &definitions(&[STREAM]), false, 1).await.unwrap();
    catalog.commit(first_checkpoint(1)).await.unwrap();
    let (_, _, without_topics) = services(&other).await;
    let target = target_of(&catalog, &storage, &*without_topics, &functions);
    let error = apply_files(&target, &definitions(&[STREAM, VIEW]), false, 2).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Input && error.to_string().contains("the topic is gone"), "{error}");
    assert!(without_topics.bounds("pay").await.unwrap().is_empty(), "it was created");
    // The stream is given up, and another one begins in its place.
    let renamed = STREAM.replace("STREAM pay", "STREAM payments");
    apply_files(&target, &definitions(&[]), true, 3).await.unwrap();
    apply_files(&target, &definitions(&[&renamed]), false, 4).await.unwrap();
    assert_eq!(without_topics.bounds("pay").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_log_that_does_not_answer_is_reported_with_the_setting_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, _) = services(&folder).await;
    let away = event_log::open("kafka://127.0.0.1:9", &Default::default()).await.unwrap();
    let functions = Functions::standard();
    let error = apply_files(&target_of(&catalog, &storage, &*away, &functions), &definitions(&[STREAM]), false, 1).await.unwrap_err();
    assert_eq!((error.kind(), error.fact("setting")), (ErrorKind::Unavailable, Some("log.url")), "{error}");
}

/// A log on which something is committed to the catalog whenever a topic is created: between the state that an apply
/// plans on and its commit.
#[derive(Debug)]
struct Busy {
    log: Arc<dyn Log>,
    catalog: Catalog,
    /// What is committed, the last one first; then commits that change nothing.
    commits: Mutex<Vec<Commit>>,
}

#[async_trait::async_trait]
impl Log for Busy {
    async fn create_topic(&self, topic: &str, partitions: u32) -> Result<u32> {
        let commit = self.commits.lock().unwrap().pop().unwrap_or_default();
        self.catalog.commit(commit).await?;
        self.log.create_topic(topic, partitions).await
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<event_log::PartitionBounds>> {
        self.log.bounds(topic).await
    }

    async fn identity(&self, topic: &str) -> Result<String> {
        self.log.identity(topic).await
    }

    async fn append(&self, topic: &str, records: Vec<event_log::NewRecord>) -> Result<Vec<(i32, Offset)>> {
        self.log.append(topic, records).await
    }

    async fn read(&self, source: &event_log::TopicPartition, from: Offset, max_records: usize) -> Result<event_log::Fetched> {
        self.log.read(source, from, max_records).await
    }

    async fn subscribe(&self, subscription: event_log::Subscription) -> Result<event_log::Consumer> {
        self.log.subscribe(subscription).await
    }
}

#[tokio::test]
async fn definitions_are_applied_however_often_others_commit() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let log = Busy { log, catalog: catalog.clone(), commits: Mutex::default() };
    let target = target_of(&catalog, &storage, &log, &functions);
    for windows in ["'1h'", "'2h'", "'3h'"] {
        let files = definitions(&[STREAM, &VIEW.replace("'1h'", windows)]);
        apply_files(&target, &files, false, 1).await.unwrap();
    }
    let state = catalog.state().await.unwrap();
    assert_eq!(statuses(&state, "velocity"), [(1, Active), (2, Retired), (3, Building)], "version 2 was retired by a commit like this");
}

#[tokio::test]
async fn a_stream_begins_anew_unless_its_first_records_are_committed_before() {
    let other = STREAM.replace("topic = 'pay'", "topic = 'other'");
    // From the fourth attempt on, commits of others may come in between.
    for (first_at, is_first) in [(0, true), (3, true), (0, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, storage, log) = services(&folder).await;
        let functions = Functions::standard();
        apply_files(&target_of(&catalog, &storage, &*log, &functions), &definitions(&[STREAM]), false, 1).await.unwrap();
        let mut commits: Vec<Commit> = is_first.then(|| first_checkpoint(1)).into_iter().collect();
        commits.resize(commits.len() + first_at, Commit::default());
        let log = Busy { log, catalog: catalog.clone(), commits: Mutex::new(commits) };
        let target = target_of(&catalog, &storage, &log, &functions);
        let outcome = apply_files(&target, &definitions(&[&other]), false, 2).await;
        let state = catalog.state().await.unwrap();
        if is_first {
            assert!(outcome.unwrap_err().message().contains("topic would change from pay to other"), "at attempt {first_at}");
            assert_eq!((statuses(&state, "pay"), state.has_committed("pay")), (vec![(1, Active)], true));
        } else {
            outcome.unwrap();
            assert_eq!((statuses(&state, "pay"), state.has_committed("pay")), (vec![(1, Redecoded), (2, Active)], false));
        }
    }
}

#[tokio::test]
async fn a_stream_begins_anew_in_its_topic_unless_a_sink_has_decided_events_of_it() {
    let without_key = STREAM.replace(", key = 'device'", "");
    let other = STREAM.replace("topic = 'pay'", "topic = 'other'");
    let switch = SinkSwitch {
        sink: "alarms".into(),
        partition: PartitionId::new("pay", 0),
        log_identity: "log".into(),
        from: Offset(0),
        version: 1,
        paused: false,
        at: 0,
    };
    // From the fourth attempt on, commits of others may come in between.
    for first_at in [0, 3] {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, storage, log) = services(&folder).await;
        let functions = Functions::standard();
        apply_files(&target_of(&catalog, &storage, &*log, &functions), &definitions(&[STREAM]), false, 1).await.unwrap();
        let mut commits = vec![Commit { id: Uuid::now_v7(), add: vec![Add::SinkSwitch(switch.clone())], ..Commit::default() }];
        commits.resize(1 + first_at, Commit::default());
        let log = Busy { log, catalog: catalog.clone(), commits: Mutex::new(commits) };
        let target = target_of(&catalog, &storage, &log, &functions);
        let error = apply_files(&target, &definitions(&[&without_key]), false, 2).await.unwrap_err();
        assert!(error.message().contains("the sink \"alarms\" has decided events of it"), "at attempt {first_at}: {error}");
        assert_eq!(statuses(&catalog.state().await.unwrap(), "pay"), [(1, Active)]);
        apply_files(&target, &definitions(&[&other]), false, 3).await.unwrap();
        let error = apply_files(&target, &definitions(&[STREAM]), false, 4).await.unwrap_err();
        assert!(error.message().contains("the sink \"alarms\" has decided events of it"), "it is the first topic again: {error}");
    }
}

proptest! {
    #[test]
    fn a_diff_holds_both_texts(old in "[abc\n]{0,24}", new in "[abc\n]{0,24}") {
        let diff = line_diff(&old, &new);
        let side = |keep: fn(&DiffLine) -> Option<&String>| diff.iter().filter_map(keep).cloned().collect::<Vec<_>>();
        let before = side(|line| match line { DiffLine::Same(text) | DiffLine::Removed(text) => Some(text), DiffLine::Added(_) => None });
        let after = side(|line| match line { DiffLine::Same(text) | DiffLine::Added(text) => Some(text), DiffLine::Removed(_) => None });
        prop_assert_eq!(before, old.lines().map(str::to_owned).collect::<Vec<_>>());
        prop_assert_eq!(after, new.lines().map(str::to_owned).collect::<Vec<_>>());
    }
}

const ALERT: &str = "CREATE ALERT busy WITH (topic = 'alerts') AS SELECT device FROM velocity WHERE n_1h >= 10";

#[test]
fn a_changed_alert_takes_effect_at_once_and_its_name_is_taken() {
    let state = applied(&CatalogState::default(), &[STREAM, VIEW, ALERT], false);
    assert_eq!(statuses(&state, "busy"), [(1, Active)]);
    assert!(plan(&state, &[STREAM, VIEW, ALERT]).is_empty(true), "applying twice changes nothing");
    let state = applied(&state, &[STREAM, VIEW, &ALERT.replace("10", "20")], false);
    assert_eq!(statuses(&state, "busy"), [(1, Retired), (2, Active)]);
    let sink = "CREATE SINK busy WITH (topic = 'scored') AS SELECT p.device FROM pay p";
    assert_eq!(reasons(&plan(&state, &[STREAM, VIEW, sink]), "busy"), "the catalog has an alert of that name");
    let state = applied(&state, &[STREAM, VIEW], true);
    assert_eq!(statuses(&state, "busy"), [(1, Retired), (2, Retired)]);
}

#[tokio::test]
async fn a_view_does_not_lose_what_a_live_alert_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    apply_files(&target, &definitions(&[STREAM, VIEW, ALERT]), false, 1).await.unwrap();
    assert!(!log.bounds("alerts").await.unwrap().is_empty(), "the topic is created");
    let without = definitions(&[STREAM, &VIEW.replace("AS n", "AS m")]);
    let error = apply_files(&target, &without, false, 2).await.unwrap_err();
    assert!(error.to_string().contains("the alert \"busy\" could no longer be planned"), "{error}");
    // The version with the alert's new column is built first.
    let both = definitions(&[STREAM, &VIEW.replace("AS n", "AS m"), &ALERT.replace("n_1h", "m_1h")]);
    let error = apply_files(&target, &both, false, 2).await.unwrap_err();
    assert!(error.to_string().contains("the alert \"busy\" needs version 2 of the view \"velocity\""), "{error}");
    // The view goes with the alert.
    apply_files(&target, &definitions(&[STREAM]), true, 3).await.unwrap();
}

#[tokio::test]
async fn what_breaks_an_alert_is_reported_with_its_place_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, storage, log) = services(&folder).await;
    let functions = Functions::standard();
    let target = target_of(&catalog, &storage, &*log, &functions);
    let files = |view: &str| {
        let alert = format!("-- Who is busy.\n\n{ALERT}");
        let file = Some(PathBuf::from("alerts/busy.sql"));
        let sources = [(None, STREAM.to_owned()), (None, view.to_owned()), (file, alert)];
        let (definitions, problems) = parse_definitions(&sources);
        assert!(problems.is_empty(), "{problems}");
        definitions
    };
    apply_files(&target, &files(VIEW), false, 1).await.unwrap();
    let error = apply_files(&target, &files(&VIEW.replace("AS n", "AS m")), false, 2).await.unwrap_err();
    assert!(error.message().starts_with("the alert \"busy\" could no longer be planned"), "{error}");
    assert!(error.message().contains(": alerts/busy.sql:3:"), "{error}");
}
