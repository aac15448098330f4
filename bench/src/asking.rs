//! Runs clients that each send one query at a time on a thread of their own, and measures every answer's latency: each
//! query after the answer before it, or at a rate that does not depend on the answers.

use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::latencies::Latencies;

mod http;
mod library;
mod postgres;
mod sql;

pub use http::{Getting, Http};
pub use library::Library;
pub use postgres::{Connected, failed};
pub use sql::sql_number;

/// One client.
pub trait Client: Send {
    /// Sends a query and waits for the answer. `nth` determines the query: it is different for each query of a run.
    fn ask(&mut self, nth: u64) -> Result<()>;

    /// How long it waits after each answer.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
}

impl<F: FnMut(u64) -> Result<()> + Send> Client for F {
    fn ask(&mut self, nth: u64) -> Result<()> {
        self(nth)
    }
}

/// How long the clients measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretches {
    /// Of each stretch.
    pub seconds: f64,
    pub repeats: usize,
}

/// The share of a stretch that runs as a warm-up before it is measured.
const WARM_UP: f64 = 0.4;

/// Runs all clients at once; returns what all of them measured in each stretch.
pub async fn ask(stretches: Stretches, clients: Vec<Box<dyn Client>>) -> Result<Vec<Latencies>> {
    tokio::task::spawn_blocking(move || ask_all(stretches, None, clients)).await?
}

/// The same with this many queries per second of all clients, which take turns. A query that its client sends late,
/// because the answer before it took long, is measured from when it was due.
pub async fn ask_at(rate: f64, stretches: Stretches, clients: Vec<Box<dyn Client>>) -> Result<Vec<Latencies>> {
    tokio::task::spawn_blocking(move || ask_all(stretches, Some(rate), clients)).await?
}

fn ask_all(stretches: Stretches, rate: Option<f64>, mut clients: Vec<Box<dyn Client>>) -> Result<Vec<Latencies>> {
    let (begin, turns) = (Instant::now(), clients.len() as f64);
    let measured: Vec<Result<Vec<Latencies>>> = std::thread::scope(|scope| {
        let threads = clients.iter_mut().enumerate().map(|(number, client)| {
            let first = (number as u64) << 48;
            let due = rate.map(|rate| Due { begin: begin + duration(number as f64 / rate), every_s: turns / rate, first });
            scope.spawn(move || one(stretches, due, client.as_mut(), begin, first))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Error::internal("a client panicked")))).collect()
    });
    let mut together: Vec<Latencies> = Vec::new();
    for of_one in measured {
        for (number, latencies) in of_one?.into_iter().enumerate() {
            match together.get_mut(number) {
                Some(others) => others.add_all(&latencies)?,
                None => together.push(latencies),
            }
        }
    }
    Ok(together)
}

/// When the queries of a client are due that does not wait for answers.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// Of its first query.
    begin: Instant,
    every_s: f64,
    /// The number of its first query.
    first: u64,
}

impl Due {
    /// Waits until a query is due, and returns when that was.
    fn wait(self, nth: u64) -> Instant {
        let due = self.begin + duration((nth - self.first) as f64 * self.every_s);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

/// Runs one client. The stretches of all clients begin and end at the same times.
fn one(stretches: Stretches, due: Option<Due>, client: &mut dyn Client, begin: Instant, first: u64) -> Result<Vec<Latencies>> {
    let mut nth = first;
    let mut until = begin + duration(stretches.seconds * WARM_UP);
    stretch(client, due, &mut nth, until)?;
    let mut measured = Vec::new();
    for _ in 0..stretches.repeats.max(1) {
        until += duration(stretches.seconds);
        measured.push(stretch(client, due, &mut nth, until)?);
    }
    Ok(measured)
}

/// Sends at least one query.
fn stretch(client: &mut dyn Client, due: Option<Due>, nth: &mut u64, until: Instant) -> Result<Latencies> {
    let mut latencies = Latencies::begin()?;
    loop {
        let begun = due.map_or_else(Instant::now, |due| due.wait(*nth));
        client.ask(*nth)?;
        latencies.add(begun.elapsed());
        *nth += 1;
        if Instant::now() >= until {
            return Ok(latencies);
        }
        std::thread::sleep(client.pace());
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::latencies;

    const STRETCHES: Stretches = Stretches { seconds: 0.05, repeats: 3 };

    #[test]
    fn all_clients_ask_in_every_stretch_and_none_asks_what_another_did() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let client = |_| -> Box<dyn Client> {
            let asked = asked.clone();
            Box::new(move |nth| {
                asked.lock().unwrap().push(nth);
                std::thread::sleep(Duration::from_millis(2));
                Ok(())
            })
        };
        let measured = ask_all(STRETCHES, None, (0..2).map(client).collect()).unwrap();
        let mut asked = asked.lock().unwrap().clone();
        let counted: u64 = measured.iter().map(Latencies::count).sum();
        assert!(measured.len() == 3 && measured.iter().all(|stretch| stretch.count() > 10) && counted < asked.len() as u64, "{measured:?}");
        let all = asked.len();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len(), all);
    }

    #[test]
    fn a_client_that_fails_ends_it() {
        let fails: Box<dyn Client> = Box::new(|_| Err(Error::unavailable("gone")));
        assert!(ask_all(STRETCHES, None, vec![fails]).is_err());
    }

    #[test]
    fn at_a_rate_the_wait_for_a_slow_answer_counts_for_those_that_are_due_meanwhile() {
        let slow = |from: u64, millis: u64| -> Box<dyn Client> {
            Box::new(move |nth: u64| {
                std::thread::sleep(Duration::from_millis(if nth == from { millis } else { 0 }));
                Ok(())
            })
        };
        let of_stretches = Stretches { seconds: 0.5, repeats: 1 };
        // The warm-up of 0.2 s ends with query 8. The next one keeps those after it waiting.
        let kept = ask_all(of_stretches, Some(40.0), vec![slow(9, 300)]).unwrap();
        let late = latencies::median_of(&kept, 0.7).unwrap();
        assert!(late > 100.0, "a late query is measured from when it was due: {late} ms, {kept:?}");
    }
}
