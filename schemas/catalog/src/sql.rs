//! The catalog in a database: SQLite or PostgreSQL, with the same tables and the same SQL.
//!
//! A commit first takes the next revision, which puts all commits in one order: by the lock on that one row in
//! PostgreSQL, by `BEGIN IMMEDIATE` in SQLite. A state is read in one transaction that sees one point in time.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use backon::{ExponentialBuilder, Retryable};
use uuid::Uuid;

use self::apply::{Applied, apply, apply_under};
use self::clock::{ClockComparison, ComparedClock};
use self::engine::Engine;
pub use self::session::FILE_DAMAGED;
use self::session::Session;
use super::{Add, CatalogState, Commit, Expect, IngestRecord, ReplayedDeadLetters, Revision, RunRecord, RunStatus, TokenRecord};
use types::failpoint;
use types::liveness::LockFolder;
use types::outage::{Attempts, Outage};
use types::tiles::Micros;
use types::{Error, ErrorKind, Result};

mod clock;
mod engine;
mod meta;
mod migrations;
mod session;
mod slow;

mod alert;
mod checkpoint;
mod damage;
mod definition;
mod file;
mod gap;
mod ingest;
mod lease;
mod mark;
mod parameter;
mod partition;
mod pause;
mod removed;
mod replay;
mod run;
mod sink_switch;
mod snapshot;
mod token;
mod worker;

mod apply;
mod expect;
mod leasing;
mod state;

/// How long a commit that is retried waits between its attempts, in all.
const RETRY: Duration = Duration::from_secs(10);
/// After this time there is no further attempt: while a server is away, each of them waits for a connection.
const RETRY_UNTIL: Duration = Duration::from_secs(30);
/// How long a server may take for one transaction; after this time its outcome counts as unknown.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A handle to the catalog, cheap to clone.
#[derive(Clone)]
pub struct Catalog {
    engine: Engine,
    identity: Arc<str>,
    shown: Arc<str>,
    /// The state that this handle has read last: the next read builds on it.
    last: Arc<Mutex<Option<Arc<CatalogState>>>>,
    reads: Attempts,
    writes: Attempts,
    clock: Arc<ComparedClock>,
    /// The lock files of processes that acquire leases.
    processes: Option<Arc<LockFolder>>,
}

impl Catalog {
    /// Opens the catalog at `url`, and creates or migrates it if needed: `sqlite:///path/catalog.db` (creates the
    /// folder too), `sqlite::memory:` (lives as long as its handles) or `postgres://user:password@host:port/database`.
    ///
    /// Errors: `Input` for a wrong URL or refused credentials, `Unavailable` for a server that does not respond,
    /// `Corrupt` for a format that a newer version wrote. No message contains the password.
    pub async fn open(url: &str) -> Result<Catalog> {
        let engine = Engine::open(url).await?;
        let shown = engine::shown(url);
        let identity = migrations::migrate(&engine).await.map_err(|error| error.with("catalog", &shown))?;
        let catalog = Catalog {
            engine,
            identity: identity.into(),
            shown: shown.into(),
            last: Arc::default(),
            reads: Attempts::new("the catalog cannot be read"),
            writes: Attempts::new("the catalog cannot be written"),
            clock: Arc::default(),
            processes: None,
        };
        catalog.compare_clocks_if_due().await;
        Ok(catalog)
    }

    /// Identifies this catalog; set once, when it was created.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns a handle to the same catalog that shares nothing that this one has read, as in another process.
    pub fn apart(&self) -> Catalog {
        Catalog { last: Arc::default(), ..self.clone() }
    }

    /// Returns a handle that knows by these files which owners of leases are dead. The names of instances are those of
    /// owners.
    #[must_use]
    pub fn with_processes(self, processes: LockFolder) -> Catalog {
        Catalog { processes: Some(Arc::new(processes)), ..self }
    }

    /// Whether this owner of leases is known to be a process that is dead. False for one on another machine.
    pub fn is_dead(&self, owner: &str) -> bool {
        self.processes.as_ref().is_some_and(|processes| processes.is_dead(owner))
    }

    /// Returns what this process cannot do with the catalog at the moment, and whether its clock is wrong.
    pub fn outages(&self) -> Vec<Outage> {
        [&self.reads, &self.writes].into_iter().filter_map(Attempts::outage).chain(self.clock.outage()).collect()
    }

