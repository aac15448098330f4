//! `basestream up` as a process.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use schemas::{Error, Result};

use crate::Programs;
use crate::installed::Installed;

const START: Duration = Duration::from_secs(300);
const END: Duration = Duration::from_secs(60);

/// Killed when it is dropped.
pub struct Up(Child);

impl Up {
    /// Starts it, and waits until it is ready. Its log goes to `up.log`.
    pub async fn start(programs: &Programs, installed: &Installed) -> Result<Up> {
        let log = std::fs::File::create(installed.folder.join("up.log"))?;
        let mut command = Command::new(&programs.basestream);
        command.arg("up").arg("--config").arg(installed.config()).args(["--log-level", "warn"]);
        let mut up = Up(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
        let (began, ready) = (Instant::now(), format!("http://{}/readyz", installed.http));
        while !reqwest::get(&ready).await.is_ok_and(|answer| answer.status().is_success()) {
            if let Some(status) = up.0.try_wait()? {
                let log = std::fs::read_to_string(installed.folder.join("up.log")).unwrap_or_default();
                return Err(Error::internal("`basestream up` ended").with("status", status).with("log", log));
            }
            if began.elapsed() > START {
                return Err(Error::unavailable(format!("`basestream up` was not ready within {} s", START.as_secs())));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(up)
    }

    /// SIGTERM, and its end.
    pub fn stop(mut self) -> Result<()> {
        Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status()?;
        let began = Instant::now();
        while began.elapsed() < END {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Error::internal("`basestream up` failed at its end").with("status", status)),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Err(Error::unavailable(format!("`basestream up` did not end within {} s", END.as_secs())))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
