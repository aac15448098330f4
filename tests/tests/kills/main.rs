//! Kills processes: a known log is produced while processes are killed, stopped and started again, at named steps and
//! at random times. Once everything is quiet, every number has to be right.
//!
//! `BASESTREAM_KILLS` is the minimum number of processes that die by SIGKILL (every step must also be met),
//! `BASESTREAM_SEED` selects the lives. Times depend on the machine: a seed repeats the choices, not the schedule.

#![allow(clippy::unwrap_used)]

mod alerts;
mod decisions;
mod disk;
mod oracle;
mod plan;
mod producer;
mod proof;
mod reader;
mod records;
mod recovery;
mod seats;
mod site;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::patience::{self, in_time};
use basestream_tests::process::Urls;
use basestream_tests::services::engines;
use basestream_tests::small_disk;
use jobs::Installation;
use jobs::ledger::PartitionLine;
use rand::SeedableRng;
use rand::rngs::StdRng;
use types::failpoint::{ALERTS, BATCH, COLLECTOR, COMPACTION, INGEST, SERVING, SPEED};
use types::{Error, Result};

use disk::Disk;
use oracle::OracleInput;
use producer::Acknowledged;
use proof::{Quiet, replay, same};
use reader::{Sample, Seen};
use records::Maker;
use seats::{Seats, Servers, missing};
use site::{Site, embedded};

const FILE_RECORDS: usize = 400;
/// Every step has to be met in runs with at least this many kills.
const EVERY_STEP_FROM: u64 = 200;
const PARTS: [&[&str]; 6] = [&SPEED, &BATCH, &COLLECTOR, &SERVING, &INGEST, &ALERTS];

