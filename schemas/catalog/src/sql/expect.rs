//! Checks what a commit expects against the database. A failed check is a conflict that names expected and found
//! values.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::session::Session;
use super::{alert, checkpoint, definition, file, lease, meta, parameter, partition, run, sink_switch, snapshot, token};
use crate::decide::cut_conflict;
use crate::{DefinitionKind, DefinitionStatus, Expect, LeaseRecord, LiveVersion, Revision, RunStatus};
use types::files::ObjectName;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

/// Checks one expectation in the transaction that took `revision`.
pub(super) async fn check(session: &mut Session, expect: &Expect, revision: Revision) -> Result<()> {
    match expect {
        Expect::NextOffset { partition, offset } => next_offset(session, partition, *offset).await,
        Expect::LogIdentity { partition, identity } => log_identity(session, partition, identity).await,
        Expect::Lease { name, owner, epoch, now } => lease_held(session, name, owner, *epoch, *now).await,
        Expect::LeaseFree { name, owner, now } => lease_free(session, name, owner, *now).await,
        Expect::CutNotBehind { view, version, cut } => cut_not_behind(session, view, *version, cut).await,
        Expect::NewestVersion { kind, name, version } => newest_version(session, *kind, name, *version).await,
        Expect::Live(expected) => live(session, expected).await,
        Expect::ParameterVersions(expected) => parameter_versions(session, expected).await,
        Expect::NotRedecoded { stream, version } => not_redecoded(session, stream, *version).await,
        Expect::NotMarkedForDeletion { paths } => not_marked_for_deletion(session, paths).await,
        Expect::Running { run } => running(session, *run).await,
        Expect::Named { paths } => named(session, paths).await,
        Expect::HasCheckpoint(id) => has_checkpoint(session, *id).await,
        Expect::TokenFree { name } => token_free(session, name).await,
        Expect::TokenInUse { name } => token_in_use(session, name).await,
        Expect::AlertSequence { alert, version, next } => alert_sequence(session, alert, *version, *next).await,
        Expect::SinkClaims(claims) => sink_switch::check_claims(session, claims).await,
        Expect::NotSwitched { stream } => not_switched(session, stream).await,
        Expect::Revision(expected) => same_revision(*expected, revision - 1),
    }
}

async fn next_offset(session: &mut Session, id: &PartitionId, expected: Offset) -> Result<()> {
    let found = partition::get(session, id).await?.map_or(Offset::ZERO, |partition| partition.next_offset);
    if found == expected { Ok(()) } else { Err(partition::position_conflict(id, expected, found)) }
}

/// A log or partition without an identity matches every other.
async fn log_identity(session: &mut Session, id: &PartitionId, expected: &str) -> Result<()> {
    match partition::get(session, id).await? {
        Some(found) if !expected.is_empty() && !found.log_identity.is_empty() && found.log_identity != expected => {
            Err(partition::identity_conflict(id, expected, &found.log_identity))
        }
        _ => Ok(()),
    }
}

async fn lease_held(session: &mut Session, name: &str, owner: &str, epoch: i64, now: Micros) -> Result<()> {
    let expected = format!("{owner} at epoch {epoch}, not expired at {now}");
    match lease::get(session, name).await? {
        Some(found) if found.owner == owner && found.epoch == epoch && found.expires_at > now => Ok(()),
        Some(found) => Err(lease_conflict("the lease is lost", name, &expected, &holder(&found))),
        None => Err(lease_conflict("the lease is lost", name, &expected, "nobody")),
    }
}

async fn lease_free(session: &mut Session, name: &str, owner: &str, now: Micros) -> Result<()> {
    match lease::get(session, name).await? {
        Some(found) if found.owner != owner && found.expires_at > now => {
            let expected = format!("no owner but {owner} at {now}");
            Err(lease_conflict("the lease is held by another", name, &expected, &holder(&found)))
        }
        _ => Ok(()),
    }
}

async fn cut_not_behind(session: &mut Session, view: &Arc<str>, version: u32, cut: &Vector) -> Result<()> {
    let Some(published) = snapshot::get(session, view, version).await? else { return Ok(()) };
    match cut.behind(&published.cut) {
        Some(behind) => Err(cut_conflict(view, version, &behind)),
        None => Ok(()),
    }
}

async fn newest_version(session: &mut Session, kind: DefinitionKind, name: &Arc<str>, expected: Option<u32>) -> Result<()> {
    let found = definition::newest_version(session, kind, name).await?;
    if found == expected {
        return Ok(());
    }
    let text = |version: Option<u32>| version.map_or("none".to_owned(), |version| version.to_string());
    Err(Error::conflict("the definition's newest version is not the expected one")
        .with(kind.word(), name)
        .with("expected version", text(expected))
        .with("found version", text(found)))
}

