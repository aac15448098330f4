//! `replay`: appends dead letters to the log again, as new records with a header that names their original place.
//!
//! ```text
//! read -> leave out what was replayed -> decode (by the speed layer's rules) -> append to the log
//!      -> remember in the catalog
//! ```
//!
//! A record that would only become a dead letter again is refused. If the process dies between the log's
//! acknowledgement and the catalog's commit, the next replay finds what was appended by its header: nothing is sent
//! twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use definitions::StreamDefinition;
use engine::events::Decoder;
use event_log::NewRecord;
use serde::Serialize;
use speed::too_far_ahead;
use types::Result;
use types::tiles::{Micros, micros};
use types::vector::Offset;

use super::again::ReplayTurn;
use super::line::Corrected;
use super::ranges::{Replayed, Runs};
use super::read::{Letters, files_of};
use super::{DamagedFile, DeadLetter, PINNED_BY, REPLAYED_FROM, Selection, export};
use crate::installation::{Installation, now};
use crate::pin::pinned;
use crate::reason;

mod corrections;

use corrections::Corrections;

/// How many refused dead letters are reported one by one; all are counted.
const MOST_REFUSED_LISTED: usize = 20;
/// Each batch commits at most this many ranges, and all other commits wait for it.
const BATCH_RECORDS: usize = 2_000;
const BATCH_BYTES: usize = 8 << 20;

/// What to replay, and how.
#[derive(Debug, Clone, Default)]
pub struct ReplayOptions {
    pub selection: Selection,
    /// A corrected export, to send its lines instead of the original bytes.
    pub file: Option<PathBuf>,
    /// Also send records that are not events of the stream.
    pub produce_invalid: bool,
    /// Report what would be sent, and send nothing.
    pub dry_run: bool,
    /// Send at most this many. A repeat sends the next ones.
    pub limit: Option<u64>,
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ReplaySummary {
    /// Records appended to the log in this run (in a dry run: that would be).
    pub replayed: u64,
    /// Left out: already in the log again, from an earlier run.
    pub already: u64,
    /// Left out: records that would become dead letters again.
    pub refused: u64,
    /// The reasons for refusing, the most frequent first.
    pub refused_reasons: Vec<(String, u64)>,
    pub first_refused: Vec<RefusedLetter>,
    /// As many were sent as may be, and those after them were not looked at.
    pub limit_reached: bool,
    /// Appended by an earlier run that died before it could remember them.
    pub recovered: usize,
    pub damaged: Vec<DamagedFile>,
    pub seconds: f64,
}

impl ReplaySummary {
    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        let ReplaySummary { replayed, already, refused, recovered, damaged, .. } = self;
        replayed + already + refused == 0 && *recovered == 0 && damaged.is_empty()
    }
}

/// A dead letter that is not appended to the log again, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedLetter {
    /// Its line in the corrected file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    pub partition: i32,
    pub offset: Offset,
    pub reason: String,
}

/// Appends dead letters of a live stream to its log. `progress` is called with the number read.
///
/// Where the stream has no dead letters there is nothing to do.
///
/// Errors: `NotFound` for an unknown stream or if none of its dead letters matches; `Input` for a corrected file with
/// wrong lines, which names them before anything is sent; `Conflict` while another process replays the stream. After an
/// error what was appended before it stays in the log and is remembered.
pub async fn replay(
    installation: &Installation,
    stream: &str,
    options: &ReplayOptions,
    mut progress: impl FnMut(u64),
) -> Result<ReplaySummary> {
    let begun = Instant::now();
    let definition = installation.stream(stream).await?;
    let corrections = options.file.as_deref().map(|file| Corrections::check(file, &definition)).transpose()?;
    let (turn, recovered) = match options.dry_run {
        true => (None, 0),
        false => {
            let (turn, recovered) = ReplayTurn::take(&installation.catalog, &*installation.log, &definition, &installation.worker).await?;
            (Some(turn), recovered)
        }
    };
    let mut run = Run::new(installation, definition, options, turn).await?;
    run.summary.recovered = recovered;
    let sent = async {
        match &corrections {
            Some(corrections) => run.corrected(corrections, &mut progress).await,
            None => run.originals(&mut progress).await,
        }
    };
    let outcome = pinned(&installation.catalog, PINNED_BY, sent).await;
    let mut summary = run.end(outcome).await?;
    summary.seconds = begun.elapsed().as_secs_f64();
    tracing::info!(stream, replayed = summary.replayed, already = summary.already, refused = summary.refused, "dead letters replayed");
    Ok(summary)
}

