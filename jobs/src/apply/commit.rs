//! Turns changes into one commit, which expects that what they are based on has not changed meanwhile.

use access::local_user;
use catalog::{Add, CatalogState, Commit, DefinitionRecord, Expect, PauseRecord, Remove};
use types::tiles::Micros;
use uuid::Uuid;

use super::changes::{ChangeKind, Changes};
use super::records::values_of;

/// Turns the changes into one commit.
pub(super) fn commit_of(state: &CatalogState, changes: &Changes, records: Vec<DefinitionRecord>, now: Micros) -> Commit {
    let mut expect: Vec<Expect> = changes
        .changes
        .iter()
        .filter(|change| !matches!(change.change_kind, ChangeKind::Unchanged { .. } | ChangeKind::RolledBack { .. }))
        .map(|change| Expect::NewestVersion { kind: change.kind, name: change.name.clone(), version: change.newest })
        .collect();
    let is_known = |record: &DefinitionRecord| state.definitions.get(record.kind, &record.name, record.version).is_some();
    if records.iter().any(is_known) {
        // A version is retired or kept: no other transaction may have started to depend on it meanwhile. Or it is
        // adjusted: a run may have switched to it.
        expect.push(Expect::Revision(state.revision));
    } else if !records.is_empty() {
        // What is new was planned over these definitions: none may be changed or dropped meanwhile.
        expect.push(Expect::Live(state.live_versions()));
    }
    // What stays and what is new was planned with these values: none may be set or dropped meanwhile.
    let parameters = state.parameter_versions();
    expect.extend((!parameters.is_empty()).then_some(Expect::ParameterVersions(parameters)));
    let remove = ended_pauses(state, &records);
    let values = values_of(changes, local_user(), now).into_iter().map(Add::Parameter);
    let add = records.into_iter().map(Add::Definition).chain(values).collect();
    Commit { id: Uuid::now_v7(), expect, add, remove, ..Commit::default() }
}

/// A sink or an alert that is dropped is not paused when it is defined again.
fn ended_pauses(state: &CatalogState, records: &[DefinitionRecord]) -> Vec<Remove> {
    let is_of = |record: &&DefinitionRecord, pause: &PauseRecord| record.kind == pause.kind && record.name == pause.name;
    let is_dropped = |pause: &&PauseRecord| {
        let mut of_it = records.iter().filter(|record| is_of(record, pause)).peekable();
        of_it.peek().is_some() && !of_it.any(|record| record.status.is_live())
    };
    state.pauses.iter().filter(is_dropped).map(|pause| Remove::Pause { kind: pause.kind, name: pause.name.clone() }).collect()
}
