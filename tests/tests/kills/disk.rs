//! The disk of the embedded defaults: it runs full with one life of ten, and has space again a moment later.

use std::time::{Duration, Instant};

use basestream_tests::small_disk::{SmallDisk, is_of_schedule};
use types::{Error, Result};

use crate::plan::Role;
use crate::site::Site;

/// Larger than what all of a run writes. All of it is memory once the disk is full.
pub const MEBIBYTES: u32 = 512;
const FULL: Duration = Duration::from_millis(1_200);
/// How long a process takes to start, and to stop, where the machine is not slow.
const STARTING: Duration = Duration::from_secs(2);

pub struct Disk {
    disk: SmallDisk,
    /// When it ran full last, and whether it still is.
    filled: Option<Instant>,
    is_full: bool,
    /// How long a process takes here to start, and to stop, among others.
    starting: Duration,
    /// When the processes were attended last, and how long they were not at most: then this machine stood still.
    attended: Option<Instant>,
    stood_still: Duration,
}

impl Disk {
    /// The one that this process sees.
    pub fn seen() -> Option<Disk> {
        let (disk, stood_still) = (SmallDisk::seen()?, Duration::ZERO);
        Some(Disk { disk, filled: None, is_full: false, starting: STARTING, attended: None, stood_still })
    }

    /// Learns how long a process took from its start to its end, alone.
    pub fn know(&mut self, alone: Duration) {
        self.starting = STARTING.max(alone * 4);
    }

    pub fn path(&self) -> &std::path::Path {
        self.disk.path()
    }

    /// Runs full if it is the turn of the life of this number.
    pub fn begin(&mut self, life: u64) -> Result<()> {
        if is_of_schedule(life) && !self.is_full {
            self.disk.fill(0)?;
            (self.filled, self.is_full) = (Some(Instant::now()), true);
        }
        Ok(())
    }

    pub fn step(&mut self) -> Result<()> {
        let unattended = self.attended.replace(Instant::now()).map_or(Duration::ZERO, |attended| attended.elapsed());
        self.stood_still = self.stood_still.max(unattended);
        match self.is_full && self.filled.is_some_and(|filled| filled.elapsed() >= FULL) {
            true => self.give_space(),
            false => Ok(()),
        }
    }

    pub fn give_space(&mut self) -> Result<()> {
        self.is_full = false;
        self.disk.give_space()
    }

    /// Checks that processes met a full disk, by what they logged. Returns how often it was full.
    pub fn was_full(&self, site: &Site) -> Result<u64> {
        let roles = Role::ALL.iter().map(|role| site.project.folder.path().join(format!("{}.log", role.arguments())));
        let texts: Vec<String> = roles.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect();
        let met = |words: &str| texts.iter().flat_map(|text| text.lines()).filter(|line| line.contains(words)).count();
        match met("disk is full") + met("No space left on device") {
            0 => Err(Error::internal(format!("the disk was full {} times, and no process met that", self.disk.fills()))),
            _ => Ok(self.disk.fills()),
        }
    }

    /// Whether a process may have ended because the disk was full: while it was starting, or in its last checkpoint.
    /// One that is at work goes on.
    pub fn excuses(&self, began: Instant, terminated: bool) -> bool {
        let starting = self.starting + self.stood_still;
        let is_of_start = |filled: Instant| began < filled + FULL + self.stood_still && filled < began + starting;
        let is_of_stop = |filled: Instant| terminated && filled.elapsed() < FULL + starting;
        self.filled.is_some_and(|filled| is_of_start(filled) || is_of_stop(filled))
    }
}
