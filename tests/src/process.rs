//! Runs the `basestream` binary as users do: processes that share one configuration, killed and started again.

use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::patience;

/// One project on disk, and the URLs it uses.
pub struct Project {
    pub folder: tempfile::TempDir,
    pub http: String,
}

/// The URLs of a project's engines.
#[derive(Debug, Clone)]
pub struct Urls {
    pub storage: String,
    pub catalog: String,
    pub log: String,
}

/// A running process; killed when it is dropped.
pub struct Running {
    child: Child,
    name: &'static str,
}

impl Project {
    /// Copies an example's definitions. `topic` replaces the topic's name, so that concurrent runs do not share one.
    pub fn from_example(example: &Path, urls: &Urls, topic: &str, checkpoint_interval: &str) -> Result<Project> {
        let folder = tempfile::tempdir()?;
        for kind in ["streams", "views"] {
            std::fs::create_dir(folder.path().join(kind))?;
            for entry in std::fs::read_dir(example.join(kind))? {
                let path = entry?.path();
                let text = std::fs::read_to_string(&path)?.replace("topic = 'purchases'", &format!("topic = '{topic}'"));
                std::fs::write(folder.path().join(kind).join(path.file_name().unwrap_or_default()), text)?;
            }
        }
        let http = format!("127.0.0.1:{}", free_port()?);
        let config = format!(
            "[storage]\nurl = \"{}\"\n[catalog]\nurl = \"{}\"\n[log]\nurl = \"{}\"\npartitions = 4\n[speed]\ncheckpoint_interval = \"{checkpoint_interval}\"\n\
             [serving]\nhttp = \"{http}\"\nclock = \"event\"\n",
            urls.storage, urls.catalog, urls.log
        );
        std::fs::write(folder.path().join("basestream.toml"), config)?;
        Ok(Project { folder, http })
    }

    /// Creates a project of these files, given as (path, text); `basestream.toml` is one of them.
    pub fn from_files(files: &[(&str, String)], http: String) -> Result<Project> {
        let folder = tempfile::tempdir()?;
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
            std::fs::write(path, text)?;
        }
        Ok(Project { folder, http })
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        Ok(self.command(args)?.stdin(Stdio::null()).output()?)
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args)?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            return Ok(out.into_owned());
        }
        Err(Error::internal(format!("basestream {} ended with {}\n{out}\n{err}", args.join(" "), output.status)))
    }

    /// Starts a long-running command. Its logs go to a file of the project.
    pub fn start(&self, name: &'static str) -> Result<Running> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join(format!("{name}.log")))?;
        let child = self.command(&[name])?.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Running { child, name })
    }

    /// The last lines of a long-running command's log.
    pub fn log_of(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.folder.path().join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// A command of this project, for the caller to run.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.args(args).arg("--config").arg(self.folder.path().join("basestream.toml"));
        Ok(command)
    }
}

impl Running {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL: the process has no chance to clean up.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn terminate(mut self) -> Result<Option<i32>> {
        let killed = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        assert!(killed.success(), "{} was gone before SIGTERM", self.name);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(120) {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(patience::ended(format!("{} did not end within 120 s of SIGTERM", self.name)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of the binary in the build folder of this program or test, where `cargo build --workspace` and `cargo test
/// --workspace` put it, or the path in `BASESTREAM_BINARY`.
///
/// If it is missing, it is built with the whole workspace: another choice of packages has other features, and would
/// build DataFusion a second time.
pub fn binary() -> Result<PathBuf> {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    if let Some(path) = BUILT.get() {
        return Ok(path.clone());
    }
    if let Ok(path) = std::env::var("BASESTREAM_BINARY") {
        return Ok(BUILT.get_or_init(|| PathBuf::from(path)).clone());
    }
    let this = std::env::current_exe()?;
    let beside = this.with_file_name("basestream");
    if beside.exists() {
        return Ok(BUILT.get_or_init(|| beside).clone());
    }
    let folder = this.parent().and_then(Path::parent).ok_or_else(|| Error::internal("the test has no target folder"))?;
    let path = folder.join("basestream");
    if !path.exists() {
        let status = Command::new(env!("CARGO")).args(["build", "--workspace", "--bin", "basestream"]).stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(Error::internal("the basestream binary does not build"));
        }
    }
    Ok(BUILT.get_or_init(|| path).clone())
}

/// Returns a port on which nobody listens, for a process that is started later. No other test gets it meanwhile.
pub fn free_port() -> Result<u16> {
    static PORTS: std::sync::OnceLock<Ports> = std::sync::OnceLock::new();
    let ports = match PORTS.get() {
        Some(ports) => ports,
        None => {
            let taken = Ports::take()?;
            PORTS.get_or_init(|| taken)
        }
    };
    ports.next_free()
}

/// The ports of one test process. It listens on the one before them while it lives: another one then takes other ports.
struct Ports {
    _guard: TcpListener,
    first: u16,
    handed_out: AtomicU16,
}

impl Ports {
    /// Below the ports of `tests/services`, and those that the kernel gives to connections.
    const RANGE: Range<u16> = 10_000..20_000;
    const EACH: u16 = 100;

    fn take() -> Result<Ports> {
        for guard in Self::RANGE.step_by(usize::from(Self::EACH)) {
            if let Ok(listener) = listen(guard) {
                return Ok(Ports { _guard: listener, first: guard + 1, handed_out: AtomicU16::new(0) });
            }
        }
        Err(Error::unavailable(format!("all ports of {:?} are taken", Self::RANGE)))
    }

    /// The next one, in turn: a port comes again only after all others.
    fn next_free(&self) -> Result<u16> {
        let count = Self::EACH - 1;
        for _ in 0..count {
            let port = self.first + self.handed_out.fetch_add(1, Ordering::Relaxed) % count;
            if listen(port).is_ok() {
                return Ok(port);
            }
        }
        Err(Error::unavailable(format!("all {count} ports from {} on are taken", self.first)))
    }
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port))
}

#[cfg(test)]
mod tests;
