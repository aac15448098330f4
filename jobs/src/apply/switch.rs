//! Applies changes: prepares them on a catalog state, decodes the archives that they need, and commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use catalog::{
    Add, Catalog, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect, RedecodedStream, RunRecord,
    add_redecoded,
};
use committed::log_check::check_not_gone;
use definitions::parse;
use engine::events::{OnMisfit, columns_to_decode};
use types::tiles::Micros;
use types::{Error, ErrorKind, Result, failpoint};

use super::changes::{Change, ChangeKind, Changes};
use super::checked::checked_records;
use super::commit::commit_of;
use super::rebuilt::rebuild_readers;
use super::{ApplyOptions, ApplyTarget, Wanted, plan_changes};
use crate::backfill::{self, BackfillTarget, FileDecoding, Mode, Staged, Survey, changed_columns, views_over, views_that_read};
use crate::pin::Pin;

/// How often a plan is retried because the catalog changed meanwhile.
const ATTEMPTS: usize = 5;
/// The same after an archive was decoded: every commit of the layers comes in between.
const ATTEMPTS_AFTER_DECODING: usize = 100;
/// After this many conflicts commits that change no definition may come in between, unless an archive was decoded.
const STRICT_ATTEMPTS: usize = 3;

/// An apply in progress.
pub(super) struct Switch<'a> {
    pub(super) target: &'a ApplyTarget<'a>,
    pub(super) wanted: Wanted<'a>,
    pub(super) options: ApplyOptions,
    pub(super) now: Micros,
    /// The new archive files of each stream.
    pub(super) staged: BTreeMap<Arc<str>, Staged>,
    /// True while a commit may have happened that names them.
    pub(super) is_sent: bool,
}

