//! A server that is sent anything: frames that are cut, changed, repeated and made up. It answers or closes, in time;
//! it neither panics nor takes more memory with each client.
//!
//! A few hundred clients by default. `BASESTREAM_FUZZ_SECONDS=600` goes on for that long, `BASESTREAM_FUZZ_SEED` begins
//! where another run did.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, one};

const CLIENTS: u64 = 300;
/// At a time.
const AT_ONCE: u64 = 8;
/// A client that is neither answered nor closed by then hangs.
const ANSWER: Duration = Duration::from_secs(30);
/// What the process may have grown by, however many clients came.
const MOST_GROWN_BYTES: u64 = 512 << 20;

/// Panics of threads that answer queries.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_client_sends_it_is_answered_or_closed() {
    count_panics();
    let server = Server::filled().await;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seconds, first) = (number("BASESTREAM_FUZZ_SECONDS"), number("BASESTREAM_FUZZ_SEED").unwrap_or(1));
    let begun = Instant::now();
    let goes_on = |seed: u64| match seconds {
        Some(seconds) => begun.elapsed().as_secs() < seconds,
        None => seed < first + CLIENTS,
    };
    let (mut seed, mut before) = (first, None);
    while goes_on(seed) {
        let clients = (seed..seed + AT_ONCE).map(|seed| tokio::spawn(client(server.address, seed)));
        for (of, client) in (seed..).zip(clients.collect::<Vec<_>>()) {
            client.await.unwrap().unwrap_or_else(|what| panic!("seed {of}: {what}"));
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seeds {seed} to {}", seed + AT_ONCE - 1);
        seed += AT_ONCE;
        let grown = resident_bytes().saturating_sub(*before.get_or_insert_with(resident_bytes));
        assert!(grown < MOST_GROWN_BYTES, "the process has grown by {grown} bytes at seed {seed}");
    }
    assert_eq!(one(&server.connect().await, "SELECT n FROM per_device WHERE device = 'a'").await, "1", "others are answered");
    server.stop().await;
}

/// Sends what this seed makes, and reads to the end.
async fn client(address: SocketAddr, seed: u64) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let bytes = conversation(&mut rng);
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let talking = async {
        // In pieces: frames come as the network cuts them.
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(rng.random_range(1..=rest.len()));
            if stream.write_all(piece).await.is_err() {
                return;
            }
            rest = left;
        }
        let _ = stream.shutdown().await;
        let mut answer = vec![0; 64 << 10];
        while stream.read(&mut answer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::time::timeout(ANSWER, talking).await.map_err(|_| "timed out: it was neither answered nor closed".to_owned())
}