struct Run<'a> {
    installation: &'a Installation,
    stream: Arc<StreamDefinition>,
    options: &'a ReplayOptions,
    rules: Rules,
    done: Replayed,
    turn: Option<ReplayTurn>,
    /// Something was appended, or may have been, and is not remembered yet.
    unsure: bool,
    runs: Runs,
    batch: Vec<NewRecord>,
    batch_bytes: usize,
    reasons: BTreeMap<String, u64>,
    summary: ReplaySummary,
}

/// A dead letter's position, from 1, among those of its partition in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rank {
    file: usize,
    number: usize,
}

impl Rank {
    fn before(self) -> Option<Rank> {
        let number = self.number.checked_sub(1).filter(|number| *number > 0)?;
        Some(Rank { number, ..self })
    }
}

/// Decides whether a record may go to the log.
struct Rules {
    decoder: Decoder,
    max_future: Duration,
    produce_invalid: bool,
}

impl<'a> Run<'a> {
    async fn new(
        installation: &'a Installation,
        stream: Arc<StreamDefinition>,
        options: &'a ReplayOptions,
        turn: Option<ReplayTurn>,
    ) -> Result<Self> {
        let rules = Rules {
            decoder: Decoder::new(stream.clone())?,
            max_future: installation.settings.speed.max_future,
            produce_invalid: options.produce_invalid,
        };
        let done = Replayed::new(&installation.catalog.replayed_dead_letters(&stream.name).await?);
        Ok(Self {
            installation,
            stream,
            options,
            rules,
            done,
            turn,
            unsure: false,
            runs: Runs::default(),
            batch: Vec::new(),
            batch_bytes: 0,
            reasons: BTreeMap::new(),
            summary: ReplaySummary::default(),
        })
    }

    /// Replays the original bytes of all that match.
    async fn originals(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let state = self.installation.catalog.state().await?;
        let (mut read, mut fit) = (0, 0u64);
        'files: for file in files_of(&state, Some(&self.stream.name))? {
            let mut letters = Letters::new(file);
            while let Some(some) = letters.next_or_note(&self.installation.storage, &mut self.summary.damaged).await? {
                for letter in some {
                    if self.note_limit() {
                        break 'files;
                    }
                    read += 1;
                    match self.options.selection.fits(&letter) {
                        true => {
                            fit += 1;
                            self.take(letter, None).await?;
                        }
                        false => self.runs.leave_out(letter.partition),
                    }
                }
                progress(read);
            }
            self.runs.close();
        }
        if fit == 0 && read > 0 && self.summary.damaged.is_empty() {
            return Err(export::unmatched(&self.stream.name, &self.options.selection, read));
        }
        self.send().await
    }

    /// Replays the corrected lines, each of which must name a dead letter.
    async fn corrected(&mut self, corrections: &Corrections, progress: &mut impl FnMut(u64)) -> Result<()> {
        let known = self.known(&corrections.places).await?;
        let mut lines = corrections.lines()?;
        let mut last: BTreeMap<i32, Rank> = BTreeMap::new();
        let mut looked_at = 0;
        while let Some((number, corrected)) = lines.next_line()? {
            if self.note_limit() {
                break;
            }
            looked_at += 1;
            let place = (corrected.partition, corrected.offset);
            match known.get(&place).copied() {
                Some(rank) => {
                    // A range continues only if no dead letter lies between this line and the previous one.
                    if last.insert(place.0, rank) != rank.before() {
                        self.runs.leave_out(place.0);
                    }
                    self.take(letter_of(corrected, &self.stream), Some(number)).await?;
                }
                None => self.refuse(place, Some(number), "it names no dead letter of the stream".into()),
            }
            progress(looked_at);
        }
        self.send().await
    }

    /// Returns which of these places are dead letters, with their ranks.
    async fn known(&mut self, places: &BTreeSet<(i32, Offset)>) -> Result<BTreeMap<(i32, Offset), Rank>> {
        let state = self.installation.catalog.state().await?;
        let mut known = BTreeMap::new();
        for (file_number, file) in files_of(&state, Some(&self.stream.name))?.into_iter().enumerate() {
            let mut letters = Letters::new(file);
            let mut ranks: BTreeMap<i32, usize> = BTreeMap::new();
            while let Some(some) = letters.next_or_note(&self.installation.storage, &mut self.summary.damaged).await? {
                for letter in some {
                    let rank = ranks.entry(letter.partition).or_default();
                    *rank += 1;
                    let place = (letter.partition, letter.offset);
                    if places.contains(&place) {
                        known.insert(place, Rank { file: file_number, number: *rank });
                    }
                }
            }
        }
        Ok(known)
    }

    /// Whether another one may not be sent, which the summary says from then on.
    fn note_limit(&mut self) -> bool {
        self.summary.limit_reached = self.options.limit.is_some_and(|limit| self.summary.replayed >= limit);
        self.summary.limit_reached
    }

    async fn take(&mut self, letter: DeadLetter, line: Option<u64>) -> Result<()> {
        let place = (letter.partition, letter.offset);
        if self.done.holds(place.0, place.1) {
            self.summary.already += 1;
            return Ok(());
        }
        match self.rules.record(&letter, now()) {
            Ok(record) => {
                self.runs.take(place.0, place.1);
                self.batch_bytes += bytes_of(&record);
                self.batch.push(record);
                self.summary.replayed += 1;
            }
            Err(why) => self.refuse(place, line, why),
        }
        if self.batch.len() >= BATCH_RECORDS || self.batch_bytes >= BATCH_BYTES {
            self.send().await?;
        }
        Ok(())
    }

    fn refuse(&mut self, (partition, offset): (i32, Offset), line: Option<u64>, why: String) {
        self.runs.leave_out(partition);
        self.summary.refused += 1;
        *self.reasons.entry(reason::class(&why)).or_default() += 1;
        if self.summary.first_refused.len() < MOST_REFUSED_LISTED {
            self.summary.first_refused.push(RefusedLetter { line, partition, offset, reason: why });
        }
    }

    /// Appends the current batch, then remembers it.
    async fn send(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let ranges = self.runs.finish(&self.stream.name, now());
        let Some(turn) = self.turn.as_mut().filter(|_| !records.is_empty()) else { return Ok(()) };
        turn.keep().await?;
        self.unsure = true;
        self.installation.log.append(&self.stream.topic, records).await?;
        turn.remember(ranges).await?;
        self.unsure = false;
        Ok(())
    }

    async fn end(mut self, outcome: Result<()>) -> Result<ReplaySummary> {
        if let Some(turn) = self.turn.take() {
            match self.unsure {
                true => turn.give_up().await,
                false => turn.finish().await?,
            }
        }
        outcome?;
        self.summary.refused_reasons = self.reasons.into_iter().collect();
        self.summary.refused_reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(self.summary)
    }
}

