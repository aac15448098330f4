//! Asks a process that starts until it gives the awaited answer.

use std::time::{Duration, Instant};

use types::{Error, Result};

use crate::asking::Http;

/// A start that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(600);

/// Sends the request repeatedly until the response satisfies `is_it`.
pub(super) fn until(address: &str, path: &str, began: Instant, is_it: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
    loop {
        let answer = Http::connect(address).and_then(|mut http| http.get(path).map(<[u8]>::to_vec));
        match answer {
            Ok(body) if is_it(&body) => return Ok(body),
            Ok(_) | Err(_) if began.elapsed() < LONGEST => std::thread::sleep(Duration::from_millis(2)),
            Ok(_) => return Err(Error::unavailable("the awaited answer did not arrive").with("asked", path)),
            Err(error) => return Err(error.with("asked", path)),
        }
    }
}