/// A startup, then messages; some of them, or all, changed.
fn conversation(rng: &mut ChaCha8Rng) -> Vec<u8> {
    if rng.random_ratio(1, 20) {
        return noise(rng, 2_000);
    }
    let mut frames = vec![startup(rng)];
    for _ in 0..rng.random_range(0..12) {
        frames.push(message(rng));
    }
    for _ in 0..rng.random_range(0..4) {
        change(rng, &mut frames);
    }
    let mut bytes = frames.concat();
    for _ in 0..rng.random_range(0..3) {
        if !bytes.is_empty() {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
    }
    bytes
}

fn startup(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let code: i32 = *[196_608, 196_608, 196_608, 196_608, 196_610, 80_877_103, 80_877_104, 80_877_102, 1].choose(rng).unwrap();
    let mut body = code.to_be_bytes().to_vec();
    for (name, value) in [("user", "ann"), ("database", "basestream"), ("options", "-c statement_timeout=1s"), ("as_of", "")] {
        if name == "user" || rng.random_ratio(2, 3) {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
    }
    body.push(0);
    [((body.len() + 4) as i32).to_be_bytes().as_slice(), &body].concat()
}

const TEXTS: [&str; 12] = [
    "",
    ";",
    "SELECT 1",
    "SELECT n, amount FROM per_device WHERE device = $1",
    "SELECT * FROM per_device WHERE device = 'a'; SELECT 2; SELECT nothing",
    "SELECT * FROM events",
    "BEGIN; SELECT 1; ROLLBACK",
    "SET as_of = '2026-03-01T10:00:00Z'",
    "COPY (SELECT 1 AS a) TO STDOUT (FORMAT binary)",
    "SHOW ALL",
    "DEALLOCATE ALL",
    "SELECT $1::int, $2::text, relname FROM pg_class LIMIT 3",
];
const NAMES: [&str; 4] = ["", "", "s", "other"];

fn message(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let text = |rng: &mut ChaCha8Rng| [TEXTS.choose(rng).unwrap().as_bytes(), b"\0"].concat();
    let name = |rng: &mut ChaCha8Rng| [NAMES.choose(rng).unwrap().as_bytes(), b"\0"].concat();
    let (kind, body) = match rng.random_range(0..14) {
        0..3 => (b'Q', text(rng)),
        3 | 4 => (b'P', [name(rng), text(rng), list(rng, |rng| i32_of(*[0, 20, 25, 2950, -1].choose(rng).unwrap()))].concat()),
        5 | 6 => {
            let formats = |rng: &mut ChaCha8Rng| list(rng, |rng| rng.random_range(0i16..3).to_be_bytes().to_vec());
            let values = list(rng, |rng| match rng.random_range(0..3) {
                0 => i32_of(-1),
                _ => {
                    let value = noise(rng, 12);
                    [i32_of(value.len() as i32), value].concat()
                }
            });
            (b'B', [name(rng), name(rng), formats(rng), values, formats(rng)].concat())
        }
        7 => (b'D', [vec![*b"SPx".choose(rng).unwrap()], name(rng)].concat()),
        8 | 9 => (b'E', [name(rng), i32_of(*[0, 1, 2, -1, i32::MAX].choose(rng).unwrap())].concat()),
        10 => (b'C', [vec![*b"SPx".choose(rng).unwrap()], name(rng)].concat()),
        11 => (*b"HSX".choose(rng).unwrap(), Vec::new()),
        12 => (*b"dcfp".choose(rng).unwrap(), noise(rng, 40)),
        _ => (rng.random(), noise(rng, 40)),
    };
    // Most say how long they are.
    let length = match rng.random_range(0..40) {
        0 => *[-1, 0, 3, 4, i32::MAX, 16 << 20, (16 << 20) + 1].choose(rng).unwrap(),
        _ => (body.len() + 4) as i32,
    };
    [vec![kind], i32_of(length), body].concat()
}

fn change(rng: &mut ChaCha8Rng, frames: &mut Vec<Vec<u8>>) {
    let at = rng.random_range(0..frames.len());
    match rng.random_range(0..5) {
        0 => drop(frames.remove(at)),
        1 => frames.push(frames[at].clone()),
        2 => {
            let end = rng.random_range(0..=frames[at].len());
            frames[at].truncate(end);
        }
        3 => {
            let (place, more) = (rng.random_range(0..=frames[at].len()), noise(rng, 20));
            frames[at].splice(place..place, more);
        }
        _ => {
            let other = rng.random_range(0..frames.len());
            frames.swap(at, other);
        }
    }
    if frames.is_empty() {
        frames.push(noise(rng, 20));
    }
}

fn list(rng: &mut ChaCha8Rng, mut item: impl FnMut(&mut ChaCha8Rng) -> Vec<u8>) -> Vec<u8> {
    let count = rng.random_range(0..4);
    let said: i16 = if rng.random_ratio(1, 20) { rng.random() } else { count };
    let items: Vec<u8> = (0..count).flat_map(|_| item(rng)).collect();
    [said.to_be_bytes().as_slice(), &items].concat()
}

fn i32_of(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn noise(rng: &mut ChaCha8Rng, most: usize) -> Vec<u8> {
    (0..rng.random_range(0..=most)).map(|_| rng.random()).collect()
}

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name().is_some_and(|name| ["queries", "scans"].contains(&name)) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
}

#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() << 10
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> u64 {
    0
}
