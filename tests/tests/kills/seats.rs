//! Runs short-lived processes: each is started with a fault, watched until the fault occurs, and replaced by the next
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use basestream_tests::process::free_port;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use types::failpoint::{ALERTS, FULL_RUN};
use types::{Error, Result};

use crate::disk::Disk;
use crate::plan::{Action, Fault, Role, all_steps, choose, focused};
use crate::site::{ALL_VIEWS, Site};

/// How many processes live at once, not counting the zombies.
const SEATS: usize = 4;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Servers that can be queried: process and port.
pub type Servers = Arc<Mutex<BTreeMap<u32, u16>>>;

/// Counts of what happened to the processes.
#[derive(Debug, Default)]
pub struct Tally {
    pub lives: BTreeMap<Role, u64>,
    /// Processes that ended by SIGKILL, by role.
    pub killed: BTreeMap<Role, u64>,
    /// Processes that were stopped and continued later.
    pub zombies: u64,
    pub terminated: u64,
}

pub struct Seats<'a> {
    site: &'a Site,
    random: StdRng,
    seats: Vec<Life>,
    zombies: Vec<Zombie>,
    servers: Servers,
    files: Vec<IngestFile>,
    make_file: Box<dyn FnMut(usize) -> Result<std::path::PathBuf> + 'a>,
    disk: Option<&'a mut Disk>,
    pub tally: Tally,
    /// The only step at which a process is to be killed. Besides that process, only roles that create work for it get a
    /// seat, without faults.
    focus: Option<&'static str>,
}

/// A file for `ingest`, ingested repeatedly until a process finishes it.
struct IngestFile {
    path: std::path::PathBuf,
    done: bool,
}

struct Life {
    child: Child,
    role: Role,
    /// The port of a server.
    port: u16,
    fault: Fault,
    began: Instant,
    /// When the process is killed even if its fault did not occur.
    until: Instant,
    terminated: bool,
}

struct Zombie {
    life: Life,
    wakes: Instant,
    awake: bool,
    until: Instant,
}

