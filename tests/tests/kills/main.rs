//! Kills processes: a known log is produced while processes are killed, stopped and started again, at named steps and
//! at random times. Once everything is quiet, every number has to be right.
//!
//! `BASESTREAM_KILLS` is the minimum number of processes that die by SIGKILL (every step must also be met),
//! `BASESTREAM_SEED` selects the lives. Times depend on the machine: a seed repeats the choices, not the schedule.

#![allow(clippy::unwrap_used)]

mod decisions;
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

use basestream_tests::process::Urls;
use basestream_tests::services::engines;
use rand::SeedableRng;
use rand::rngs::StdRng;
use types::failpoint::{BATCH, COLLECTOR, COMPACTION, INGEST, SERVING, SPEED};
use types::{Error, Result};

use oracle::Question;
use proof::{Quiet, replay, same};
use records::Maker;
use seats::{Seats, Servers, missing};
use site::{Site, embedded};

const FILE_RECORDS: usize = 400;
/// Every step has to be met in runs with at least this many kills.
const EVERY_STEP_FROM: u64 = 200;
const PARTS: [&[&str]; 5] = [&SPEED, &BATCH, &COLLECTOR, &SERVING, &INGEST];

#[tokio::test(flavor = "multi_thread")]
async fn kills_on_the_embedded_defaults_lose_nothing_and_double_nothing() {
    kills_on_embedded(Judge::Alone).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn kills_on_the_embedded_defaults_leave_what_the_oracle_says() {
    kills_on_embedded(Judge::Oracle).await;
}

async fn kills_on_embedded(judge: Judge) {
    let folder = tempfile::tempdir().unwrap();
    let again = tempfile::tempdir().unwrap();
    let urls = embedded(folder.path());
    let replayed = Urls { log: urls.log.clone(), ..embedded(again.path()) };
    kills(urls, replayed, "kills", 60, judge).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services and the oracle: just test-services"]
async fn kills_on_kafka_postgres_and_s3_lose_nothing_and_double_nothing() {
    let (urls, replayed) = (engines("kills").await, engines("replay").await);
    let topic = format!("kills_{}", uuid::Uuid::now_v7().simple());
    kills(urls, replayed, &topic, 30, Judge::Oracle).await.unwrap();
}

/// What the results are compared with, besides the product's own `verify`, recompute and replay.
#[derive(Clone, Copy, PartialEq)]
enum Judge {
    Alone,
    /// Python with DuckDB, over the log.
    Oracle,
}

async fn kills(urls: Urls, replayed: Urls, topic: &str, least: u64, judge: Judge) -> Result<()> {
    if judge == Judge::Oracle {
        // Not only after the kills.
        basestream_tests::oracle::needed();
    }
    let seed = number("BASESTREAM_SEED").unwrap_or_else(rand::random);
    let least = number("BASESTREAM_KILLS").unwrap_or(least);
    let began = Instant::now();
    let site = Site::new(urls, topic)?;
    say(format!(
        "kills: seed {seed}, {least} kills at the least, on {}",
        if site.is_kafka { "Kafka, PostgreSQL and S3" } else { "the embedded defaults" }
    ));
    let outcome = prove(&site, replayed, seed, least, judge).await;
    if let Err(error) = &outcome {
        let kept = std::env::temp_dir().join(format!("kills-{seed}"));
        let _ = std::process::Command::new("cp").arg("-r").arg(site.project.folder.path()).arg(&kept).status();
        let _ = std::fs::write(kept.join("error"), error.to_string());
        say(format!("kills: seed {seed} failed after {:?}: {error}\nlogs: {}", began.elapsed(), kept.display()));
    }
    outcome
}

async fn prove(site: &Site, replayed: Urls, seed: u64, least: u64, judge: Judge) -> Result<()> {
    let began = Instant::now();
    let producing = site.installation().await?;
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
    let mut seats = Seats::new(site, StdRng::seed_from_u64(seed), servers, make_file);
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

    let told = producer::read_back(site, &*producing.log, acknowledged).await?;
    let quiet = Quiet::begin(site).await?;
    let served = quiet.answers("what is served").await?;
    let ledger = quiet.ledger().await?;
    say(format!("kills: {}", decisions::check(site, &*producing.log).await?));
    quiet.verify()?;
    quiet.recompute().await?;
    same(&served, &quiet.answers("the full recompute").await?)?;
    quiet.materialised(&served).await?;
    quiet.nothing_left_by_runs().await?;
    quiet.ledger().await?;
    quiet.end().await?;
    same(&served, &replay(site, replayed).await?)?;

    say(format!("kills: {} records; served, recomputed and replayed alike", told.len()));
    if judge == Judge::Oracle {
        let samples = [seen.samples.as_slice(), &served].concat();
        let question = Question { site, told: &told, samples: &samples, ledger: &ledger, once: &seen.appended, at_least_once: &file_ids };
        say(format!("kills: the oracle: {}", oracle::ask(&question)?));
    }
    say(format!("kills: proven in {:.0} s, seed {seed}", began.elapsed().as_secs_f64()));
    Ok(())
}

/// Runs until enough processes died and each step had a kill.
async fn until_enough_died(site: &Site, seats: &mut Seats<'_>, least: u64) -> Result<()> {
    let began = Instant::now();
    let limit = Duration::from_secs(120 + least * if site.is_kafka { 4 } else { 2 });
    let mut left = missing(site);
    let mut looked = Instant::now();
    while seats.kills() < least || !is_met(site, &left, least) {
        seats.is_calm = seats.kills() >= least && left.iter().all(|step| waits_for_others(step));
        seats.step(&left)?;
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
            return Err(Error::internal(format!("timed out: after {limit:?} and {} kills nothing was killed at {left:?}", seats.kills())));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seats.end()
}

/// Whether a step is reached only after others have made work for it.
fn waits_for_others(step: &str) -> bool {
    COLLECTOR.contains(&step) || COMPACTION.contains(&step)
}

/// Whether enough steps had a kill: all of them, except in a short run. There, one step of the collector is enough, and
/// none of compaction, because they wait for others to create work for them; and on Kafka, whose groups settle slowly,
/// one step of each part is enough.
fn is_met(site: &Site, left: &BTreeSet<&'static str>, least: u64) -> bool {
    let one_of = |steps: &[&'static str]| steps.iter().any(|step| !left.contains(step));
    match (least < EVERY_STEP_FROM, site.is_kafka) {
        (false, _) => left.is_empty(),
        (true, true) => PARTS.iter().all(|steps| one_of(steps)),
        (true, false) => one_of(&COLLECTOR) && left.iter().all(|step| waits_for_others(step)),
    }
}

fn report(site: &Site, seats: &Seats<'_>, seen: &reader::Seen, took: Duration) {
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
