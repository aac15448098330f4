//! Progress bars on standard error, if that is a terminal.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// Creates a bar over a known number of bytes, or a counter if the number is unknown.
pub(super) fn bytes(name: &str, total: Option<u64>, shown: bool) -> ProgressBar {
    let template = match total {
        Some(_) => "{prefix} [{bar:30}] {bytes}/{total_bytes} {msg} {eta}",
        None => "{prefix} {spinner} {msg}",
    };
    bar(name, total, template, shown)
}

/// Creates a bar over a known number of things.
pub(super) fn things(name: &str, total: u64, shown: bool) -> ProgressBar {
    bar(name, Some(total), "{prefix} [{bar:30}] {human_pos}/{human_len} {eta}", shown)
}

/// Creates a counter; the total may become known later.
pub(super) fn counter(name: &str, shown: bool) -> ProgressBar {
    bar(name, None, "{prefix} {spinner} {human_pos} events {per_sec}", shown)
}

/// Creates a counter of rows.
pub(super) fn rows(name: &str, shown: bool) -> ProgressBar {
    bar(name, None, "{prefix} {spinner} {human_pos} rows {per_sec}", shown)
}

/// Creates a counter of state rows.
pub(super) fn state_rows(name: &str, shown: bool) -> ProgressBar {
    bar(name, None, "{prefix} {spinner} {human_pos} state rows {per_sec}", shown)
}

/// Creates a clock, for what does not count.
pub(super) fn clock(name: &str, shown: bool) -> ProgressBar {
    bar(name, None, "{prefix} {spinner} {elapsed}", shown)
}

/// Waits for work that counts by itself, and looks at its count meanwhile.
pub(super) async fn watched<T>(work: impl Future<Output = T>, look: impl Fn()) -> T {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(TICK, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => look(),
        }
    }
}

fn bar(name: &str, total: Option<u64>, template: &str, shown: bool) -> ProgressBar {
    let target = if shown && std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}
