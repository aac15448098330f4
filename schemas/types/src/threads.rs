//! The process's groups of threads. Work of one kind has threads of its own, so that none waits for another: a lease is
//! renewed while every other thread is busy, and a query comes before a batch run.
//!
//! | group | what it runs | niceness | slice |
//! |---|---|---|---|
//! | (`main`'s) | HTTP: what takes less than a millisecond | 0 | short |
//! | [`LEASES`] | renewals of leases | 0 | short |
//! | [`LOG`] | appends to the embedded log | 0 | default |
//! | [`SPEED`] | workers of the speed layer, and what reads the log for them | 0 | default |
//! | [`CHECKPOINTS`] | writing a checkpoint's files, and merging large fresh layers: events do not wait for it | 5 | default |
//! | [`QUERIES`] | lookups that take longer, copying what they wait for, PostgreSQL clients, planning of SQL, bodies with many events or keys, large answers, indices of layers | 5 | short |
//! | [`SCANS`] | SQL queries that read more than a few keys, and what is read from the archive for a query | 9 | default |
//! | [`RUNS`] | batch runs, loading snapshots and copying what no query waits for, collecting files | 10 | default |
//!
//! A nicer thread leaves a busy processor to the others: a thread of niceness 10 gets a tenth of what one of 0 gets,
//! and the whole of an idle one. But one that wakes up waits until the thread that is running has had its slice of
//! time, which is some milliseconds, unless its own is shorter: niceness decides how much a thread gets, and the slice
//! how soon (Linux from 6.12 on, `sched_setattr(2)`). On other systems than Linux all threads are alike.
//!
//! All groups begin with the first work of one, and last as long as the process: what was opened on their threads (a
//! connection) may be used from anywhere. They begin together because a thread inherits the niceness of the one that
//! starts it.

use std::future::Future;
use std::num::NonZero;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::tiles::{Clock, Micros};

/// Planning recurses to the depth of a SELECT.
const STACK_BYTES: usize = 8 << 20;

/// The shortest slice that Linux takes.
const SHORT: Duration = Duration::from_micros(100);
/// What it sets to its default.
const DEFAULT: Duration = Duration::ZERO;

pub static LEASES: Group = Group::new("leases", 0, SHORT, Size::One);
pub static LOG: Group = Group::new("log", 0, DEFAULT, Size::One);
pub static SPEED: Group = Group::new("speed", 0, DEFAULT, Size::Processors);
pub static CHECKPOINTS: Group = Group::new("checkpoints", 5, DEFAULT, Size::One);
pub static QUERIES: Group = Group::new("queries", 5, SHORT, Size::Processors);
pub static SCANS: Group = Group::new("scans", 9, DEFAULT, Size::Processors);
pub static RUNS: Group = Group::new("runs", 10, DEFAULT, Size::Processors);

/// Threads for one kind of work, with a tokio runtime of their own.
#[derive(Debug)]
pub struct Group {
    name: &'static str,
    niceness: i32,
    slice: Duration,
    size: Size,
    /// `None` if the system refused the threads: the work is then done on the caller's runtime.
    runtime: OnceLock<Option<Runtime>>,
}

static ALL: [&Group; 7] = [&LEASES, &LOG, &SPEED, &CHECKPOINTS, &QUERIES, &SCANS, &RUNS];

/// How many threads run a group's tasks. Those that may block come in addition.
#[derive(Debug, Clone, Copy)]
enum Size {
    One,
    Processors,
}

impl Size {
    fn threads(self) -> usize {
        match self {
            Size::One => 1,
            Size::Processors => available_parallelism().map_or(2, NonZero::get),
        }
    }
}

impl Group {
    const fn new(name: &'static str, niceness: i32, slice: Duration, size: Size) -> Self {
        Self { name, niceness, slice, size, runtime: OnceLock::new() }
    }

    /// Spawns a task on these threads. Like tokio's `spawn` it needs a runtime around it.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle().spawn(task)
    }

    /// Runs work that may block, on a thread of its own among these. What it spawns is spawned here too.
    pub fn spawn_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.handle().spawn_blocking(work)
    }

    fn handle(&self) -> Handle {
        for group in ALL {
            group.runtime.get_or_init(|| group.start());
        }
        self.runtime.get().and_then(Option::as_ref).map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }

    fn start(&self) -> Option<Runtime> {
        let (niceness, slice) = (self.niceness, self.slice);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(self.size.threads()).thread_name(self.name).thread_stack_size(STACK_BYTES).enable_all();
        let starting = move || {
            be_nice(niceness);
            // A short one is inherited, too.
            set_slice(slice);
        };
        builder.on_thread_start(starting).build().ok()
    }
}

/// A clock for tests. The receiver gets the name of each thread that reads it, such as one that renews a lease.
pub fn clock_noting_threads(now: impl Fn() -> Micros + Send + Sync + 'static) -> (Clock, UnboundedReceiver<String>) {
    let (reads, threads) = unbounded_channel();
    let clock = move || {
        // The test may have ended.
        let _ = reads.send(std::thread::current().name().unwrap_or_default().to_owned());
        now()
    };
    (Arc::new(clock), threads)
}

/// Keeps every thread of a group busy, for tests, until what it returns is dropped.
pub fn keep_busy(group: &'static Group) -> Vec<Sender<()>> {
    let threads = group.size.threads();
    let (begins, begun) = channel();
    let hold = |_| {
        let (release, released) = channel::<()>();
        let begins = begins.clone();
        drop(group.spawn(async move { begins.send(()).is_ok() && released.recv().is_err() }));
        release
    };
    let held = (0..2 * threads).map(hold).collect();
    // Each thread has one of them; the others wait.
    assert_eq!(begun.iter().take(threads).count(), threads);
    held
}

/// Makes this thread this much nicer than the process's main thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn be_nice(by: i32) {
    // SAFETY: these read and change numbers that the system keeps for a thread. Where it refuses, nothing changes.
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, libc::getpid() as libc::id_t) + by;
        if libc::getpriority(libc::PRIO_PROCESS, 0) != nice {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn be_nice(_by: i32) {}

/// Lets this thread run soon after it wakes up, also beside busy ones of this process: for work that takes less than a
/// millisecond.
pub fn shorten_slice() {
    set_slice(SHORT);
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn set_slice(slice: Duration) {
    let Some(mut attributes) = scheduling() else { return };
    // Other policies have a runtime of another meaning.
    if matches!(attributes.sched_policy as libc::c_int, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        attributes.sched_runtime = slice.as_nanos() as u64;
        // SAFETY: changes numbers that the system keeps for this thread. Where it refuses, nothing changes.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// How this thread is scheduled.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn scheduling() -> Option<libc::sched_attr> {
    // SAFETY: the struct consists of numbers, for all of which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the system writes at most `size` bytes.
    let refused = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (refused == 0).then_some(libc::sched_attr { size, ..attributes })
}

#[cfg(not(target_os = "linux"))]
fn set_slice(_slice: Duration) {}

#[cfg(test)]
mod tests;
