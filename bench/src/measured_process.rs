//! Runs `basestream speed` or `up` as a measured process: its processor time and memory, when it is idle, and what it
//! logs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::Deserialize;
use types::{Error, Result};

use crate::Programs;
use crate::child::{self, Used};

const POLL: Duration = Duration::from_millis(10);
/// A process is idle if for this long none of its threads waited for a disk, and together they used less than this
/// share of a core. One that reads uses most of a core; an idle debug build on a slow machine a tenth, for looking
/// whether there is something to do.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_SHARE: f64 = 0.2;
const READY: Duration = Duration::from_secs(300);
const END: Duration = Duration::from_secs(120);

/// Killed when it is dropped.
#[derive(Debug)]
pub struct MeasuredProcess {
    child: Child,
    log: PathBuf,
    used: Used,
}

/// A line of its log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Line {
    pub timestamp: DateTime<Utc>,
    pub fields: Fields,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Fields {
    #[serde(default)]
    pub message: String,
    /// The duration of a checkpoint.
    pub seconds: Option<f64>,
}

/// A process that exited normally.
#[derive(Debug)]
pub struct Ended {
    pub used: Used,
    /// When it was asked to stop.
    pub signalled_at: DateTime<Utc>,
    pub lines: Vec<Line>,
}

impl MeasuredProcess {
    /// Starts a command of the real binary. Its log, with every checkpoint, goes to a file in `folder`.
    pub fn start(programs: &Programs, command: &str, config: &Path, folder: &Path) -> Result<MeasuredProcess> {
        MeasuredProcess::start_with(programs, command, config, folder, &[])
    }

    /// The same, with environment variables.
    pub fn start_with(
        programs: &Programs,
        command: &str,
        config: &Path,
        folder: &Path,
        variables: &[(&str, &OsStr)],
    ) -> Result<MeasuredProcess> {
        let log = folder.join(format!("{command}.log"));
        let mut process = Command::new(&programs.basestream);
        process
            .args([command, "--log-level", "warn,speed=debug", "--log-format", "json", "--config"])
            .arg(config)
            .envs(variables.iter().copied());
        let child = process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?).spawn()?;
        Ok(MeasuredProcess { child, log, used: Used::default() })
    }

    /// Starts `up`, and waits until it is ready at an address.
    pub async fn up(programs: &Programs, config: &Path, folder: &Path, http: &str) -> Result<MeasuredProcess> {
        MeasuredProcess::up_with(programs, config, folder, http, &[]).await
    }

    /// The same, with environment variables.
    pub async fn up_with(
        programs: &Programs,
        config: &Path,
        folder: &Path,
        http: &str,
        variables: &[(&str, &OsStr)],
    ) -> Result<MeasuredProcess> {
        let mut process = MeasuredProcess::start_with(programs, "up", config, folder, variables)?;
        let (began, ready) = (Instant::now(), format!("http://{http}/readyz"));
        while !reqwest::get(&ready).await.is_ok_and(|answer| answer.status().is_success()) {
            process.wait_once(began, READY).await?;
        }
        Ok(process)
    }

    /// Waits for a line of its log, and returns it.
    pub async fn wait_for(&mut self, message: &str, limit: Duration) -> Result<Line> {
        let began = Instant::now();
        loop {
            if let Some(line) = self.lines()?.into_iter().find(|line| line.fields.message == message) {
                return Ok(line);
            }
            self.wait_once(began, limit).await?;
        }
    }

    /// Waits until it is idle, and returns since when.
    pub async fn wait_until_quiet(&mut self, limit: Duration) -> Result<DateTime<Utc>> {
        let began = Instant::now();
        let (mut since, mut worked) = (Instant::now(), worked_of(self.child.id()));
        let mut quiet_since = Utc::now();
        while since.elapsed() < QUIET {
            self.wait_once(began, limit).await?;
            let now = worked_of(self.child.id());
            if waits_for_disk(self.child.id())
                || now.saturating_sub(worked) > POLL.mul_f64(QUIET_SHARE).max(since.elapsed().mul_f64(QUIET_SHARE))
            {
                (since, worked, quiet_since) = (Instant::now(), now, Utc::now());
            }
        }
        Ok(quiet_since)
    }

    /// Sends SIGTERM, and waits until it exits.
    pub async fn stop(mut self) -> Result<Ended> {
        let signalled_at = Utc::now();
        Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        let began = Instant::now();
        loop {
            self.used = child::used_by(self.child.id()).unwrap_or(self.used).at_least(self.used);
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(Ended { used: self.used, signalled_at, lines: self.lines()? }),
                Some(_) => return Err(self.failed("it failed at its end")),
                None if began.elapsed() > END => return Err(self.failed("it did not end")),
                None => tokio::time::sleep(POLL / 2).await,
            }
        }
    }

    /// Errors if it has exited by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(_) => Err(self.failed("it ended by itself")),
            None => Ok(()),
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it used so far.
    pub fn used(&self) -> Used {
        child::used_by(self.child.id()).unwrap_or_default()
    }

    async fn wait_once(&mut self, began: Instant, limit: Duration) -> Result<()> {
        self.check()?;
        if began.elapsed() > limit {
            return Err(self.failed("it took too long").with("limit s", limit.as_secs()));
        }
        tokio::time::sleep(POLL).await;
        Ok(())
    }

    fn lines(&self) -> Result<Vec<Line>> {
        Ok(std::fs::read_to_string(&self.log)?.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn failed(&self, what: &str) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        Error::internal(format!("a process is not as expected: {what}")).with("log", last.join(" / "))
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of all live threads, at a finer resolution than `stat`.
fn worked_of(process: u32) -> Duration {
    let nanoseconds =
        |task: PathBuf| -> Option<u64> { std::fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse().ok() };
    Duration::from_nanos(tasks(process).filter_map(nanoseconds).sum())
}

fn waits_for_disk(process: u32) -> bool {
    let waits = |task: PathBuf| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    };
    tasks(process).any(waits)
}

fn tasks(process: u32) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten().map(|entry| entry.path())
}
