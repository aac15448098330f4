//! The demo's script: numbered steps. Each says in plain words what is done and shows the result.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use catalog::RunRecord;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Result};

use super::answers;
use super::ask::Client;
use super::checks::{self, Check};
use super::dead;
use super::decisions::{self, SINK};
use super::definitions::SOURCES;
use super::feed::Feed;
use super::handover::{self, AnswerParts};
use super::show::{Narrator, table, thousands};
use super::traffic::{LIVE_PER_SECOND, TrafficStream};
use crate::installation::Installation;
use crate::ledger;
use crate::pin::pinned;
use crate::up::Ready;

const VIEWS: [&str; 5] = ["device_links", "device_velocity", "ip_reputation", "ring_candidates", "user_profile"];
/// How long live traffic runs between the answers and the proof.
const LIVE: Duration = Duration::from_secs(2);
/// How long to wait for things that must happen soon: a view's run to end, a snapshot to be served.
const SOON: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct DemoScript {
    pub(super) narrator: Narrator,
    pub(super) installation: Installation,
    pub(super) feed: Feed,
    pub(super) folder: PathBuf,
    pub(super) once: bool,
    /// Records of history.
    pub(super) events: u64,
    pub(super) handover: Option<Check>,
    /// Set once all checks are made: a demo that is stopped earlier has proven nothing.
    pub(super) checks: Vec<Check>,
}

impl DemoScript {
    pub(super) async fn play(&mut self, ready: oneshot::Receiver<Ready>, stop: &CancellationToken) -> Result<()> {
        self.introduce();
        // If the layers end before they are ready, the caller returns their error as the demo's.
        let Ok(ready) = ready.await else { return std::future::pending().await };
        let client = Client::new(ready.url());
        self.show_definitions(&client);
        self.send_history().await?;
        self.run_batch_while_feeding().await?;
        self.show_way(&client).await?;
        self.show_answers(&client).await?;
        self.show_links(&client).await?;
        self.show_decisions().await?;
        self.show_handover(&client).await?;
        self.prove(&client).await?;
        if self.once {
            return Ok(());
        }
        self.say_what_next(&client).await;
        stop.cancelled().await;
        Ok(())
    }

    fn introduce(&self) {
        self.narrator.line("basestream demo: payments, fraud rings, and SQL that is complete and fresh");
        self.narrator.line("One plain SELECT per view; batch recomputes it, speed updates it, serving merges both. No service is needed.");
    }

    fn show_definitions(&mut self, client: &Client) {
        self.narrator.step("All layers are up, in this process, with their data in one folder");
        self.narrator.say(format!("folder  {}", self.folder.display()));
        self.narrator.say(format!("HTTP    {}", client.url));
        self.narrator.say("streams create_account, login, transactions");
        self.narrator.say(format!("views   {}", VIEWS.join(", ")));
        self.narrator.say(format!("sink    {SINK}"));
        self.narrator.say("One of the views, as its user wrote it; it joins two streams:");
        self.narrator.line("");
        if let Some((_, text)) = SOURCES.iter().find(|(file, _)| file.ends_with("device_links.sql")) {
            self.narrator.block(text);
        }
    }

    /// Sends four fifths of the history and waits until all of it is checkpointed.
    async fn send_history(&mut self) -> Result<()> {
        let first = self.events / 5 * 4;
        self.narrator.step("Payments traffic flows into the log: 95 days of history, then live");
        self.narrator.say("Synthetic, from a seed: skewed users, eight fraud rings, 2 % late by minutes to days,");
        self.narrator.say("1 % repeats, some dated in the future, some broken.");
        let began = Instant::now();
        self.feed.allow(first);
        while self.feed.sent() < first {
            tokio::time::sleep(LOOK).await;
        }
        let sent = began.elapsed();
        checks::wait_until_checkpointed(&self.installation).await?;
        let rate = (first as f64 / began.elapsed().as_secs_f64()) as i64;
        self.narrator.say(format!(
            "{} records in the log after {:.1} s, decided and checkpointed after {:.1} s ({} a second)",
            thousands(first as i64),
            sent.as_secs_f64(),
            began.elapsed().as_secs_f64(),
            thousands(rate)
        ));
        Ok(())
    }