impl Rules {
    /// Returns the new record, or why it would become a dead letter again.
    fn record(&self, letter: &DeadLetter, now: Micros) -> Result<NewRecord, String> {
        let partition_by = match self.partition_by(letter, now) {
            Ok(partition_by) => partition_by,
            Err(_) if self.produce_invalid => None,
            Err(why) => return Err(why),
        };
        let mut headers: Vec<(String, Bytes)> = letter.headers.iter().filter(|(name, _)| name != REPLAYED_FROM).cloned().collect();
        headers.push((REPLAYED_FROM.to_owned(), format!("{}/{}/{}", letter.source, letter.partition, letter.offset).into()));
        Ok(NewRecord { key: letter.key.clone(), value: letter.value.clone(), headers, partition_by })
    }

    /// Returns what a record without a key is partitioned by, as our producers do: the event's key, else its id.
    fn partition_by(&self, letter: &DeadLetter, now: Micros) -> Result<Option<Bytes>, String> {
        let event = self.decoder.decode(letter.value.as_deref()).map_err(|error| error.to_string())?;
        if let Some(reason) = too_far_ahead(event.event_time(), now, "this machine's clock", micros(self.max_future)) {
            return Err(reason);
        }
        Ok(event.key().or_else(|| event.id()).map(|text| Bytes::from(text.into_owned())))
    }
}

/// The bytes of a record that count towards a batch.
fn bytes_of(record: &NewRecord) -> usize {
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    record.key.as_ref().map_or(0, Bytes::len) + record.value.as_ref().map_or(0, Bytes::len) + headers
}

fn letter_of(corrected: Corrected, stream: &StreamDefinition) -> DeadLetter {
    DeadLetter {
        stream: stream.name.clone(),
        source: corrected.source.into(),
        partition: corrected.partition,
        offset: corrected.offset,
        timestamp: None,
        reason: String::new(),
        key: corrected.key,
        value: corrected.value,
        headers: corrected.headers,
    }
}

#[cfg(test)]
mod tests;
