//! A file system of its own size, which a test fills and gives space again.
//!
//! `BASESTREAM_TEST_SMALL_DISK` names a folder on it. A test that finds none runs itself again in a process that mounts
//! one, which only that process and its children see: [`again`].

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use types::{Error, Result};

const VARIABLE: &str = "BASESTREAM_TEST_SMALL_DISK";
/// Larger file systems are not filled: the variable names a folder of an ordinary disk.
const LARGEST_BYTES: u64 = 1 << 30;
/// Mounts a file system of `$1` MiB on `$2`, leaves the file `$3` as a sign of that, and runs the rest.
const MOUNTED: &str = r#"mount -t tmpfs -o size="$1m" none "$2" && touch "$3" && shift 3 && exec "$@""#;

/// Whether the schedule of this number has a small disk: one in ten has.
pub fn is_of_schedule(number: u64) -> bool {
    number % 10 == 5
}

/// The file system. Its ballast goes with it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: tempfile::TempDir,
    fills: u64,
}

impl SmallDisk {
    /// A new folder on the file system that this process sees; `None` if it sees none.
    pub fn seen() -> Option<SmallDisk> {
        let folder = std::env::var_os(VARIABLE)?;
        let folder = tempfile::tempdir_in(&folder).unwrap_or_else(|error| panic!("{VARIABLE} is {}: {error}", folder.display()));
        Some(SmallDisk { folder, fills: 0 })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// How often it was filled.
    pub fn fills(&self) -> u64 {
        self.fills
    }

    /// Fills it but for this much.
    pub fn fill(&mut self, room_bytes: u64) -> Result<()> {
        let mut ballast = File::create(self.ballast())?;
        let mut length = 0;
        for chunk in [vec![1; 1 << 20], vec![1; 4 << 10]] {
            while ballast.write_all(&chunk).is_ok() {
                length += chunk.len() as u64;
                if length > LARGEST_BYTES {
                    return Err(Error::input(format!("found room for {length} bytes, expected a small disk")));
                }
            }
        }
        // A chunk may have been written in part.
        ballast.set_len(ballast.metadata()?.len().saturating_sub(room_bytes))?;
        self.fills += 1;
        Ok(())
    }

    /// How much can be written to it.
    pub fn room_bytes(&mut self) -> Result<u64> {
        self.fill(0)?;
        let room_bytes = fs::metadata(self.ballast())?.len();
        self.give_space()?;
        Ok(room_bytes)
    }

    pub fn give_space(&mut self) -> Result<()> {
        match fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

/// Runs a test of this program again, in a process that sees a small disk. Returns whether it did: this process may see
/// one already, and not every environment lets a process mount one.
///
/// Errors: the test failed.
pub fn again(test: &str, mebibytes: u32, variables: &[(&str, String)]) -> Result<bool> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(false);
    }
    let folder = tempfile::tempdir()?;
    let (disk, sign) = (folder.path().join("disk"), folder.path().join("mounted"));
    fs::create_dir(&disk)?;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "bash", "-c", MOUNTED, "mounted"]).arg(mebibytes.to_string()).args([&disk, &sign]);
    command.arg(std::env::current_exe()?).args([test, "--exact", "--include-ignored", "--nocapture"]);
    command.env(VARIABLE, &disk).envs(variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    let output = match command.stderr(Stdio::inherit()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        output => output?,
    };
    if !sign.exists() {
        return Ok(false);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.success() && text.contains("test result: ok. 1 passed") {
        true => Ok(true),
        false => Err(Error::internal(format!("{test} on a small disk ended with {}\n{text}", output.status))),
    }
}
