//! The aims of a batch run: not slower than DuckDB with the same memory, and within its own limit.

use super::DUCKDB_STATES;
use crate::contest::Outcome;
use crate::contest::table::{of_limit, peak, seconds};
use crate::report::{Figure, Table, at_most};

/// Relative to the time of DuckDB's fastest answer.
const MOST_OF_DUCKDB: f64 = 1.0;
/// Relative to the limit.
const MOST_OF_LIMIT: f64 = 1.2;

/// Adds the three columns of the aims.
pub(super) fn add(table: &mut Table, outcomes: &[Outcome]) {
    table.columns.extend([
        format!("relative to the fastest DuckDB with as much memory, aim {MOST_OF_DUCKDB:.1}"),
        format!("relative to DuckDB with the same states, aim {MOST_OF_DUCKDB:.1}"),
        format!("peak / limit, aim {MOST_OF_LIMIT:.1}"),
    ]);
    let peers: Vec<Peer> = outcomes.iter().filter(|outcome| outcome.contender.is_duckdb()).map(Peer::from_outcome).collect();
    let keeps_states = |outcome: &&Outcome| outcome.contender.name == DUCKDB_STATES;
    let keepers: Vec<Peer> = outcomes.iter().filter(keeps_states).map(Peer::from_outcome).collect();
    for (row, outcome) in table.rows.iter_mut().zip(outcomes) {
        let limit = outcome.contender.memory_bytes;
        let aims = match outcome.contender.is_run() {
            true => {
                let of = |peers: &[Peer]| {
                    let time = seconds(outcome).map(|own| own.median).zip(rival(peers, limit));
                    at_most(time.map(|(own, rival)| own / rival), MOST_OF_DUCKDB)
                };
                [of(&peers), of(&keepers), at_most(of_limit(peak(outcome), outcome), MOST_OF_LIMIT)]
            }
            false => [Figure::Absent, Figure::Absent, Figure::Absent],
        };
        row.extend(aims);
    }
}

struct Peer {
    memory_bytes: u64,
    /// `None` if it was given up.
    seconds: Option<f64>,
}

impl Peer {
    fn from_outcome(outcome: &Outcome) -> Peer {
        let answered = outcome.failure.is_none();
        Peer { memory_bytes: outcome.contender.memory_bytes, seconds: seconds(outcome).filter(|_| answered).map(|own| own.median) }
    }
}

/// The fastest time among peers with the smallest limit that is at least this one. If all of those gave up, the next
/// larger limit is used.
fn rival(peers: &[Peer], limit: u64) -> Option<f64> {
    let enough = peers.iter().filter(|peer| peer.memory_bytes >= limit);
    let answered = enough.filter_map(|peer| Some((peer.memory_bytes, peer.seconds?)));
    answered.min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))).map(|(_, seconds)| seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_against_the_fastest_that_may_hold_as_much_and_no_more() {
        let peer = |memory_bytes, seconds| Peer { memory_bytes, seconds };
        let peers = [peer(10, Some(3.0)), peer(10, Some(2.0)), peer(1, Some(9.0)), peer(1, Some(8.0)), peer(1, None)];
        assert_eq!((rival(&peers, 1), rival(&peers, 4), rival(&peers, 11)), (Some(8.0), Some(2.0), None));
        assert_eq!(rival(&[peer(10, Some(3.0)), peer(1, None)], 1), Some(3.0));
    }
}