async fn live(session: &mut Session, expected: &[LiveVersion]) -> Result<()> {
    let found = definition::live(session).await?;
    let (is_expected, is_found): (HashSet<_>, HashSet<_>) = (expected.iter().collect(), found.iter().collect());
    let Some(other) = is_expected.symmetric_difference(&is_found).next() else { return Ok(()) };
    Err(Error::conflict("definitions were changed meanwhile").with(other.kind.word(), format!("{}@{}", other.name, other.version)))
}

async fn parameter_versions(session: &mut Session, expected: &[(Arc<str>, u32)]) -> Result<()> {
    for (parameter, version) in expected {
        let found = parameter::version_in_effect(session, parameter).await?;
        if found != Some(*version) {
            return Err(Error::conflict("the parameter was set or dropped meanwhile")
                .with("parameter", parameter)
                .with("expected version", version)
                .with("found version", found.map_or_else(|| "none".to_owned(), |found| found.to_string())));
        }
    }
    Ok(())
}

async fn not_redecoded(session: &mut Session, stream: &Arc<str>, version: u32) -> Result<()> {
    match definition::status(session, DefinitionKind::Stream, stream, version).await? {
        Some(DefinitionStatus::Redecoded) => {
            Err(Error::conflict("a later version of the stream decides its records").with("stream", stream).with("version", version))
        }
        _ => Ok(()),
    }
}

async fn not_marked_for_deletion(session: &mut Session, paths: &[String]) -> Result<()> {
    if let Some(path) = file::first_marked_for_deletion(session, paths).await? {
        return Err(file::marked_for_deletion_conflict(path));
    }
    let before = meta::orphaned_before(session).await?;
    let made = |path: &str| path.parse().ok().and_then(|name: ObjectName| name.made_at());
    match paths.iter().find_map(|path| made(path).filter(|made| *made < before).map(|made| (path, made))) {
        Some((path, made)) => Err(Error::conflict("the file was written so long ago that the collector may have deleted it")
            .with("path", path)
            .with("made_at", made)
            .with("given up before", before)),
        None => Ok(()),
    }
}

async fn alert_sequence(session: &mut Session, alert: &str, version: u32, expected: i64) -> Result<()> {
    let found = alert::next_seq(session, alert, version).await?;
    if found == expected { Ok(()) } else { Err(alert::sequence_conflict(alert, &found.to_string(), &expected.to_string())) }
}

async fn running(session: &mut Session, id: Uuid) -> Result<()> {
    let found = run::status(session, id).await?;
    if found == Some(RunStatus::Running) {
        return Ok(());
    }
    let found = found.map_or("no run".to_owned(), |status| format!("{status:?}"));
    Err(Error::conflict("the run is no longer running").with("run", id).with("expected", "Running").with("found", found))
}

async fn named(session: &mut Session, paths: &[String]) -> Result<()> {
    if file::count_named(session, paths).await? == paths.len() {
        return Ok(());
    }
    for path in paths {
        if !file::is_named(session, path).await? {
            return Err(
                Error::conflict("the catalog no longer references the file: another process replaced or collected it").with("path", path)
            );
        }
    }
    Ok(())
}

async fn has_checkpoint(session: &mut Session, id: Uuid) -> Result<()> {
    match checkpoint::exists(session, id).await? {
        true => Ok(()),
        false => Err(Error::conflict("the checkpoint is not in the catalog, or no longer").with("checkpoint", id)),
    }
}

async fn token_free(session: &mut Session, name: &str) -> Result<()> {
    match token::is_in_use(session, name).await? {
        Some(true) => Err(Error::conflict("there is a token of this name already").with("token", name)),
        _ => Ok(()),
    }
}

async fn token_in_use(session: &mut Session, name: &str) -> Result<()> {
    match token::is_in_use(session, name).await? {
        Some(true) => Ok(()),
        Some(false) => Err(Error::conflict("the token is revoked already").with("token", name)),
        None => Err(Error::not_found("there is no token of this name").with("token", name)),
    }
}

async fn not_switched(session: &mut Session, stream: &Arc<str>) -> Result<()> {
    match sink_switch::first_sink(session, stream).await? {
        Some(sink) => Err(Error::conflict("a sink has decided events of the stream").with("stream", stream).with("sink", sink)),
        None => Ok(()),
    }
}

fn same_revision(expected: Revision, found: Revision) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::conflict("the catalog changed since it was read").with("expected revision", expected).with("found revision", found))
}

fn holder(lease: &LeaseRecord) -> String {
    format!("{} at epoch {}, expires at {}", lease.owner, lease.epoch, lease.expires_at)
}

fn lease_conflict(message: &str, name: &str, expected: &str, found: &str) -> Error {
    Error::conflict(message).with("lease", name).with("expected holder", expected).with("found holder", found)
}
