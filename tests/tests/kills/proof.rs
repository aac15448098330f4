//! Once everything is quiet: served == oracle == plain SQL over the archive == full recompute == what runs joined ==
//! replay, and the ledger balances.

use std::time::{Duration, Instant};

use basestream_tests::patience::{self, PATIENCE};
use basestream_tests::process::{Running, Urls};
use catalog::RunStatus;
use committed::registry::Registry;
use engine::events::parse_timestamp;
use jobs::Installation;
use jobs::collect::collect_left_by_runs;
use jobs::ledger::{self, PartitionLine};
use jobs::verify::Verifier;
use types::files::ObjectName;
use types::tiles::Micros;
use types::vector::{PartitionId, Vector};
use types::{Error, Result};

use crate::reader::{Sample, ask};
use crate::site::{LINKED, STREAMS, Site, VIEWS};

/// A quiet installation: a worker that caught up, and a node.
pub struct Quiet<'a> {
    site: &'a Site,
    speed: Running,
    serve: Running,
    pub installation: Installation,
    /// The log's end.
    pub end: Vector,
}

impl<'a> Quiet<'a> {
    /// Starts both and waits until everything in the log is committed.
    pub async fn begin(site: &'a Site) -> Result<Quiet<'a>> {
        let installation = site.installation().await?;
        let (speed, serve) = (site.project.start("speed")?, site.project.start("serve")?);
        let end = end_of(site, &installation).await?;
        let quiet = Quiet { site, speed, serve, installation, end };
        // A slow machine takes its time for all that was produced: as long as it gets on, it is waited for.
        let (mut last, mut since) = (Vector::new(), Instant::now());
        loop {
            let vector = quiet.installation.catalog.state().await?.vector();
            if vector.covers(&quiet.end) {
                break;
            }
            if vector != last {
                (last, since) = (vector, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                let log = site.project.log_of("speed");
                return Err(patience::ended(format!("the log ends at {}, committed is {last}\n{log}", quiet.end)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(quiet)
    }

    /// All rows of each view, at the log's end.
    pub async fn answers(&self, of: &str) -> Result<Vec<Sample>> {
        let client = reqwest::Client::new();
        let port = self.port();
        let mut answers = Vec::new();
        for view in VIEWS {
            let began = Instant::now();
            loop {
                let answer = ask(&client, port, view, of).await;
                match answer {
                    Ok(answer) if Vector::from_token(&answer.cut)?.covers(&self.end) => {
                        answers.push(answer);
                        break;
                    }
                    answer if began.elapsed() > PATIENCE => {
                        let log = self.site.project.log_of("serve");
                        return Err(patience::ended(format!("{view} is not served: {answer:?}\n{log}")));
                    }
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }
        Ok(answers)
    }

    /// Runs `verify --log` for each view, and `verify` over HTTP.
    pub fn verify(&self) -> Result<()> {
        let url = format!("http://{}", self.site.project.http);
        for view in VIEWS {
            self.site.project.ok(&["verify", view, "--log"])?;
            self.site.project.ok(&["verify", view, "--url", &url])?;
        }
        Ok(())
    }

    /// Recomputes every view from the archive by a batch run, which gives the states that incremental runs had kept. A
    /// dead run's lease has to expire first.
    pub async fn recompute(&self) -> Result<()> {
        let asked_at = basestream_tests::now();
        for view in VIEWS {
            let began = Instant::now();
            loop {
                // Nothing is killed any more, so a lease lost on a busy machine would prove nothing.
                let run = self
                    .site
                    .project
                    .command(&["batch", "run", view, "--full", "--json"])?
                    .env("BASESTREAM__BATCH__LEASE", "60s")
                    .output()?;
                if run.status.success() {
                    compared(view, &run.stdout)?;
                    break;
                }
                if began.elapsed() > PATIENCE {
                    return Err(Error::internal(format!("batch run {view}: {}", String::from_utf8_lossy(&run.stderr))));
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        self.until_served_from_after(asked_at).await
    }

    /// Checks that runs that were killed left nothing: every file of a snapshot is named by the catalog.
    pub async fn nothing_left_by_runs(&self) -> Result<()> {
        let (catalog, storage) = (&self.installation.catalog, &self.installation.storage);
        let later: types::tiles::Clock = std::sync::Arc::new(|| basestream_tests::now() + 2 * 60_000_000);
        collect_left_by_runs(catalog, storage, &later, &mut Default::default()).await?;
        let listed = storage.list("snapshots").await?;
        let state = catalog.state().await?;
        // The state has the newest runs. What older ones left goes with the hourly listing.
        let is_recent = |path: &str| {
            let run = path.parse().ok().and_then(|name: ObjectName| name.run());
            run.is_some_and(|run| state.runs.iter().any(|known| known.id == run && known.status != RunStatus::Running))
        };
        let left: Vec<&str> = listed.iter().map(|object| object.path.as_str()).filter(|path| state.files.get(path).is_none()).collect();
        // The next recomputation goes on with these.
        let is_kept = |path: &str| match path.parse() {
            Ok(ObjectName::SliceBucket { view, version, .. } | ObjectName::Draft { view, version, .. }) => {
                catalog::draft_to_resume(&state, &view, version, basestream_tests::now()).is_some()
            }
            _ => false,
        };
        match left.iter().find(|path| is_recent(path) && !is_kept(path)) {
            Some(path) => Err(Error::corrupt(format!("{path} was left by a run that ended, and nothing names it"))),
            None => Ok(()),
        }
    }

    /// Checks that the rows of the last runs' joins equal the walk's answers: no events came since, and by the events'
    /// clock no time passed.
    pub async fn materialised(&self, served: &[Sample]) -> Result<()> {
        let client = reqwest::Client::new();
        for (view, joined) in LINKED {
            let found = ask(&client, self.port(), joined, "what the last run joined").await.map_err(Error::internal)?;
            let walked = served.iter().find(|sample| sample.view == view);
            let walked = walked.ok_or_else(|| Error::internal(format!("{view} was not asked")))?;
            if found.rows != walked.rows {
                let other = found.rows.iter().find(|row| !walked.rows.contains(row));
                let (rows, expected) = (found.rows.len(), walked.rows.len());
                return Err(Error::corrupt(format!("{joined} has {rows} rows, a walk {expected}; no walk has {other:?}")));
            }
        }
        Ok(())
    }

    fn port(&self) -> u16 {
        self.site.project.http.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Waits until the node answers every view from a snapshot made after `time`.
    async fn until_served_from_after(&self, time: Micros) -> Result<()> {
        let began = Instant::now();
        loop {
            let answers = self.answers("the new snapshots").await?;
            let is_new = |answer: &Sample| parse_timestamp(&answer.snapshot_at).is_ok_and(|made| made >= time);
            if answers.iter().all(is_new) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let made: Vec<_> = answers.iter().map(|answer| (answer.view, &answer.snapshot_at)).collect();
                return Err(patience::ended(format!("the node does not serve the new snapshots: {made:?}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The ledger of partitions and of each view, read from files.
    pub async fn ledger(&self) -> Result<Vec<PartitionLine>> {
        let of = &self.installation;
        let state = of.catalog.state().await?;
        let lines = ledger::partitions(&of.storage, &state, &Vector::new()).await?;
        if let Some(line) = lines.iter().find(|line| line.mismatch.is_some()) {
            return Err(Error::corrupt(format!("the ledger does not balance: {line:?}")));
        }
        let functions = of.functions.clone();
        let verifier =
            Verifier { catalog: of.catalog.clone(), storage: of.storage.clone(), functions, memory_limit: 1 << 30, temp_dir: None };
        let t = state.partitions.values().filter_map(|partition| partition.max_event_time).max().unwrap_or_default();
        for live in &Registry::load(&state, &of.functions).await?.views {
            let line = ledger::view(&verifier, &state, live, t).await?;
            if !line.balanced {
                return Err(Error::corrupt(format!("the ledger of a view does not balance: {line:?}")));
            }
        }
        Ok(lines)
    }

    pub async fn end(self) -> Result<()> {
        for running in [self.speed, self.serve] {
            let code = running.terminate()?;
            if code != Some(0) {
                return Err(Error::internal(format!("SIGTERM is answered with {code:?}")));
            }
        }
        self.installation.close().await;
        Ok(())
    }
}

/// Replays the same log through the streaming code of a new installation; returns what it serves.
pub async fn replay(site: &Site, urls: Urls) -> Result<Vec<Sample>> {
    let again = Site::with(urls, &site.topic, "200ms", "replay")?;
    let quiet = Quiet::begin(&again).await?;
    let answers = quiet.answers("the replay").await?;
    quiet.end().await?;
    Ok(answers)
}

/// Checks that two sets of answers at one vector are the same, row for row.
pub fn same(left: &[Sample], right: &[Sample]) -> Result<()> {
    for (left, right) in left.iter().zip(right) {
        let is_same = (&left.cut, &left.as_of, &left.rows) == (&right.cut, &right.as_of, &right.rows);
        if !is_same {
            let other = left.rows.iter().zip(&right.rows).find(|(left, right)| left != right);
            let places =
                [left, right].map(|sample| format!("{} at {} {}, {} rows", sample.of, sample.as_of, sample.cut, sample.rows.len()));
            return Err(Error::corrupt(format!("{}: {} and {} differ: {other:?}", left.view, places[0], places[1])));
        }
    }
    Ok(())
}

async fn end_of(site: &Site, installation: &Installation) -> Result<Vector> {
    let mut end = Vector::new();
    for stream in STREAMS {
        for bounds in installation.log.bounds(&site.topic_of(stream)).await? {
            end.set(PartitionId::new(stream, bounds.partition), bounds.end);
        }
    }
    Ok(end)
}

/// Fails unless the run found the states that incremental runs had kept.
fn compared(view: &str, stdout: &[u8]) -> Result<()> {
    let run: serde_json::Value = serde_json::from_slice(stdout)?;
    let comparison = &run["comparison"];
    match comparison.is_null() || (comparison["differences"] == 0 && comparison["error"].is_null()) {
        true => Ok(()),
        false => Err(Error::corrupt(format!("{view}: a full run differs from the incremental ones: {comparison}"))),
    }
}
