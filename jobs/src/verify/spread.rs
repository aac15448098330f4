//! How far an estimate of a linked view's total may be from it.
//!
//! A walk follows the k near nodes with the smallest hash of n, and of the far end points those under a threshold that leaves k of the
//! largest node's m. The threshold is the smallest hash that is not followed, and the share what lies under it. An estimate is what they
//! add, divided by the shares p and q of hashes that were followed (Horvitz and Thompson 1952). With x of each node and end point together,
//! w of each node and v of each end point, its variance is
//!
//! ```text
//! sum(w^2) (1 - p) / p  +  sum(v^2) (1 - q) / q  +  sum(x^2) (1 - p) (1 - q) / (p q)
//! ```
//!
//! and Bernstein's inequality bounds its error: with M the most that one of them adds once it is divided by its share, and L = ln(1 / how
//! seldom it may fail), by M L / 3 + sqrt((M L / 3)^2 + 2 L variance). The shares are not k / n but random, since hashes are:
//! they are taken as small as they come (Chernoff), and over all greater ones the estimate is a martingale, whose greatest error has the
//! same bound (Doob). Nothing is assumed of the weights: where one node has all of a total, the bound is as wide as the estimate is poor.

use super::plain::Part;

/// The logarithm of a thousand million: each of three things that can go wrong is as seldom.
const SELDOM: f64 = 20.7;

/// The sums of squares and the greatest of what the neighbours of one kind add to each total.
type Squares = Vec<(f64, f64)>;

/// What is known of one key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spread {
    nodes: Squares,
    ends: Squares,
    pairs: Squares,
    near_degree: f64,
    far_degree: f64,
}

impl Spread {
    /// Takes in a row of the weights.
    pub fn add(&mut self, part: Part, numbers: Squares) {
        let degree = || numbers.first().map_or(0.0, |(degree, _)| *degree);
        match part {
            Part::NearDegree => self.near_degree = degree(),
            Part::FarDegree => self.far_degree = degree(),
            Part::Nodes => self.nodes = numbers,
            Part::Ends => self.ends = numbers,
            Part::Pairs => self.pairs = numbers,
        }
    }

    /// How far an estimate of a total may be from it; 0 where nothing is estimated.
    pub fn bound(&self, total: usize, max_degree: u32) -> f64 {
        let followed = f64::from(max_degree.max(1));
        let p = share(followed, self.near_degree, SELDOM);
        // The least of the thresholds of all nodes holds.
        let q = share(followed, self.far_degree, SELDOM + self.near_degree.max(1.0).ln());
        let of = |squares: &Squares| squares.get(total).copied().unwrap_or_default();
        let ((nodes, node), (ends, end), (pairs, pair)) = (of(&self.nodes), of(&self.ends), of(&self.pairs));
        let lost = |share: f64| (1.0 - share) / share;
        let variance = nodes * lost(p) + ends * lost(q) + pairs * lost(p) * lost(q);
        let most = [(node, p < 1.0, p), (end, q < 1.0, q), (pair, p < 1.0 && q < 1.0, p * q)];
        let most = most.iter().filter(|(_, is_sampled, _)| *is_sampled).map(|(weight, _, share)| weight / share).fold(0.0, f64::max);
        let linear = most * SELDOM / 3.0;
        linear + (linear * linear + 2.0 * SELDOM * variance).sqrt()
    }
}

/// The least share that is followed of `degree` neighbours, but for as seldom a case as `seldom` says: the `followed`-th smallest of as
/// many uniform hashes, and so the threshold above it, is under followed / (degree c) at most as often as
/// exp(-followed (ln c - 1 + 1 / c)).
fn share(followed: f64, degree: f64, seldom: f64) -> f64 {
    if degree <= followed {
        return 1.0;
    }
    let (mut low, mut high) = (1.0f64, (2.0 + seldom / followed).exp());
    for _ in 0..100 {
        let c = (low * high).sqrt();
        if c.ln() - 1.0 + 1.0 / c < seldom / followed { low = c } else { high = c }
    }
    followed / degree / high
}

#[cfg(test)]
mod tests;
