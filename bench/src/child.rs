//! Runs a process and measures its wall time, its processor time, and its peak resident and private memory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use types::{Error, Result};

/// The interval at which a process's memory is sampled. The kernel keeps the peak of resident memory, so only what is
/// allocated in its last moment is missed. It keeps no peak of private memory: a peak between two samples is missed.
pub const POLL: Duration = Duration::from_millis(5);

/// The limits of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub time: Duration,
    pub memory_bytes: u64,
}

/// What a finished process used and printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    pub wall: Duration,
    pub used: Used,
}

/// What a process used, up to the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Used {
    /// User and system time of all its threads; other processes on the machine do not count.
    pub processor_s: f64,
    /// Peak resident memory, with the pages of files that it maps. Those belong to the page cache and can be evicted at
    /// any time.
    pub peak_bytes: u64,
    /// The sampled peak of its private memory: anonymous and shared pages, which only the process can free. The kernel
    /// keeps no peak of it.
    pub own_peak_bytes: u64,
}

/// Linux counts processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Runs a command to its end. Errors: `Limit` if it exceeded its limits (it is then killed), `Internal` with its output
/// if it failed.
pub fn run(command: &mut Command, limits: &Limits) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Files, not pipes: nothing reads while it runs.
    let (out, err) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(out.reopen()?).stderr(err.reopen()?).spawn()?;
    let outcome = watch(&mut child, began, limits);
    if outcome.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let wall = began.elapsed();
    let used = outcome.map_err(|error| error.with("program", &name))?;
    let (stdout, stderr) = (std::fs::read_to_string(out.path())?, std::fs::read_to_string(err.path())?);
    if !status.success() {
        let last: Vec<&str> = stderr.lines().rev().take(8).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
        return Err(Error::internal("a process failed").with("program", name).with("status", status).with("wrote", last));
    }
    Ok(Finished { stdout, stderr, wall, used })
}

/// What a process used so far; `None` if it has ended.
pub fn used_by(process: u32) -> Option<Used> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let (peak_bytes, own_peak_bytes) = memory_in(&status)?;
    Some(Used { processor_s: processor_of(process)?, peak_bytes, own_peak_bytes })
}

impl Used {
    /// The processor time since `before`, and the peaks.
    pub fn since(self, before: Used) -> Used {
        Used { processor_s: self.processor_s - before.processor_s, ..self }
    }

    /// Keeps at least the values of `before`: a process that is ending has no memory any more.
    pub fn at_least(self, before: Used) -> Used {
        Used {
            processor_s: self.processor_s.max(before.processor_s),
            peak_bytes: self.peak_bytes.max(before.peak_bytes),
            own_peak_bytes: self.own_peak_bytes.max(before.own_peak_bytes),
        }
    }
}

/// Waits for the process to end; returns what it used.
fn watch(child: &mut Child, began: Instant, limits: &Limits) -> Result<Used> {
    let mut used = Used::default();
    while child.try_wait()?.is_none() {
        used = used_by(child.id()).unwrap_or_default().at_least(used);
        if used.peak_bytes > limits.memory_bytes {
            return Err(Error::limit(format!("it took more than {} MiB", limits.memory_bytes >> 20)));
        }
        if began.elapsed() > limits.time {
            return Err(Error::limit(format!("it did not finish within {} s", limits.time.as_secs())));
        }
        std::thread::sleep(POLL);
    }
    Ok(used)
}

/// Processor time from the 14th and 15th field of `stat`: user and system time. The second field is a name in brackets,
/// which may contain anything.
fn processor_of(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |nth: usize| fields.get(nth)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// From the text of `status`: the peak resident bytes (VmHWM), and the current private bytes (RssAnon, and RssShmem,
/// which includes files of a tmpfs). `None` for a process that has ended.
fn memory_in(status: &str) -> Option<(u64, u64)> {
    let bytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    Some((bytes("VmHWM")?, bytes("RssAnon")? + bytes("RssShmem")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(20), memory_bytes: 1 << 30 };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_is_measured_to_its_end() {
        let finished = run(&mut shell("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; sleep 0.1; echo done"), &LIMITS).unwrap();
        assert_eq!(finished.stdout, "done\n");
        let Used { processor_s, peak_bytes, .. } = finished.used;
        assert!(finished.wall >= Duration::from_millis(100) && peak_bytes > 100_000 && processor_s > 0.01, "{finished:?}");
    }

    #[test]
    fn memory_of_its_own_is_seen_without_what_it_maps() {
        // A text that doubles, up to 64 MiB.
        let grows = "x=0123456789abcdef; while [ ${#x} -lt 50000000 ]; do x=$x$x; done; sleep 0.1";
        let Used { peak_bytes, own_peak_bytes, .. } = run(&mut shell(grows), &LIMITS).unwrap().used;
        // The program itself and its libraries are mapped, so they count as resident only.
        assert!(own_peak_bytes >= 50_000_000 && own_peak_bytes < peak_bytes, "own {own_peak_bytes}, peak {peak_bytes}");
    }

    #[test]
    fn pages_of_files_are_not_its_own() {
        let status = "Name:\tsh\nVmHWM:\t    2000 kB\nVmRSS:\t    1900 kB\n\
                      RssAnon:\t     300 kB\nRssFile:\t    1500 kB\nRssShmem:\t     100 kB\n";
        assert_eq!(memory_in(status), Some((2_000 << 10, 400 << 10)));
        assert_eq!(memory_in("Name:\tsh\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn a_peak_stays_when_less_is_used_later() {
        let used = |peak_bytes, own_peak_bytes| Used { processor_s: 1.0, peak_bytes, own_peak_bytes };
        assert_eq!(used(5, 2).at_least(used(4, 3)), used(5, 3));
        assert_eq!(Used::default().at_least(used(4, 3)), used(4, 3));
    }

    #[test]
    fn a_process_that_fails_says_what_it_wrote() {
        let error = run(&mut shell("echo nothing there >&2; exit 3"), &LIMITS).unwrap_err();
        assert!(error.to_string().contains("nothing there") && error.to_string().contains('3'), "{error}");
    }

    #[test]
    fn a_process_past_its_limits_is_killed() {
        let short = Limits { time: Duration::from_millis(100), ..LIMITS };
        assert_eq!(run(&mut shell("sleep 30"), &short).unwrap_err().kind(), types::ErrorKind::Limit);
        let small = Limits { memory_bytes: 1, ..LIMITS };
        assert_eq!(run(&mut shell("sleep 30"), &small).unwrap_err().kind(), types::ErrorKind::Limit);
    }
}