    async fn run_batch_while_feeding(&mut self) -> Result<()> {
        self.narrator.step("Batch recomputes all views from the archive, while traffic keeps flowing in");
        self.feed.allow(u64::MAX);
        let before = self.feed.sent();
        let mut rows = Vec::new();
        for view in VIEWS {
            rows.push(run_line(&self.run(view).await?));
        }
        self.narrator.block(&table(&["view", "events read up to the cut", "state rows written", "seconds"], rows));
        self.narrator.say(format!("{} more records were sent meanwhile", thousands((self.feed.sent() - before) as i64)));
        while self.feed.sent() < self.events {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Runs a view now. If the scheduler is running it, waits until that run is done.
    async fn run(&self, view: &str) -> Result<RunRecord> {
        let began = Instant::now();
        loop {
            match self.installation.run_view(view, &|_| {}).await {
                Err(error) if error.kind() == ErrorKind::Conflict && began.elapsed() < SOON => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn show_way(&mut self, client: &Client) -> Result<()> {
        self.narrator.step("The data flow, with its current counts");
        let mut in_log = 0;
        for stream in TrafficStream::ALL {
            in_log += self.installation.log.bounds(stream.name()).await?.iter().map(|bounds| bounds.end.0 - bounds.begin.0).sum::<i64>();
        }
        let state = self.installation.catalog.state().await?;
        let devices = client.number("SELECT count(*) FROM device_velocity").await?;
        self.narrator.block(&answers::way(&state, in_log, devices));
        self.narrator.say("Every partition hands over at an offset, not at a time: a late event is counted once,");
        self.narrator.say("on the side where its offset is.");
        Ok(())
    }

    async fn show_answers(&mut self, client: &Client) -> Result<()> {
        self.narrator.step("Answers: SQL over the views, live");
        self.narrator.say("Devices on which many accounts were opened, with what they pay and how often they are declined:");
        self.narrator.block(&answers::devices(client).await?);
        self.narrator.say("Addresses from which many users log in:");
        self.narrator.block(&answers::addresses(client).await?);
        let ring = self.feed.pause().await.rings().iter().rev().find_map(|ring| ring.device().map(str::to_owned));
        if let Some(device) = ring {
            self.narrator.say(format!("One of them by key: {device} belongs to the ring that is at work right now."));
            self.narrator.block(&answers::device(client, &device).await?);
        }
        Ok(())
    }

    async fn show_links(&mut self, client: &Client) -> Result<()> {
        self.narrator.step("Links: which other devices do the users who opened an account on this one log in from?");
        self.narrator.say(format!("The rings that share a device, at the top of one query:  {}", checks::LINKS));
        self.narrator.block(&answers::links(client).await?);
        let ring = self.feed.pause().await.rings().iter().rev().find_map(|ring| ring.device().map(str::to_owned));
        if let Some(device) = ring {
            let config = answers::config(&self.folder);
            self.narrator.say(format!("Why {device} is there:  basestream lookup device_links device_id={device} --paths 5 {config}"));
            self.narrator.block(&answers::paths(client, &device).await?);
        }
        Ok(())
    }

    async fn show_decisions(&mut self) -> Result<()> {
        self.narrator.step("Decisions: each payment goes out again, with what the views said of its device at that moment");
        self.narrator.say(format!("What the sink {SINK} has put out so far, by its decision:"));
        let decided = decisions::read(&self.installation).await?;
        self.narrator.block(&decided.table());
        let config = answers::config(&self.folder);
        self.narrator.say(format!("As they come:  basestream sink read {SINK} --follow {config}"));
        Ok(())
    }

    /// The first ring was active at the first cut: its events are on both sides.
    async fn show_handover(&mut self, client: &Client) -> Result<()> {
        let ring = self.feed.pause().await.rings().iter().find_map(|ring| ring.device().map(str::to_owned));
        let Some(device) = ring else { return Ok(()) };
        self.narrator.step("The handover: the cut moves, the answer does not");
        self.narrator.say(format!("Device {device}, 90 days, before and after another batch run (other traffic keeps flowing in):"));
        // All of the ring's events are counted then, and the next cut is after them.
        checks::wait_until_checkpointed(&self.installation).await?;
        let before = AnswerParts::read(client, &device).await?;
        let run = self.run("device_velocity").await?;
        let after = self.served_run(client, &device, &run, &before).await?;
        self.narrator.block(&handover::compared(&before, &after));
        self.handover = Some(handover::check(&device, &before, &after));
        Ok(())
    }

    /// Returns the parts once the node serves the snapshot of a run.
    async fn served_run(&self, client: &Client, device: &str, run: &RunRecord, before: &AnswerParts) -> Result<AnswerParts> {
        let began = Instant::now();
        loop {
            let parts = AnswerParts::read(client, device).await?;
            if parts.batch != before.batch || before.speed == 0 {
                return Ok(parts);
            }
            if began.elapsed() > SOON {
                return Err(Error::unavailable("the node does not serve the new snapshot").with("run", run.id));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Under a pin, as a compaction may come in between.
    async fn prove(&mut self, client: &Client) -> Result<()> {
        let catalog = self.installation.catalog.clone();
        pinned(&catalog, "ledger", self.prove_pinned(client)).await
    }

    async fn prove_pinned(&mut self, client: &Client) -> Result<()> {
        tokio::time::sleep(LIVE).await;
        let traffic = self.feed.pause().await;
        self.narrator.step("The ledger: every record is counted once, by reading the files");
        let state = checks::wait_until_checkpointed(&self.installation).await?;
        let lines = ledger::partitions(&self.installation.storage, &state, &Default::default()).await?;
        self.narrator.block(&answers::ledger(&lines));
        let reasons = dead::reasons(&self.installation.storage, &state).await?;
        self.narrator.say("\nDead letters, kept with place, reason and raw record:");
        self.narrator.block(&answers::dead_letters(&reasons));
        self.narrator.step("The proof: traffic is paused, all is checkpointed; plain SQL recomputes every view");
        let began = Instant::now();
        let mut checks: Vec<Check> = self.handover.take().into_iter().collect();
        checks.extend(checks::check_ledger(&lines, traffic.truth()));
        checks.push(checks::check_log(&self.installation).await?);
        checks.push(checks::check_devices(client, traffic.truth()).await?);
        checks.push(checks::check_rings(client, &traffic).await?);
        checks.push(checks::check_links(client, &traffic).await?);
        checks.push(decisions::check(&self.installation, traffic.truth()).await?);
        checks.extend(checks::check_views(&self.installation, &client.url).await?);
        self.checks = checks;
        for check in &self.checks {
            self.narrator.say(check.to_string());
        }
        let failed = self.checks.iter().filter(|check| !check.passed).count();
        let verdict = match failed {
            0 => "Everything verified".to_owned(),
            _ => format!("{failed} of {} checks FAILED", self.checks.len()),
        };
        self.narrator.say(format!("\n{verdict}, in {:.1} s.", began.elapsed().as_secs_f64()));
        Ok(())
    }

    async fn say_what_next(&mut self, client: &Client) {
        let ring = self.feed.pause().await.rings().iter().rev().find_map(|ring| ring.device().map(str::to_owned));
        let device = ring.unwrap_or_else(|| "ID".into());
        self.narrator
            .step(&format!("Live traffic continues at {} events a second until Ctrl-C. Try in a second terminal:", LIVE_PER_SECOND));
        self.narrator.block(&answers::what_next(&client.url, &self.folder, &device));
    }
}

fn run_line(run: &RunRecord) -> Vec<String> {
    let micros = run.ended_at.zip(run.started_at).map_or(0, |(end, start)| end - start);
    vec![run.view.to_string(), thousands(run.events_read), thousands(run.rows_written), format!("{:.2}", micros as f64 / 1e6)]
}
