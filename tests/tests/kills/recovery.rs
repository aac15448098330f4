//! Measures recovery: the time from SIGKILL of the speed layer, restarted at once, to the next committed checkpoint.
//!
//!     cargo test --workspace --test kills --test cli -- --ignored --nocapture recovery
//!
//! `BASESTREAM_INTERVAL_MS` is the checkpoint interval (1000), `BASESTREAM_RECOVERIES` how many times it is killed
//! (30).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::process::Urls;
use basestream_tests::services::engines;
use jobs::Installation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use types::{Error, Result};

use crate::producer::produce;
use crate::site::{SESSION_TIMEOUT, Site, embedded};
use crate::{number, say};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of a minute: `just recovery`"]
async fn recovery_on_the_embedded_defaults_takes_at_most_three_intervals() {
    let folder = tempfile::tempdir().unwrap();
    measure(embedded(folder.path()), "recovery").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of two minutes: `just recovery`"]
async fn recovery_on_kafka_takes_at_most_three_intervals_and_the_session_timeout() {
    let urls = engines("recovery").await;
    measure(urls, &format!("recovery_{}", uuid::Uuid::now_v7().simple())).await.unwrap();
}

async fn measure(urls: Urls, topic: &str) -> Result<()> {
    let interval = Duration::from_millis(number("BASESTREAM_INTERVAL_MS").unwrap_or(1_000));
    let times = number("BASESTREAM_RECOVERIES").unwrap_or(30);
    let seed = number("BASESTREAM_SEED").unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    let site = Site::with(urls, topic, &format!("{}ms", interval.as_millis()), "recovery")?;
    let installation = site.installation().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let killing = async {
        let mut measured = Vec::new();
        let mut speed = site.project.start("speed")?;
        wait_for_checkpoint(&site, &installation).await?;
        for _ in 0..times {
            tokio::time::sleep(interval.mul_f64(random.random_range(0.0..2.0))).await;
            speed.kill()?;
            let killed = Instant::now();
            speed = site.project.start("speed")?;
            wait_for_checkpoint(&site, &installation).await?;
            measured.push(killed.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        speed.terminate()?;
        Ok::<_, Error>(measured)
    };
    let (_, measured) = tokio::join!(produce(&site, installation.log.clone(), seed, stop.clone()), async {
        let measured = killing.await;
        stop.store(true, Ordering::Relaxed);
        measured
    });
    let mut measured = measured?;
    measured.sort();
    let (least, median, most) = (measured[0], measured[measured.len() / 2], measured[measured.len() - 1]);
    let bound = interval * 3 + if site.is_kafka { SESSION_TIMEOUT } else { Duration::ZERO };
    say(format!(
        "recovery: {times} kills, interval {interval:?}: min {least:.2?}, median {median:.2?}, max {most:.2?}; bound {bound:.2?}; seed {seed}"
    ));
    if most > bound {
        return Err(Error::limit(format!("a recovery took {most:?}: expected at most {bound:?}; all: {measured:?}")));
    }
    Ok(())
}

/// Waits until a new checkpoint is committed.
async fn wait_for_checkpoint(site: &Site, installation: &Installation) -> Result<()> {
    let newest = |state: &catalog::CatalogState| state.checkpoints.last().map(|checkpoint| checkpoint.id);
    let before = newest(&*installation.catalog.state().await?);
    let began = Instant::now();
    while newest(&*installation.catalog.state().await?) == before {
        if began.elapsed() > Duration::from_secs(60) {
            return Err(Error::internal(format!("no checkpoint\n{}", site.project.log_of("speed"))));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
