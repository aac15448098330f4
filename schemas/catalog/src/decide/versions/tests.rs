//! Whatever happens to a view's versions, one is served.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MINUTE: Micros = 60_000_000;
const KEEP: Duration = Duration::from_secs(600);

fn view(version: u32, status: DefinitionStatus) -> DefinitionRecord {
    let kept_until = (status == DefinitionStatus::Kept).then_some(10 * MINUTE);
    let (kind, name, sql) = (DefinitionKind::View, "v".into(), String::new());
    // A version is kept from when the next one is served.
    let since = Micros::from(version) + Micros::from(status == DefinitionStatus::Kept);
    DefinitionRecord { kind, name, version, sql, status, created_at: 0, since, kept_until, rolled_back: false }
}

fn state(versions: &[DefinitionStatus]) -> CatalogState {
    let definitions = versions.iter().zip(1..).map(|(status, version)| view(version, *status)).collect();
    CatalogState { definitions, revision: 7, ..CatalogState::default() }
}

fn apply(state: &mut CatalogState, records: Vec<DefinitionRecord>) {
    state.definitions.extend(records);
}

fn statuses(state: &CatalogState) -> Vec<(u32, DefinitionStatus)> {
    let mut found: Vec<_> = state.definitions.iter().map(|record| (record.version, record.status)).collect();
    found.sort_by_key(|(version, _)| *version);
    found
}

use DefinitionStatus::{Active, Building, Kept, Retired};

#[test]
fn a_built_version_is_served_and_the_one_before_is_kept_for_its_time() {
    let mut state = state(&[Active, Building]);
    let records = serve_version(&state, "v", 2, KEEP, MINUTE).unwrap();
    apply(&mut state, records);
    assert_eq!(statuses(&state), [(1, Kept), (2, Active)]);
    assert_eq!(version_before(&state, "v").map(|record| (record.version, record.kept_until)), Some((1, Some(11 * MINUTE))));
    assert_eq!(expired_versions(&state, 11 * MINUTE - 1), []);
    let expired = expired_versions(&state, 11 * MINUTE);
    apply(&mut state, expired);
    assert_eq!(statuses(&state), [(1, Retired), (2, Active)]);
    assert_eq!(version_before(&state, "v"), None);
}

/// The version before was dropped, and an earlier one is still kept.
#[test]
fn a_version_that_was_replaced_earlier_is_not_the_one_before() {
    let mut state = state(&[Active, Building]);
    let records = serve_version(&state, "v", 2, KEEP, MINUTE).unwrap();
    apply(&mut state, records);
    state.definitions.extend([view(3, Building)]);
    let records = serve_version(&state, "v", 3, Duration::ZERO, 2 * MINUTE).unwrap();
    apply(&mut state, records);
    assert_eq!(statuses(&state), [(1, Kept), (2, Retired), (3, Active)]);
    assert_eq!(version_before(&state, "v"), None);
}

#[test]
fn a_version_is_not_kept_where_none_shall_be() {
    let mut state = state(&[Active, Building]);
    let records = serve_version(&state, "v", 2, Duration::ZERO, 0).unwrap();
    apply(&mut state, records);
    assert_eq!(statuses(&state), [(1, Retired), (2, Active)]);
}

#[test]
fn a_rollback_keeps_the_version_that_it_leaves_and_what_is_being_built() {
    let mut state = state(&[Kept, Active, Building]);
    let records = serve_version(&state, "v", 1, KEEP, MINUTE).unwrap();
    apply(&mut state, records);
    assert_eq!(statuses(&state), [(1, Active), (2, Kept), (3, Building)]);
    assert_eq!(version_before(&state, "v").unwrap().version, 2);
}

#[test]
fn a_version_that_is_gone_is_not_served_again() {
    let state = state(&[Retired, Active]);
    assert_eq!(serve_version(&state, "v", 1, KEEP, 0).unwrap_err().kind(), types::ErrorKind::Conflict);
    assert_eq!(serve_version(&state, "v", 3, KEEP, 0).unwrap_err().kind(), types::ErrorKind::Conflict);
    assert_eq!(serve_version(&state, "v", 2, KEEP, 0).unwrap(), [], "it is served already");
}

#[test]
fn a_commit_of_versions_stands_on_the_state_that_it_was_decided_on() {
    let state = state(&[Active, Building]);
    let commit = versions_commit(&state, Uuid::from_u128(1), drop_versions(&state, "v", Some(2), 5));
    assert_eq!(commit.expect, [Expect::Revision(7)]);
    assert_eq!(commit.add, [Add::Definition(DefinitionRecord { since: 5, ..view(2, Retired) })]);
}

#[derive(Debug, Clone)]
enum Act {
    Build,
    Serve(u32),
    RollBack,
    Wait(i64),
    Drop(u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Build),
        (1..6u32).prop_map(Act::Serve),
        Just(Act::RollBack),
        (0..12i64).prop_map(|minutes| Act::Wait(minutes * MINUTE)),
        (1..6u32).prop_map(Act::Drop),
    ]
}

proptest! {
    /// One version is served at any time; kept versions, and they alone, have an end; a rollback returns to the version
    /// that was served before, if its time is not over.
    #[test]
    fn one_version_is_served_whatever_happens(acts in proptest::collection::vec(act(), 0..30), keeps in any::<bool>()) {
        let keep_old = if keeps { KEEP } else { Duration::ZERO };
        let (mut state, mut now) = (state(&[Active]), 0);
        for act in acts {
            let served = state.served_or_building(DefinitionKind::View, "v").unwrap().version;
            match act {
                Act::Build => {
                    let version = state.definitions.len() as u32 + 1;
                    apply(&mut state, vec![view(version, Building)]);
                }
                Act::Serve(version) => {
                    if let Ok(records) = serve_version(&state, "v", version, keep_old, now) {
                        apply(&mut state, records);
                        let before = version_before(&state, "v").map(|record| record.version);
                        prop_assert!(version == served || !keeps || before == Some(served), "{served} was served before {version}: {before:?}");
                    }
                }
                Act::RollBack => {
                    let Some(before) = version_before(&state, "v").map(|record| record.version) else { continue };
                    let records = serve_version(&state, "v", before, keep_old, now).unwrap();
                    apply(&mut state, records);
                    prop_assert_eq!(state.served_or_building(DefinitionKind::View, "v").unwrap().version, before);
                }
                Act::Wait(time) => now += time,
                // The command refuses to drop the served version alone.
                Act::Drop(version) if version != served => {
                    let records = drop_versions(&state, "v", Some(version), now);
                    apply(&mut state, records);
                }
                Act::Drop(_) => {}
            }
            let expired = expired_versions(&state, now);
            apply(&mut state, expired);
            prop_assert_eq!(state.definitions.iter().filter(|record| record.status == Active).count(), 1);
            for record in state.definitions.iter() {
                prop_assert_eq!(record.status == Kept, record.kept_until.is_some_and(|until| until > now));
            }
        }
    }
}