    /// Compares this machine's clock with that of the database's server. Returns how far it is ahead; zero if it is
    /// behind, and for SQLite, whose processes are on one machine.
    pub async fn clock_ahead(&self) -> Result<Duration> {
        let ahead = if self.engine.is_remote() { self.compare_clocks().await? } else { 0 };
        Ok(Duration::from_micros(ahead.max(0) as u64))
    }

    /// Reads everything, as of one point in time. States share what did not change between them.
    pub async fn state(&self) -> Result<Arc<CatalogState>> {
        let state = self.within_limit(Box::pin(self.state_now())).await;
        self.reads.note(&state);
        if state.is_ok() {
            self.compare_clocks_if_due().await;
        }
        state
    }

    /// Reads the revision of the last commit: a cheap way to detect changes.
    pub async fn revision(&self) -> Result<Revision> {
        let revision = self.within_limit(Box::pin(self.engine.number(meta::REVISION))).await;
        self.reads.note(&revision);
        if revision.is_ok() {
            self.compare_clocks_if_due().await;
        }
        revision
    }

    /// Carries out all of a commit or nothing, and returns its revision. For a (non-nil) id that is already committed
    /// it changes nothing and returns the earlier revision, so a writer whose reply was lost can simply retry.
    ///
    /// Errors: `Conflict` when an expectation is not met, `Unavailable` when the outcome is unknown.
    pub async fn commit(&self, commit: Commit) -> Result<Revision> {
        let (before, after) = commit.failpoints().unzip();
        before.map_or(Ok(()), failpoint::hit)?;
        let revision = self.within_limit(Box::pin(self.commit_now(&commit))).await;
        self.writes.note(&revision);
        let revision = revision?;
        after.map_or(Ok(()), failpoint::hit)?;
        Ok(revision)
    }

    /// Same as [`Catalog::commit`], but retries for about ten seconds while the database does not respond. A conflict
    /// is final.
    pub async fn commit_with_retry(&self, mut commit: Commit) -> Result<Revision> {
        if commit.id.is_nil() {
            commit.id = Uuid::new_v4();
        }
        let began = Instant::now();
        (|| self.commit(commit.clone()))
            .retry(delays())
            .when(|error| is_retried(error, began))
            .notify(|error, delay| tracing::warn!(%error, delay_ms = delay.as_millis() as u64, "retrying a catalog commit"))
            .await
    }

    /// Decides on the present state and commits what was decided; `None`: there is nothing to commit. The commit has to
    /// expect what it was decided on. If that changed meanwhile, it is decided again, and at most `attempts` times in
    /// all.
    ///
    /// Errors: those of the decision, which is not taken again then; `Conflict` if the catalog kept changing.
    pub async fn decide_and_commit<T, F>(&self, attempts: usize, mut decide: impl FnMut(Arc<CatalogState>) -> F) -> Result<T>
    where
        F: Future<Output = Result<(T, Option<Commit>)>>,
    {
        let mut conflicts = 0;
        loop {
            let (outcome, commit) = decide(self.state().await?).await?;
            let Some(commit) = commit else { return Ok(outcome) };
            match self.commit_with_retry(commit).await {
                Ok(_) => return Ok(outcome),
                Err(error) if error.kind() == ErrorKind::Conflict && conflicts + 1 < attempts => conflicts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Decides on the present state and commits what was decided, in one transaction that is ordered with all commits:
    /// nothing comes in between, however often others commit. `None`: there is nothing to commit. All of them wait for
    /// the decision.
    ///
    /// Errors: those of the decision, and those of [`Catalog::commit`].
    pub async fn commit_decided<T>(&self, decide: impl FnOnce(&CatalogState) -> Result<(T, Option<Commit>)>) -> Result<T> {
        let outcome = self.within_limit(Box::pin(self.commit_decided_now(decide))).await;
        self.writes.note(&outcome);
        let (outcome, after) = outcome?;
        after.map_or(Ok(()), failpoint::hit)?;
        Ok(outcome)
    }

    /// Begins a batch run: reads the catalog and pins what it read, in one transaction that is ordered with all
    /// commits. Returns the state at that point and the run as stored: `Running`, with that state's vector as its cut.
    pub async fn begin_run(&self, run: RunRecord, expect: Vec<Expect>) -> Result<(Arc<CatalogState>, RunRecord)> {
        self.within_limit(Box::pin(self.begin_run_now(run, &expect))).await
    }

    /// Asks for a run of a view's version, which a scheduler carries out. A run that waits already is returned again.
    pub async fn request_run(&self, view: &Arc<str>, version: u32) -> Result<RunRecord> {
        let run = &RunRecord::requested(view.clone(), version);
        // Most of what the transaction reads is known then, and repeated reads take no lock.
        if let (waiting, None) = requested(&*self.state().await?, run) {
            return Ok(waiting);
        }
        let began = Instant::now();
        (|| self.commit_decided(move |state| Ok(requested(state, run)))).retry(delays()).when(|error| is_retried(error, began)).await
    }

    /// Returns all that `ingest` remembers under this fingerprint, and under those that go on with `-` after it, in no
    /// particular order.
    pub async fn ingest_progress_of(&self, stream: &str, prefix: &str) -> Result<Vec<IngestRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = ingest::beginning(&mut session, stream, prefix).await;
        session.finish(found).await
    }

    /// Returns which dead letters of a stream were replayed, ordered by partition and offset.
    pub async fn replayed_dead_letters(&self, stream: &str) -> Result<Vec<ReplayedDeadLetters>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = replay::of_stream(&mut session, stream).await;
        session.finish(found).await
    }

    /// Returns all tokens, revoked ones too, ordered by name.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>> {
        self.within_limit(Box::pin(self.tokens_now())).await
    }

