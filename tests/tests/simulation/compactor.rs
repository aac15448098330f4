//! Compaction: checkpoints that nobody reads one by one any more become one, following the product's plan, by one
//! process at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use batch::COMPACTION_LEASE;
use catalog::{
    Add, CatalogState, CheckpointRecord, CompactionRules, DefinitionVersions, Remove, compacted, compaction_commit, compactions,
};
use types::Result;
use types::files::{FileKind, FileRecord, ObjectName};
use types::tiles::Micros;
use uuid::Uuid;

use crate::actor::Ctx;
use crate::lease::HeldLease;
use crate::reader::archived;
use crate::sabotage::Sabotage;
use crate::views::reads;
use crate::world::{Content, Fault};

const RULES: CompactionRules = CompactionRules { target_bytes: 40, after: Duration::ZERO };

/// Compacts one group of checkpoints, if any is due and no other process compacts.
pub async fn compact(ctx: &Ctx) -> Result<()> {
    ctx.step("looks what is to be compacted").await;
    let state = seen(ctx, &*ctx.state().await?);
    if compactions(&state, &reads(&state), &RULES, &BTreeSet::new(), ctx.sim.now()).is_empty() {
        return Ok(());
    }
    if ctx.sim.is_sabotaged(Sabotage::CompactionWithoutLease) {
        let outcome = compact_one(ctx, None).await;
        note_ended(ctx);
        return outcome;
    }
    ctx.step("asks for the lease of the compaction").await;
    let Some(mut held) = HeldLease::acquire(ctx, COMPACTION_LEASE, None).await? else { return Ok(()) };
    let outcome = compact_one(ctx, Some(&mut held)).await;
    note_ended(ctx);
    held.release().await?;
    outcome
}

async fn compact_one(ctx: &Ctx, mut held: Option<&mut HeldLease<'_>>) -> Result<()> {
    let state = seen(ctx, &*ctx.state().await?);
    let mut groups = compactions(&state, &reads(&state), &RULES, &BTreeSet::new(), ctx.sim.now());
    if groups.is_empty() {
        return Ok(());
    }
    let group = groups.swap_remove(ctx.sim.pick(groups.len()));
    let ids: Vec<Uuid> = group.iter().map(|checkpoint| checkpoint.id).collect();
    let id = ctx.sim.id();
    note_begun(ctx, &ids, held.as_deref());
    let files = write(ctx, &state, &group, id).await?;
    let Some(record) = compacted(id, &group) else { return Ok(()) };
    let mut commit = compaction_commit(ctx.sim.id(), &state, record, &ids, files);
    if let Some(held) = &mut held {
        held.keep().await?;
        commit.expect.push(held.expect());
    }
    if ctx.sim.is_sabotaged(Sabotage::CompactedFilesGoAtOnce) {
        let old = ids.iter().flat_map(|id| state.files.of_checkpoint(*id)).map(|file| Remove::MarkForDeletion(file.path.clone()));
        commit.remove.extend(old);
        commit.add.iter_mut().for_each(|add| {
            if let Add::Compacted { files, .. } = add {
                *files = 0;
            }
        });
    }
    ctx.commit(commit).await?;
    ctx.sim.fired(Fault::Compacted);
    ctx.sim.trace(&ctx.name, format!("compacted {} checkpoints into {id}", ids.len()));
    Ok(())
}

/// How long a compaction may go on if it renews no lease.
const UNRENEWED_US: Micros = 60_000_000;

/// Checks that no other process compacts the same checkpoints: both would write large files, one of them for nothing.
fn note_begun(ctx: &Ctx, checkpoints: &[Uuid], held: Option<&HeldLease<'_>>) {
    let now = ctx.sim.now();
    let until = held.map_or(now + UNRENEWED_US, |held| held.lease.expires_at);
    let others: Vec<String> = {
        let mut world = ctx.sim.world.borrow_mut();
        let before = checkpoints.iter().filter_map(|id| world.compacting.get(id));
        let others = before.filter(|(by, until)| *by != ctx.name && *until > now).map(|(by, _)| by.to_string()).collect();
        world.compacting.extend(checkpoints.iter().map(|id| (*id, (ctx.name.clone(), until))));
        others
    };
    // One that was held up until its lease had expired comes to nothing.
    if !others.is_empty() && until > now {
        ctx.sim.violated(format!("{} compacts what {} compacts", ctx.name, others.join(", ")));
    }
}

fn note_ended(ctx: &Ctx) {
    ctx.sim.world.borrow_mut().compacting.retain(|_, (by, _)| *by != ctx.name);
}

/// The state that the decision is made on.
fn seen(ctx: &Ctx, state: &CatalogState) -> CatalogState {
    let mut seen = state.clone();
    if ctx.sim.is_sabotaged(Sabotage::CompactionAcrossACut) {
        seen.definitions = DefinitionVersions::default();
        seen.snapshots.clear();
        seen.leases.clear();
        seen.runs.clear();
        seen.files.rewrite(|files| files.retain(|file| file.kind != FileKind::States));
    }
    seen
}

/// Writes the rows of the group's files into one file per stream and kind.
async fn write(ctx: &Ctx, state: &CatalogState, group: &[&CheckpointRecord], checkpoint: Uuid) -> Result<Vec<FileRecord>> {
    let mut rows: BTreeMap<(FileKind, Arc<str>), Content> = BTreeMap::new();
    for file in group.iter().flat_map(|checkpoint| state.files.of_checkpoint(checkpoint.id)) {
        let Some(stream) = file.subject.clone() else { continue };
        let of_file = (file.kind, stream);
        if file.kind == FileKind::DeadLetters {
            rows.insert(of_file, Content::DeadLetters);
            continue;
        }
        ctx.step("reads a file to compact").await;
        let events = archived(ctx, file).await?;
        match rows.entry(of_file).or_insert(Content::Archive(Vec::new())) {
            Content::Archive(all) => all.extend(events),
            _ => unreachable!("an archive file holds events"),
        }
    }
    let mut files = Vec::new();
    for ((kind, stream), content) in rows {
        let name = match kind {
            FileKind::DeadLetters => ObjectName::DeadLetters { stream, checkpoint },
            _ => ObjectName::Archive { stream, checkpoint },
        };
        files.push(ctx.put(name, content).await?);
    }
    Ok(files)
}