impl Switch<'_> {
    pub(super) async fn run(&mut self) -> Result<Changes> {
        let mut pin = None;
        let outcome = self.attempts(&mut pin).await;
        if let Some(pin) = pin {
            pin.release().await;
        }
        outcome
    }

    async fn attempts(&mut self, pin: &mut Option<Pin>) -> Result<Changes> {
        let (mut conflicts, began) = (0, Instant::now());
        loop {
            // Decoding may take hours, and versions are retired when that is committed.
            let now = if pin.is_some() { self.now.saturating_add(began.elapsed().as_micros() as Micros) } else { self.now };
            let state = self.target.catalog.state().await?;
            let prepared = prepared(self.target, &state, self.wanted, self.options, &mut self.staged).await?;
            let PreparedSwitch { mut changes, targets, at_once } = prepared;
            let records = checked_records(&state, &changes, self.options.prune, now, self.target.functions).await?;
            self.create_topics(&state).await?;
            if changes.is_empty(self.options.prune) && targets.is_empty() {
                return Ok(changes);
            }
            if !targets.is_empty() && pin.is_none() {
                // The collector leaves the files alone that are read. The state is read again: it may have been before
                // that.
                *pin = Some(Pin::take(self.target.catalog, "apply", self.now).await?);
                continue;
            }
            if self.decode(&state, &targets, &mut changes).await? > 0 {
                // Workers have committed more meanwhile.
                continue;
            }
            if self.options.dry_run || changes.misfits().is_err() {
                return Ok(changes);
            }
            let attempts = if targets.is_empty() { ATTEMPTS } else { ATTEMPTS_AFTER_DECODING };
            let mut commit = commit_of(&state, &changes, records, now);
            commit.add.extend(at_once.into_iter().map(|(view, version)| Add::Run(RunRecord::requested(view, version))));
            for (stream, version) in &changes.restarted {
                let restarted = RedecodedStream { stream: stream.clone(), version: *version, files: Vec::new() };
                add_redecoded(&mut commit, &state, &restarted);
            }
            commit.expect.extend(reread_topics(&state, &changes).into_iter().map(|stream| Expect::NotSwitched { stream }));
            let outcome = match targets.is_empty() && conflicts >= STRICT_ATTEMPTS {
                true => commit_beside_others(self.target.catalog, commit, &state, &changes).await,
                false => self.commit(commit, &state, &changes, &targets).await,
            };
            match outcome {
                Ok(()) => return Ok(changes),
                Err(error) if error.kind() == ErrorKind::Conflict && conflicts + 1 < attempts => conflicts += 1,
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let message = "the catalog kept changing while the definitions were applied: try again";
                    return Err(Error::conflict(message).caused_by(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A topic that was read before and is gone is not created anew.
    async fn create_topics(&self, state: &CatalogState) -> Result<()> {
        let Wanted::Definitions { definitions, .. } = self.wanted else { return Ok(()) };
        for stream in definitions.streams.iter().filter(|stream| state.has_committed(&stream.name)) {
            let partitions = self.target.log.partition_count(&stream.topic).await.map_err(with_setting)?;
            check_not_gone(state, stream, partitions.unwrap_or_default())?;
        }
        let topics = definitions.streams.iter().map(|stream| &stream.topic);
        let topics =
            topics.chain(definitions.sinks.iter().map(|sink| &sink.topic)).chain(definitions.alerts.iter().map(|alert| &alert.topic));
        for topic in topics {
            self.target.log.create_topic(topic, self.target.partitions).await.map_err(with_setting)?;
        }
        Ok(())
    }

    /// Decodes what is not decoded yet, and returns the number of files that were written.
    async fn decode(&mut self, state: &CatalogState, targets: &[BackfillTarget], changes: &mut Changes) -> Result<usize> {
        let mode = if self.options.dry_run { Mode::List } else { Mode::Write };
        let mut written = 0;
        for (of, survey) in targets.iter().zip(&mut changes.backfills) {
            let staged = self.staged.entry(survey.stream.clone()).or_default();
            let decoding = FileDecoding { storage: self.target.storage, mode, progress: self.target.progress };
            written += staged.decode(state, of, survey, decoding).await?;
        }
        Ok(if changes.misfits().is_err() { 0 } else { written })
    }

    async fn commit(&mut self, mut commit: Commit, state: &CatalogState, changes: &Changes, targets: &[BackfillTarget]) -> Result<()> {
        for (of, survey) in targets.iter().zip(&changes.backfills) {
            let files = self.staged.get(&survey.stream).map(|staged| staged.replaced(survey)).unwrap_or_default();
            let redecoded = RedecodedStream { stream: survey.stream.clone(), version: of.version, files };
            add_redecoded(&mut commit, state, &redecoded);
        }
        if !targets.is_empty() {
            failpoint::hit("backfill.before_switch")?;
        }
        self.is_sent = true;
        let outcome = self.target.catalog.commit_with_retry(commit).await;
        // A conflict is final; whether a commit without an answer happened is unknown.
        self.is_sent = !matches!(&outcome, Err(error) if error.kind() == ErrorKind::Conflict);
        outcome?;
        if !targets.is_empty() {
            failpoint::hit("backfill.after_switch")?;
        }
        Ok(())
    }

    /// Deletes the files that no commit names: after a success all but those of its surveys, otherwise all of them.
    pub(super) async fn discard_unnamed(self, applied: Option<&Changes>) {
        let surveys: &[Survey] = match applied {
            Some(changes) if self.is_sent => &changes.backfills,
            _ => &[],
        };
        if applied.is_none() && self.is_sent {
            return;
        }
        for (stream, staged) in self.staged {
            let kept: Vec<&Survey> = surveys.iter().filter(|survey| survey.stream == stream).collect();
            staged.discard(self.target.storage, &kept).await;
        }
    }
}

/// Names the setting that says where the log is, if it does not answer.
fn with_setting(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => error.with("setting", "log.url").with("help", "correct it, or make the log available"),
        _ => error,
    }
}

/// Commits although others have committed since the state was read. Where they do so several times a second, a plan is
/// never of the last state. A conflict if they changed what the records were decided on, or committed first records of
/// a stream that was to begin anew.
async fn commit_beside_others(catalog: &Catalog, mut commit: Commit, planned_on: &CatalogState, changes: &Changes) -> Result<()> {
    commit.expect.retain(|expect| !matches!(expect, Expect::Revision(_)));
    let decided_on = (&planned_on.definitions, &planned_on.parameters, &planned_on.pauses);
    catalog
        .commit_decided(move |state| {
            if (&state.definitions, &state.parameters, &state.pauses) != decided_on {
                return Err(Error::conflict("definitions were changed meanwhile"));
            }
            if let Some(stream) = changes.restarted.keys().find(|stream| state.has_committed(stream)) {
                return Err(Error::conflict("the first records of a stream were committed meanwhile").with("stream", stream));
            }
            Ok(((), Some(commit)))
        })
        .await
}

/// What is wanted on one catalog state.
pub(super) struct PreparedSwitch {
    pub(super) changes: Changes,
    /// The archives that are decoded for it: one for each of [`Changes::backfills`].
    targets: Vec<BackfillTarget>,
    /// View versions that answer at once, because the one before is of the old decoding. They are answered from the
    /// archive until they have a snapshot, so each asks for a run.
    at_once: Vec<(Arc<str>, u32)>,
}

/// Finds out what is wanted on a catalog state. What is refused is in the changes.
pub(super) async fn prepared(
    target: &ApplyTarget<'_>,
    state: &CatalogState,
    wanted: Wanted<'_>,
    options: ApplyOptions,
    staged: &mut BTreeMap<Arc<str>, Staged>,
) -> Result<PreparedSwitch> {
    let (mut changes, targets) = match wanted {
        Wanted::Definitions { definitions, staging } => {
            let mut changes = plan_changes(state, definitions, staging);
            for stream in reread_topics(state, &changes) {
                if let Some(sink) = target.catalog.switched_sink(&stream).await? {
                    refuse_reread(&mut changes, &stream, &sink);
                }
            }
            let targets = targets_of(state, &mut changes, options)?;
            (changes, targets)
        }
        Wanted::Archive { stream } => {
            let targets = archive_target(state, stream, options)?.into_iter().collect();
            (Changes { revision: state.revision, ..Changes::default() }, targets)
        }
    };
    if (targets.is_empty() && changes.restarted.is_empty()) || changes.refusals().is_err() {
        return Ok(PreparedSwitch { changes, targets: Vec::new(), at_once: Vec::new() });
    }
    for of in &targets {
        let staged = staged.entry(of.definition.name.clone()).or_default();
        changes.backfills.push(backfill::survey(target.storage, state, of, staged).await?);
    }
    let columns = changes.backfills.iter().map(|survey| (survey.stream.clone(), survey.column_names())).collect();
    let mut readers = views_that_read(state, target.functions, &columns).await?;
    let restarted: Vec<Arc<str>> = changes.restarted.keys().cloned().collect();
    // Nodes may have states of records that a worker has read by the version before, and not committed.
    readers.extend(views_over(state, target.functions, &restarted).await?);
    let at_once = rebuild_readers(state, &mut changes, &readers, options.prune);
    Ok(PreparedSwitch { changes, targets, at_once })
}

/// Returns those of the streams that begin anew which read a topic again that they had before.
fn reread_topics(state: &CatalogState, changes: &Changes) -> Vec<Arc<str>> {
    let topic_of = |sql: &str| parse::parse_stream(sql).ok().map(|stream| stream.topic);
    let is_read_again = |change: &&Change| {
        let topic = topic_of(&change.sql);
        state.definitions.versions(change.kind, &change.name).any(|before| topic_of(&before.sql) == topic)
    };
    let restarted = |change: &&Change| change.kind == DefinitionKind::Stream && changes.restarted.contains_key(&change.name);
    changes.changes.iter().filter(restarted).filter(is_read_again).map(|change| change.name.clone()).collect()
}

/// A sink puts out at most one record for an offset of a topic, also where another version of the stream accepts the
/// record there as another event.
fn refuse_reread(changes: &mut Changes, stream: &Arc<str>, sink: &str) {
    changes.restarted.remove(stream);
    let mut of_streams = changes.changes.iter_mut().filter(|change| change.kind == DefinitionKind::Stream);
    if let Some(change) = of_streams.find(|change| change.name == *stream) {
        let reason = format!(
            "its topic would be read again from the beginning, and the sink \"{sink}\" has decided events of it: it decides none of \
             them again"
        );
        let help = "give the stream a new topic, or define a stream with a new name and a new topic, and views over it".into();
        change.change_kind = ChangeKind::Refused { reasons: vec![reason], help };
    }
}

/// Returns the streams of which a new version reads columns otherwise than the one before. One that begins anew has
/// nothing to decode.
fn targets_of(state: &CatalogState, changes: &mut Changes, options: ApplyOptions) -> Result<Vec<BackfillTarget>> {
    let mut targets = Vec::new();
    for change in changes.changes.iter_mut().filter(|change| change.kind == DefinitionKind::Stream) {
        let (ChangeKind::Added { version } | ChangeKind::Changed { version, .. }) = change.change_kind else { continue };
        let Some(before) = before(state, change).filter(|_| !changes.restarted.contains_key(&change.name)) else { continue };
        let definition = Arc::new(parse::parse_stream(&change.sql)?);
        if columns_to_decode(&parse::parse_stream(&before.sql)?, &definition).is_empty() {
            continue;
        }
        let target = BackfillTarget { definition, version, on_misfit: on_misfit(options) };
        if options.no_backfill {
            refuse_unless_filled_later(state, change, &target)?;
            continue;
        }
        targets.push(target);
    }
    Ok(targets)
}

/// Returns the version of the stream before the one that a change makes.
fn before<'s>(state: &'s CatalogState, change: &Change) -> Option<&'s DefinitionRecord> {
    state.definitions.get(change.kind, &change.name, change.newest?)
}

/// Without decoding, archived events can only lack columns that may be NULL.
fn refuse_unless_filled_later(state: &CatalogState, change: &mut Change, target: &BackfillTarget) -> Result<()> {
    let may_lack = |name: &str| target.definition.columns.iter().any(|column| column.name == name && column.nullable);
    let changed = changed_columns(state, target)?;
    let others = changed.iter().filter(|changed| changed.change != "added" || !may_lack(&changed.column));
    let reasons: Vec<String> = others.map(|changed| format!("\"{}\": {}", changed.column, changed.change)).collect();
    if !reasons.is_empty() {
        let help = "leave `--no-backfill` out: the archive is decoded again".into();
        change.change_kind = ChangeKind::Refused { reasons, help };
    }
    Ok(())
}

/// Returns the stream as the catalog has it, if events of earlier versions lack some of it.
fn archive_target(state: &CatalogState, stream: &str, options: ApplyOptions) -> Result<Option<BackfillTarget>> {
    let active = state.live(DefinitionKind::Stream).find(|record| &*record.name == stream && record.status == DefinitionStatus::Active);
    let active = active.ok_or_else(|| Error::not_found(format!("there is no stream \"{stream}\" in the catalog")))?;
    let definition = Arc::new(parse::parse_stream(&active.sql)?);
    let target = BackfillTarget { definition, version: active.version, on_misfit: on_misfit(options) };
    Ok((!changed_columns(state, &target)?.is_empty()).then_some(target))
}

fn on_misfit(options: ApplyOptions) -> OnMisfit {
    if options.null_misfits { OnMisfit::Null } else { OnMisfit::Report }
}