    /// Returns how many files are marked for deletion, and since when the oldest is (0: for more than a day); `None` if
    /// no file is.
    pub async fn marked_for_deletion(&self) -> Result<Option<(i64, Micros)>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = file::marked_for_deletion(&mut session).await;
        session.finish(found).await
    }

    /// Returns the runs of one view, or of all, newest first.
    pub async fn runs(&self, view: Option<&str>, limit: usize) -> Result<Vec<RunRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = run::history(&mut session, view, i64::try_from(limit).unwrap_or(i64::MAX)).await;
        session.finish(found).await
    }

    /// Waits for operations in progress and disconnects from the database. Closes all clones of this handle as well.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    async fn compare_clocks_if_due(&self) {
        if self.engine.is_remote()
            && self.clock.is_due(Instant::now())
            && let Err(error) = self.compare_clocks().await
        {
            tracing::debug!(%error, "the clock could not be compared with that of the catalog's database");
        }
    }

    async fn compare_clocks(&self) -> Result<Micros> {
        let before = now_us();
        let answer = tokio::time::timeout(clock::ANSWERS_WITHIN, Box::pin(self.engine.number(clock::NOW))).await;
        let late = |_| Err(Error::unavailable("the catalog's database did not return its time").with("catalog", &self.shown));
        let server = answer.unwrap_or_else(late)?;
        Ok(self.clock.note(ClockComparison { before, server, after: now_us() }))
    }

    async fn state_now(&self) -> Result<Arc<CatalogState>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let last = self.last_state();
        let state = state::read(&mut session, last.as_ref()).await;
        let state = session.finish(state).await?;
        self.keep(&state, last.as_ref());
        Ok(state)
    }

    async fn tokens_now(&self) -> Result<Vec<TokenRecord>> {
        let mut session = Box::pin(self.engine.read()).await?;
        let found = token::all(&mut session).await;
        session.finish(found).await
    }

    fn last_state(&self) -> Option<Arc<CatalogState>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what was read, unless another read has kept a newer state since this one began with `last`. It may be of
    /// an earlier revision than `last`: a catalog goes back when it is restored from a copy.
    fn keep(&self, state: &Arc<CatalogState>, last: Option<&Arc<CatalogState>>) {
        let mut kept = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = kept.as_ref().map(Arc::as_ptr) == last.map(Arc::as_ptr);
        if is_last || kept.as_ref().is_none_or(|kept| kept.revision < state.revision) {
            *kept = Some(state.clone());
        }
    }

    async fn commit_now(&self, commit: &Commit) -> Result<Revision> {
        let mut session = Box::pin(self.engine.write()).await?;
        match apply(&mut session, commit, now_us()).await {
            Ok(Applied::Before(revision)) => session.rollback().await.map(|()| revision),
            Ok(Applied::Now(revision)) => session.finish(Ok(revision)).await,
            Err(error) => session.finish(Err(error)).await,
        }
    }

    /// Also returns the failpoint after what was committed.
    async fn commit_decided_now<T>(
        &self,
        decide: impl FnOnce(&CatalogState) -> Result<(T, Option<Commit>)>,
    ) -> Result<(T, Option<&'static str>)> {
        let mut session = Box::pin(self.engine.write()).await?;
        match decided(&mut session, self.last_state().as_ref(), decide).await {
            Ok((outcome, None)) => session.rollback().await.map(|()| (outcome, None)),
            Ok((outcome, Some(commit))) => session.finish(Ok((outcome, commit.failpoints().map(|(_, after)| after)))).await,
            Err(error) => session.finish(Err(error)).await,
        }
    }

    async fn begin_run_now(&self, run: RunRecord, expect: &[Expect]) -> Result<(Arc<CatalogState>, RunRecord)> {
        let mut session = Box::pin(self.engine.write()).await?;
        let begun = begin(&mut session, run, expect, self.last_state().as_ref()).await;
        session.finish(begun).await
    }

    /// Limits the time for an answer, of a server alone: it can disappear without an error, which a file cannot, and a
    /// simulation's clock must not end a statement. The work is boxed, because the futures of sqlx take tens of
    /// kilobytes, which every caller would otherwise need on its stack.
    async fn within_limit<T, W: Future<Output = Result<T>>>(&self, work: Pin<Box<W>>) -> Result<T> {
        if !self.engine.is_remote() {
            return work.await;
        }
        tokio::time::timeout(ANSWER_LIMIT, work).await.unwrap_or_else(|_| {
            Err(Error::unavailable("the catalog did not answer").with("catalog", &self.shown).with("waited_s", ANSWER_LIMIT.as_secs()))
        })
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("url", &self.shown).field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// How long, and how often, what the database did not answer is tried again.
fn is_retried(error: &Error, began: Instant) -> bool {
    error.kind() == ErrorKind::Unavailable && began.elapsed() < RETRY_UNTIL
}

fn delays() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_total_delay(Some(RETRY))
        .with_jitter()
}

