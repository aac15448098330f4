//! Redis with the final rows as JSON: a separate server without persistence.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::redis::{Connection, RedisError, cmd};
use serving::Node;
use serving::json::RowWriter;
use types::{Error, Result};

use super::ask::Ask;
use super::check::{Expected, has_row, json};
use super::final_rows;
use crate::latencies::Latencies;
use crate::purchases::truth::hold;

const START: Duration = Duration::from_secs(20);
/// Keys per MSET.
const AT_ONCE: usize = 1_000;

/// The version of the installed program.
pub(super) fn version() -> Option<String> {
    let reported = Command::new("redis-server").arg("--version").output().ok()?;
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    reported.split(' ').find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

/// Killed when it is dropped.
pub(super) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// `None`, with a message, if it is not installed.
    pub(super) fn start(folder: &Path) -> Result<Option<Server>> {
        std::fs::create_dir_all(folder)?;
        let port = basestream_tests::process::free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(folder);
        let child = match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("left out: Redis (Debian's package is redis-server)");
                return Ok(None);
            }
            Err(error) => return Err(Error::from(error).with("program", "redis-server")),
        };
        let server = Server { child, url: format!("redis://127.0.0.1:{port}") };
        let began = Instant::now();
        while let Err(error) = server.connect() {
            if began.elapsed() > START {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(server))
    }

    fn connect(&self) -> Result<Connection> {
        ::redis::Client::open(&*self.url).and_then(|client| client.get_connection()).map_err(failed)
    }

    pub(super) async fn fill(&self, node: &Node) -> Result<()> {
        let mut connection = self.connect()?;
        final_rows::each(node, async |part| {
            let writer = RowWriter::new(&part.rows.schema());
            for first in (0..part.keys.len()).step_by(AT_ONCE) {
                let mut set = cmd("MSET");
                for row in first..(first + AT_ONCE).min(part.keys.len()) {
                    let mut text = Vec::new();
                    writer.write(&mut text, &part.rows, row)?;
                    set.arg(&part.keys[row]).arg(text);
                }
                set.exec(&mut connection).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    pub(super) fn check(&self, expected: &Expected) -> Result<()> {
        let mut connection = self.connect()?;
        for (key, row) in expected {
            let kept: Option<Vec<u8>> = cmd("GET").arg(key).query(&mut connection).map_err(failed)?;
            match kept {
                Some(kept) => hold(&json(&kept)?, row)?,
                None if has_row(row) => return Err(Error::internal("Redis lacks a row").with("key", key)),
                None => {}
            }
        }
        Ok(())
    }

    pub(super) async fn ask(&self, asking: &Ask) -> Result<Vec<Latencies>> {
        asking
            .with(|| {
                let (mut connection, key) = (self.connect()?, asking.key());
                Ok(Box::new(move |nth| cmd("GET").arg(key(nth)).query::<Option<Vec<u8>>>(&mut connection).map(drop).map_err(failed)))
            })
            .await
    }

    pub(super) async fn ask_batch(&self, asking: &Ask) -> Result<Vec<Latencies>> {
        asking
            .with(|| {
                let (mut connection, keys) = (self.connect()?, asking.keys());
                Ok(Box::new(move |nth| cmd("MGET").arg(keys(nth)).query::<Vec<Option<Vec<u8>>>>(&mut connection).map(drop).map_err(failed)))
            })
            .await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(error: RedisError) -> Error {
    Error::unavailable(format!("Redis failed: {error}"))
}
