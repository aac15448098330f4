//! Gauges about the process itself: its build, its memory, its open files.

use std::path::Path;

/// The commit that the binary was built from, where the build said so.
const COMMIT: Option<&str> = option_env!("BASESTREAM_COMMIT");

/// Where Linux shows a process to itself. Elsewhere there is no such folder, and these gauges have no value.
const SELF: &str = "/proc/self";

/// Sets the gauge that names the build.
pub(super) fn show_build() {
    metrics::gauge!("basestream_build_info", "version" => env!("CARGO_PKG_VERSION"), "commit" => COMMIT.unwrap_or_default()).set(1.0);
}

/// Sets the gauges of what the process takes at the moment.
pub(super) fn show_usage() {
    let usage = ProcessUsage::read(Path::new(SELF));
    let gauges = [
        ("basestream_process_resident_memory_bytes", usage.resident_bytes),
        ("basestream_process_open_fds", usage.open_fds),
        ("basestream_process_max_fds", usage.max_fds),
    ];
    for (name, value) in gauges {
        if let Some(value) = value {
            metrics::gauge!(name).set(value as f64);
        }
    }
}

/// What a process takes; `None` where the system does not say.
#[derive(Debug, PartialEq, Eq)]
struct ProcessUsage {
    resident_bytes: Option<u64>,
    open_fds: Option<u64>,
    /// How many it may open; `None` also where there is no limit.
    max_fds: Option<u64>,
}

impl ProcessUsage {
    /// Reads the files that Linux has of a process in `folder`.
    fn read(folder: &Path) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self {
            resident_bytes: resident_bytes(&text("status")),
            open_fds: std::fs::read_dir(folder.join("fd")).ok().map(|files| files.count() as u64),
            max_fds: max_fds(&text("limits")),
        }
    }
}

/// From `VmRSS:     1234 kB`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The first number, which is the limit that holds, of `Max open files   1024   524288   files`.
fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