/// Returns the requested run of the same view version, or this one with the commit that requests it.
fn requested(state: &CatalogState, run: &RunRecord) -> (RunRecord, Option<Commit>) {
    let is_waiting = |known: &&RunRecord| known.view == run.view && known.version == run.version && known.status == RunStatus::Requested;
    match state.runs.iter().find(is_waiting) {
        Some(waiting) => (waiting.clone(), None),
        None => (run.clone(), Some(Commit { id: Uuid::now_v7(), add: vec![Add::Run(run.clone())], ..Commit::default() })),
    }
}

/// Decides on the state of the last commit and carries out what was decided. Returns that commit too, if it changed
/// anything.
async fn decided<T>(
    session: &mut Session,
    last: Option<&Arc<CatalogState>>,
    decide: impl FnOnce(&CatalogState) -> Result<(T, Option<Commit>)>,
) -> Result<(T, Option<Commit>)> {
    let revision = meta::next_revision(session).await?;
    let state = state::read(session, last).await?;
    // It was read under the revision that this transaction took.
    let state = CatalogState { revision: revision - 1, ..Arc::unwrap_or_clone(state) };
    let (outcome, commit) = decide(&state)?;
    let Some(commit) = commit else { return Ok((outcome, None)) };
    commit.failpoints().map_or(Ok(()), |(before, _)| failpoint::hit(before))?;
    match apply_under(session, revision, &commit, now_us()).await? {
        Applied::Before(_) => Ok((outcome, None)),
        Applied::Now(_) => Ok((outcome, Some(commit))),
    }
}

async fn begin(
    session: &mut Session,
    run: RunRecord,
    expect: &[Expect],
    last: Option<&Arc<CatalogState>>,
) -> Result<(Arc<CatalogState>, RunRecord)> {
    let revision = meta::next_revision(session).await?;
    // It is not retried, but a state is read on top of it.
    meta::remember(session, Uuid::now_v7(), revision, now_us()).await?;
    for expected in expect {
        expect::check(session, expected, revision).await?;
    }
    // Another process may have carried out a requested run since the caller looked.
    if let Some(ended @ (RunStatus::Succeeded | RunStatus::Failed | RunStatus::Dropped | RunStatus::Skipped)) =
        run::status(session, run.id).await?
    {
        let found = format!("{ended:?}").to_lowercase();
        return Err(Error::conflict("the run has ended already").with("run", run.id).with("view", &run.view).with("found", found));
    }
    let cut = partition::vector(session).await?;
    let run = RunRecord { status: RunStatus::Running, cut: Some(cut), ..run };
    run::put(session, &run, revision).await?;
    Ok((state::read(session, last).await?, run))
}

fn now_us() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as Micros)
}

#[cfg(test)]
mod tests;