impl<'a> Seats<'a> {
    /// `make_file` writes the next file for `ingest`.
    pub fn new(
        (site, disk): (&'a Site, Option<&'a mut Disk>),
        random: StdRng,
        servers: Servers,
        make_file: impl FnMut(usize) -> Result<std::path::PathBuf> + 'a,
    ) -> Seats<'a> {
        let (seats, zombies, files) = (Vec::new(), Vec::new(), Vec::new());
        let (make_file, tally) = (Box::new(make_file), Tally::default());
        Seats { site, random, seats, zombies, servers, files, make_file, disk, tally, focus: None }
    }

    pub fn kills(&self) -> u64 {
        self.tally.killed.values().sum()
    }

    /// Fills the free seats and checks every process once. `missing` are the steps at which nothing was killed yet.
    pub fn step(&mut self, missing: &BTreeSet<&'static str>) -> Result<()> {
        self.focus = None;
        self.step_with(missing)
    }

    /// The same, but only one process has a fault: at one of the steps that are `wanted`, and the next one once that
    /// occurred or did not occur in its time. A step that is rarely reached among the faults of others is reached like
    /// this, however slow the machine is.
    pub fn step_focused(&mut self, wanted: &BTreeSet<&'static str>) -> Result<()> {
        if !self.focus.is_some_and(|step| wanted.contains(step) && self.is_tried(step)) {
            self.focus = wanted.iter().copied().choose(&mut self.random);
        }
        self.step_with(wanted)
    }

    /// Whether a process is to be killed at this step.
    fn is_tried(&self, step: &str) -> bool {
        self.seats.iter().any(|life| life.fault.is_at(step))
    }

    fn step_with(&mut self, missing: &BTreeSet<&'static str>) -> Result<()> {
        self.disk.as_mut().map_or(Ok(()), |disk| disk.step())?;
        while self.seats.len() < SEATS {
            if !self.sit_down(missing)? {
                break;
            }
        }
        for life in std::mem::take(&mut self.seats) {
            self.attend(life)?;
        }
        for zombie in std::mem::take(&mut self.zombies) {
            self.attend_zombie(zombie)?;
        }
        Ok(())
    }

    /// Kills all processes with SIGKILL.
    pub fn end(&mut self) -> Result<()> {
        let zombies = std::mem::take(&mut self.zombies).into_iter().map(|zombie| zombie.life);
        for mut life in std::mem::take(&mut self.seats).into_iter().chain(zombies) {
            life.child.kill()?;
            let status = life.child.wait()?;
            self.bury(life, status)?;
        }
        self.disk.as_mut().map_or(Ok(()), |disk| disk.give_space())
    }

    /// Files that no process finished.
    pub fn unfinished_files(&self) -> Vec<std::path::PathBuf> {
        self.files.iter().filter(|file| !file.done).map(|file| file.path.clone()).collect()
    }

    fn sit_down(&mut self, missing: &BTreeSet<&'static str>) -> Result<bool> {
        let count = |role: Role| self.seats.iter().filter(|life| life.role == role).count();
        let free: Vec<Role> = Role::ALL.into_iter().filter(|role| count(*role) < role.at_most()).collect();
        let chosen = match self.focus {
            Some(step) => focused(step, self.is_tried(step), |role| count(role) == 0, self.site.is_kafka),
            None => choose(&mut self.random, &free, missing, self.zombies.len(), self.site.is_kafka),
        };
        let Some((role, fault)) = chosen else { return Ok(false) };
        let number: u64 = self.tally.lives.values().sum();
        self.disk.as_mut().map_or(Ok(()), |disk| disk.begin(number))?;
        let life = self.start(role, fault)?;
        self.seats.push(life);
        Ok(true)
    }

    fn start(&mut self, role: Role, fault: Fault) -> Result<Life> {
        let mut arguments = vec![role.arguments().to_owned()];
        match role {
            Role::Batch => {
                // In focus, views take turns: the collector deletes states only once every view's snapshot holds them.
                let next = ALL_VIEWS[self.tally.lives.get(&role).map_or(0, |lives| *lives as usize) % ALL_VIEWS.len()];
                let view = ALL_VIEWS.choose(&mut self.random).copied().filter(|_| self.focus.is_none()).unwrap_or(next);
                arguments.extend(["run".to_owned(), view.to_owned()]);
                if FULL_RUN.iter().any(|step| fault.is_at(step)) || self.random.random_bool(0.25) {
                    arguments.push("--full".to_owned());
                }
            }
            Role::Ingest => arguments.extend(["payments".to_owned(), self.file()?.display().to_string()]),
            _ => {}
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let port = free_port()?;
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.site.project.folder.path().join(format!("{}.log", role.arguments())))?;
        let mut command = self.site.project.command(&arguments)?;
        command.env("FAILPOINTS", fault.failpoints()).env("BASESTREAM_FAILPOINTS_FIRED", self.site.fired_path());
        command.env("BASESTREAM__SERVING__HTTP", format!("127.0.0.1:{port}"));
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        if matches!(role, Role::Serve | Role::Up) {
            lock(&self.servers).insert(child.id(), port);
        }
        *self.tally.lives.entry(role).or_default() += 1;
        let began = Instant::now();
        let until = began + self.patience(role, &fault);
        Ok(Life { child, role, port, fault, began, until, terminated: false })
    }

    /// How long to wait for a fault. A Kafka group reassigns partitions only after it notices a dead member. It has to
    /// settle between two deaths, or no worker ever commits. An alert that hangs is taken over when its lease ends.
    /// On a slow machine a process takes seconds to get to its work.
    fn patience(&self, role: Role, fault: &Fault) -> Duration {
        let is_member = matches!(role, Role::Speed | Role::Up);
        let waits = (self.site.is_kafka && is_member) || ALERTS.iter().any(|step| fault.is_at(step));
        Duration::from_secs(match fault {
            // By the clock of events, an alert waits until all is read that the log had received when its process
            // began.
            Fault::At { step, .. } if self.focus == Some(*step) => 120,
            Fault::KillAfter(after) => after.as_secs() + 1,
            _ if waits => 12,
            _ => 5,
        })
    }

    fn file(&mut self) -> Result<std::path::PathBuf> {
        if let Some(file) = self.files.iter().find(|file| !file.done) {
            return Ok(file.path.clone());
        }
        let path = (self.make_file)(self.files.len())?;
        self.files.push(IngestFile { path: path.clone(), done: false });
        Ok(path)
    }

    fn attend(&mut self, mut life: Life) -> Result<()> {
        if let Some(status) = life.child.try_wait()? {
            return self.bury(life, status);
        }
        let age = life.began.elapsed();
        let is_stopped = matches!(life.fault, Fault::At { action: Action::Stop, .. }) && is_stopped(life.child.id());
        match life.fault {
            Fault::StopAfter(after) if age >= after => {
                signal(life.child.id(), "STOP")?;
                self.lay_down(life);
                return Ok(());
            }
            _ if is_stopped => {
                self.lay_down(life);
                return Ok(());
            }
            Fault::TerminateAfter(after) if age >= after && !life.terminated => life.terminate()?,
            // This step is passed in an orderly shutdown.
            Fault::At { step: "speed.revoke", .. } if age >= self.patience(life.role, &life.fault) / 4 && !life.terminated => {
                life.terminate()?
            }
            _ => {}
        }
        let is_due = matches!(life.fault, Fault::KillAfter(after) if age >= after) || Instant::now() >= life.until;
        if is_due {
            life.child.kill()?;
            let status = life.child.wait()?;
            return self.bury(life, status);
        }
        self.seats.push(life);
        Ok(())
    }

    /// Frees the seat of a stopped process. The process stays stopped for longer than its leases live.
    fn lay_down(&mut self, life: Life) {
        lock(&self.servers).remove(&life.child.id());
        self.tally.zombies += 1;
        let wakes = Instant::now() + Duration::from_millis(if life.role == Role::Speed || life.role == Role::Up { 6_000 } else { 2_000 });
        self.zombies.push(Zombie { life, wakes, awake: false, until: wakes + Duration::from_millis(1_500) });
    }

    fn attend_zombie(&mut self, mut zombie: Zombie) -> Result<()> {
        if let Some(status) = zombie.life.child.try_wait()? {
            return self.bury(zombie.life, status);
        }
        if !zombie.awake && Instant::now() >= zombie.wakes {
            signal(zombie.life.child.id(), "CONT")?;
            zombie.awake = true;
            if matches!(zombie.life.role, Role::Serve | Role::Up) {
                lock(&self.servers).insert(zombie.life.child.id(), zombie.life.port);
            }
        }
        if Instant::now() >= zombie.until {
            zombie.life.child.kill()?;
            let status = zombie.life.child.wait()?;
            return self.bury(zombie.life, status);
        }
        self.zombies.push(zombie);
        Ok(())
    }

    /// Counts a process's end. An end without a cause is a failure.
    fn bury(&mut self, life: Life, status: ExitStatus) -> Result<()> {
        lock(&self.servers).remove(&life.child.id());
        if status.signal() == Some(SIGKILL) {
            *self.tally.killed.entry(life.role).or_default() += 1;
            return Ok(());
        }
        if life.role == Role::Ingest && status.success() {
            self.files.iter_mut().for_each(|file| file.done = true);
        }
        self.tally.terminated += u64::from(life.terminated);
        let may_end = matches!(life.role, Role::Batch | Role::Ingest);
        let is_of_disk = self.disk.as_ref().is_some_and(|disk| disk.excuses(life.began, life.terminated));
        let may_fail = may_end || is_of_disk || matches!(life.fault, Fault::At { action: Action::Unavailable, .. });
        // A process that gets SIGTERM before it handles signals dies by the signal.
        if (life.terminated && status.signal() == Some(SIGTERM))
            || (status.success() && (may_end || life.terminated))
            || (status.code() == Some(1) && may_fail)
        {
            return Ok(());
        }
        let log = self.site.project.log_of(life.role.arguments());
        Err(Error::internal(format!("{:?} ended with {status} under {:?}\n{log}", life.role, life.fault)))
    }
}