/// On a small disk, where the environment allows to mount one; judged by the oracle too, where it is installed.
#[tokio::test(flavor = "multi_thread")]
async fn kills_on_the_embedded_defaults_lose_nothing_and_double_nothing() {
    if small_disk::again("kills_on_the_embedded_defaults_lose_nothing_and_double_nothing", disk::MEBIBYTES, &[]).unwrap() {
        return;
    }
    let judge = match basestream_tests::oracle::python() {
        Some(_) => Judge::Oracle,
        None => Judge::Alone,
    };
    let disk = Disk::seen();
    let folder = disk.as_ref().map_or_else(tempfile::tempdir, |disk| tempfile::tempdir_in(disk.path())).unwrap();
    let again = tempfile::tempdir().unwrap();
    let urls = embedded(folder.path());
    let replayed = Urls { log: urls.log.clone(), ..embedded(again.path()) };
    kills(Environment { urls, replayed, topic: "kills".into(), disk }, 60, judge).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services and the oracle: just test-services"]
async fn kills_on_kafka_postgres_and_s3_lose_nothing_and_double_nothing() {
    let (urls, replayed) = (engines("kills").await, engines("replay").await);
    let topic = format!("kills_{}", uuid::Uuid::now_v7().simple());
    basestream_tests::oracle::needed();
    in_time(kills(Environment { urls, replayed, topic, disk: None }, 30, Judge::Oracle).await);
}

/// What the results are compared with, besides the product's own `verify`, recompute and replay.
#[derive(Clone, Copy, PartialEq)]
enum Judge {
    Alone,
    /// Python with DuckDB, over the log.
    Oracle,
}

/// What the killed processes work on.
struct Environment {
    urls: Urls,
    /// Of the installation that replays the same log.
    replayed: Urls,
    topic: String,
    disk: Option<Disk>,
}

async fn kills(environment: Environment, least: u64, judge: Judge) -> Result<()> {
    let Environment { urls, replayed, topic, mut disk } = environment;
    let seed = number("BASESTREAM_SEED").unwrap_or_else(rand::random);
    let least = number("BASESTREAM_KILLS").unwrap_or(least);
    let began = Instant::now();
    let site = Site::new(urls, &topic)?;
    if let Some(disk) = &mut disk {
        disk.know(began.elapsed());
    }
    say(format!(
        "kills: seed {seed}, {least} kills at the least, on {}, {}",
        if site.is_kafka { "Kafka, PostgreSQL and S3" } else { "the embedded defaults" },
        if disk.is_some() { "on a disk that runs full" } else { "without a small disk" }
    ));
    let outcome = prove((&site, disk.as_mut()), replayed, seed, least, judge).await;
    if let Err(error) = &outcome {
        let kept = std::env::temp_dir().join(format!("kills-{seed}"));
        let _ = std::process::Command::new("cp").arg("-r").arg(site.project.folder.path()).arg(&kept).status();
        let _ = std::fs::write(kept.join("error"), error.to_string());
        say(format!("kills: seed {seed} failed after {:?}: {error}\nlogs: {}", began.elapsed(), kept.display()));
    }
    outcome
}

async fn prove((site, disk): (&Site, Option<&mut Disk>), replayed: Urls, seed: u64, least: u64, judge: Judge) -> Result<()> {
    let began = Instant::now();
    let producing = site.installation().await?;
    let Load { acknowledged, seen, file_ids } = run((site, disk), &producing, seed, least).await?;
    let records = producer::read_back(site, &*producing.log, acknowledged).await?;
    let (served, ledger) = settled(site, &producing, replayed).await?;
    say(format!("kills: {} records; served, recomputed and replayed alike", records.len()));
    if judge == Judge::Alone {
        say("kills: not judged by the oracle, which tests/oracle/setup installs".to_owned());
    } else {
        let samples = [seen.samples.as_slice(), &served].concat();
        let (once, at_least_once) = (&seen.appended, &file_ids);
        let input = OracleInput { site, records: &records, samples: &samples, ledger: &ledger, once, at_least_once };
        say(format!("kills: the oracle: {}", oracle::ask(&input)?));
    }
    say(format!("kills: proven in {:.0} s, seed {seed}", began.elapsed().as_secs_f64()));
    Ok(())
}

/// What was sent to the log while processes were killed, and what readers saw.
struct Load {
    acknowledged: Acknowledged,
    seen: Seen,
    /// The ids in the files, which may have been sent more than once.
    file_ids: Vec<String>,
}

/// Produces and reads while processes are killed, until enough died.
async fn run((site, mut disk): (&Site, Option<&mut Disk>), producing: &Installation, seed: u64, least: u64) -> Result<Load> {
    let began = Instant::now();
    let (stop, servers) = (Arc::new(AtomicBool::new(false)), Servers::default());
    let read = tokio::spawn(reader::read(servers.clone(), seed + 2, stop.clone()));
    let produce = producer::produce(site, producing.log.clone(), seed + 3, stop.clone());
    let mut file_ids = Vec::new();
    let mut maker = Maker::new("f", StdRng::seed_from_u64(seed + 4));
    let make_file = |number: usize| {
        let now_ms = chrono::Utc::now().timestamp_millis();
        let (ids, lines): (Vec<String>, Vec<String>) = (0..FILE_RECORDS).map(|_| maker.payment_line(now_ms)).unzip();
        file_ids.extend(ids);
        let path = site.project.folder.path().join(format!("file{number}.jsonl"));
        std::fs::write(&path, lines.join("\n"))?;
        Ok(path)
    };
    let mut seats = Seats::new((site, disk.as_deref_mut()), StdRng::seed_from_u64(seed), servers, make_file);
    let died = async {
        let died = until_enough_died(site, &mut seats, least).await;
        stop.store(true, Ordering::Relaxed);
        died
    };
    let (acknowledged, died) = tokio::join!(produce, died);
    let seen = read.await?;
    report(site, &seats, &seen, began.elapsed());
    died?;
    for file in seats.unfinished_files() {
        site.project.ok(&["ingest", "payments", &file.display().to_string()])?;
    }
    drop(seats);
    if let Some(disk) = disk {
        say(format!("kills: the disk was full {} times", disk.was_full(site)?));
    }
    Ok(Load { acknowledged, seen, file_ids })
}

/// Once nothing is killed any more: what is served, put out, recomputed and replayed agrees, and the ledger is whole.
async fn settled(site: &Site, producing: &Installation, replayed: Urls) -> Result<(Vec<Sample>, Vec<PartitionLine>)> {
    let quiet = Quiet::begin(site).await?;
    let served = quiet.answers("what is served").await?;
    let ledger = quiet.ledger().await?;
    say(format!("kills: {}", decisions::check(site, &*producing.log).await?));
    say(format!("kills: {}", alerts::check(site, &producing.catalog, &*producing.log).await?));
    quiet.verify()?;
    quiet.recompute().await?;
    same(&served, &quiet.answers("the full recompute").await?)?;
    quiet.materialised(&served).await?;
    quiet.nothing_left_by_runs().await?;
    quiet.ledger().await?;
    quiet.end().await?;
    same(&served, &replay(site, replayed).await?)?;
    Ok((served, ledger))
}

/// Runs until enough processes died and each wanted step had a kill: first with faults everywhere, then at the steps
/// alone that were not met.
async fn until_enough_died(site: &Site, seats: &mut Seats<'_>, least: u64) -> Result<()> {
    let began = Instant::now();
    // Far more than either takes.
    let limit = Duration::from_secs(600 + least * 4);
    let mut left = missing(site);
    let mut looked = Instant::now();
    loop {
        let wanted = wanted(site, &left, least);
        match seats.kills() < least {
            true => seats.step(&left)?,
            false if wanted.is_empty() => return seats.end(),
            false => seats.step_focused(&wanted)?,
        }
        if looked.elapsed() > Duration::from_millis(100) {
            left = missing(site);
            looked = Instant::now();
        }
        if seats.kills() > 30 && site.fired().is_empty() {
            let built = "cargo test --workspace --test kills --test cli";
            return Err(Error::input("the binary passes no step at which it could be killed")
                .with("found", "a build without failpoints")
                .with("expected", built));
        }
        if began.elapsed() > limit {
            return Err(patience::ended(format!("after {limit:?} and {} kills nothing was killed at {wanted:?}", seats.kills())));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The steps at which a process still has to be killed: all that are `left`, except in a short run. There, one step of
/// the collector is enough, and none of compaction, because they wait for others to create work for them; and on Kafka,
/// whose groups settle slowly, one step of each part is enough.
fn wanted(site: &Site, left: &BTreeSet<&'static str>, least: u64) -> BTreeSet<&'static str> {
    let none_of = |steps: &[&'static str]| steps.iter().all(|step| left.contains(step));
    let of_parts =
        |parts: &[&[&'static str]]| parts.iter().filter(|steps| none_of(steps)).flat_map(|steps| steps.iter().copied()).collect();
    match (least < EVERY_STEP_FROM, site.is_kafka) {
        (false, _) => left.clone(),
        (true, true) => of_parts(&PARTS),
        (true, false) => {
            let waits_for_others = |step: &&str| COLLECTOR.contains(step) || COMPACTION.contains(step);
            let mut wanted: BTreeSet<&'static str> = of_parts(&[&COLLECTOR]);
            wanted.extend(left.iter().copied().filter(|step| !waits_for_others(step)));
            wanted
        }
    }
}

fn report(site: &Site, seats: &Seats<'_>, seen: &Seen, took: Duration) {
    let tally = &seats.tally;
    let kills = seats.kills();
    say(format!("kills: {kills} in {:.0} s; by role {:?} of {:?} lives", took.as_secs_f64(), tally.killed, tally.lives));
    say(format!("kills: {} went on as zombies, {} ended in order; {} answers meanwhile", tally.zombies, tally.terminated, seen.answers));
    let fired: Vec<String> = site.fired().iter().map(|((step, action), count)| format!("{step} {action} {count}")).collect();
    say(format!("kills: at steps: {}", fired.join(", ")));
    if !seen.errors.is_empty() {
        say(format!("kills: answered instead of rows: {:?}", seen.errors));
    }
}

/// Not eprintln!: the output of a passing test is captured, and this must be visible.
fn say(line: String) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
