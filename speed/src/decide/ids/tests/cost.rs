//! What an id costs. In a release build:
//!
//! `BASESTREAM_IDS=100000000 cargo test --release --workspace what_an_id_costs -- --ignored --nocapture`

use std::time::Instant;

use super::*;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or_default() * 1_024
}

#[test]
#[ignore = "measures: `just measure`"]
fn what_an_id_costs() {
    let count = setting("BASESTREAM_IDS", 2_000_000) as i64;
    let memory = setting("BASESTREAM_DEDUP_MEMORY", 256 << 20);
    let (folder, space) = space(memory);
    // The last half of the ids is in the window, at one id a microsecond.
    let within = count / 2;
    let mut ids = RecentIds::new(Some(within), &space);
    let (before, began, mut most) = (resident_bytes(), Instant::now(), 0);
    let mut worst = std::time::Duration::ZERO;
    for i in 0..count {
        let one = Instant::now();
        assert!(ids.admit(&format!("{:016x}", i as u64), i, i).unwrap());
        worst = worst.max(one.elapsed());
        if i % 1_000_000 == 0 {
            most = most.max(resident_bytes());
        }
    }
    let fresh = count as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    let repeats = (0..1_000_000).map(|i| count - 1 - i * 7919 % within);
    let found = repeats.filter(|id| !ids.admit(&format!("{id:016x}"), count, count).unwrap()).count();
    let repeated = 1_000_000.0 / began.elapsed().as_secs_f64();
    let disk: u64 = files(&folder).iter().map(|file| file.metadata().unwrap().len()).sum();
    println!("ids {count}, in the window {within}, kept {}, runs {}, memory setting {} MiB", ids.len(), runs(&ids), memory >> 20);
    println!("fresh ids/s {fresh:.0} (slowest one {worst:?}), repeated ids/s {repeated:.0}, of which known {found}");
    println!(
        "resident {:.1} MiB more than before: {:.2} bytes an id",
        most.saturating_sub(before) as f64 / 1_048_576.0,
        most.saturating_sub(before) as f64 / within as f64
    );
    println!("disk {:.1} MiB: {:.2} bytes an id in the window", disk as f64 / 1_048_576.0, disk as f64 / within as f64);
}