impl Life {
    fn terminate(&mut self) -> Result<()> {
        self.terminated = true;
        signal(self.child.id(), "TERM")
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The steps at which no process was killed yet.
pub fn missing(site: &Site) -> BTreeSet<&'static str> {
    let killed: BTreeSet<String> = site.fired().into_keys().filter_map(|(step, action)| (action == "kill").then_some(step)).collect();
    all_steps(site.is_kafka).into_iter().filter(|step| !killed.contains(*step)).collect()
}

impl Site {
    fn fired_path(&self) -> std::path::PathBuf {
        self.project.folder.path().join("fired")
    }

    /// How often each action occurred at each step.
    pub fn fired(&self) -> BTreeMap<(String, String), u64> {
        let mut fired = BTreeMap::new();
        for line in std::fs::read_to_string(self.fired_path()).unwrap_or_default().lines() {
            let mut words = line.split(' ').skip(1).map(str::to_owned);
            if let (Some(step), Some(action)) = (words.next(), words.next()) {
                *fired.entry((step, action)).or_default() += 1;
            }
        }
        fired
    }
}

fn signal(process: u32, name: &str) -> Result<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status()?;
    if sent.success() { Ok(()) } else { Err(Error::internal(format!("SIG{name} was not sent to {process}"))) }
}

/// Whether the process is stopped, from the state field that follows the name.
fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn lock(servers: &Servers) -> std::sync::MutexGuard<'_, BTreeMap<u32, u16>> {
    servers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
