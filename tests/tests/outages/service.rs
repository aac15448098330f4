//! Stops a service and starts it again, with the scripts that started it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A service that is down. It is started again when this is dropped at the latest, so that a failed test does not
/// affect others.
pub struct Down {
    service: &'static str,
    is_up: bool,
}

/// Sends the signal and waits until the process is gone.
pub async fn kill(service: &'static str, signal: &'static str) -> Down {
    tokio::task::spawn_blocking(move || script("kill", &[service, signal])).await.unwrap();
    Down { service, is_up: false }
}

impl Down {
    /// Starts it with its port and data, and waits until it responds.
    pub async fn start(mut self) {
        let service = self.service;
        tokio::task::spawn_blocking(move || script("start", &[service])).await.unwrap();
        self.is_up = true;
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        if !self.is_up {
            script("start", &[self.service]);
        }
    }
}

fn script(name: &str, arguments: &[&str]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("services").join(name);
    let mut command = Command::new(path);
    let output = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
    assert!(output.success(), "tests/services/{name} {arguments:?}: {output}");
}
