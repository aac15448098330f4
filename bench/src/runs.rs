//! Runs batch repeatedly while something else is measured: in processes of its own, or in one that serves.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use types::{Error, Result};

use crate::Programs;
use crate::asking::Http;

const POLL: Duration = Duration::from_millis(20);
/// Between two looks whether the run that was asked for has begun.
const LOOK: Duration = Duration::from_millis(200);
/// The time limit for a run that is active at the end.
const END: Duration = Duration::from_secs(120);

pub struct Runs {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<u64>>,
}

impl Runs {
    /// Runs these views in turns, each run in a process of its own.
    pub fn start(programs: &Programs, config: PathBuf, views: Vec<String>) -> Runs {
        let (stop, basestream) = (Arc::new(AtomicBool::new(false)), programs.basestream.clone());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut succeeded = 0;
            for view in views.iter().cycle() {
                let mut command = Command::new(&basestream);
                command.args(["batch", "run", view, "--full", "--json", "--log-level", "error", "--config"]).arg(&config);
                let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
                if until_its_end(child, &stopped)? {
                    succeeded += 1;
                }
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(succeeded)
        });
        Runs { stop, thread }
    }

    /// Asks the process at this address for one run of a view after the other.
    pub fn start_in(address: &str, view: &str) -> Runs {
        let (stop, address, path) = (Arc::new(AtomicBool::new(false)), address.to_owned(), format!("/v1/views/{view}/runs"));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut http = Http::connect(&address)?;
            let (mut last, mut begun) = (Value::Null, 0);
            while !stopped.load(Ordering::Relaxed) {
                // The answer names the run that waits. A new name means that the one before has begun.
                let asked: Value = serde_json::from_slice(http.post(&path, "")?).map_err(|error| Error::internal(error.to_string()))?;
                if asked["run"] != last {
                    begun += u64::from(!last.is_null());
                    last = asked["run"].clone();
                }
                std::thread::sleep(LOOK);
            }
            Ok(begun)
        });
        Runs { stop, thread }
    }

    /// Stops, and returns how many runs succeeded, including the last one; of runs in a process that serves, how many
    /// began.
    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::internal("what runs batch panicked")))
    }
}

fn until_its_end(mut child: Child, stopped: &AtomicBool) -> Result<bool> {
    let mut stopped_at = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if stopped.load(Ordering::Relaxed) && stopped_at.get_or_insert_with(Instant::now).elapsed() > END {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
}
