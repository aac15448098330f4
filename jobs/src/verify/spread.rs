//! Bounds the error of an estimated total of a linked view.
//!
//! A walk follows k of n near nodes, those with the smallest hashes, and the far end points with a hash below a
//! threshold that leaves k of the largest node's m. The threshold is the smallest hash that is not followed; the share
//! is the fraction of hashes below it. An estimate is the sum of the followed contributions, divided by the shares p
//! and q (Horvitz and Thompson 1952). With x the contribution of each node and end point together, w of each node and v
//! of each end point, its variance is
//!
//! ```text
//! sum(w^2) (1 - p) / p  +  sum(v^2) (1 - q) / q  +  sum(x^2) (1 - p) (1 - q) / (p q)
//! ```
//!
//! Bernstein's inequality bounds its error. With M the greatest contribution divided by its share, and L = ln(1 /
//! probability that the bound fails), the bound is M L / 3 + sqrt((M L / 3)^2 + 2 L variance). The shares are not k / n
//! but random, because hashes are. They are taken at their smallest (Chernoff); over all greater shares the estimate is
//! a martingale, whose greatest error has the same bound (Doob). Nothing is assumed about the weights: if one node has
//! all of a total, the bound is as wide as the estimate is poor.

use super::plain::WeightPart;

/// The logarithm of 10^9: each of three things that can go wrong has a probability of one in 10^9.
const SELDOM: f64 = 20.7;

/// For each total, the sum of squares and the greatest of the contributions of one kind of neighbour.
type Squares = Vec<(f64, f64)>;

/// The weights of one key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spread {
    nodes: Squares,
    ends: Squares,
    pairs: Squares,
    near_degree: f64,
    far_degree: f64,
}

impl Spread {
    /// Adds a row of the weights.
    pub fn add(&mut self, part: WeightPart, numbers: Squares) {
        let degree = || numbers.first().map_or(0.0, |(degree, _)| *degree);
        match part {
            WeightPart::NearDegree => self.near_degree = degree(),
            WeightPart::FarDegree => self.far_degree = degree(),
            WeightPart::Nodes => self.nodes = numbers,
            WeightPart::Ends => self.ends = numbers,
            WeightPart::Pairs => self.pairs = numbers,
        }
    }

    /// Returns how far an estimate of a total may be from it; 0 if nothing is estimated.
    pub fn bound(&self, total: usize, max_degree: u32) -> f64 {
        let followed = f64::from(max_degree.max(1));
        let p = share(followed, self.near_degree, SELDOM);
        // The smallest threshold of all nodes applies.
        let q = share(followed, self.far_degree, SELDOM + self.near_degree.max(1.0).ln());
        let squares_of = |squares: &Squares| squares.get(total).copied().unwrap_or_default();
        let ((nodes, node), (ends, end), (pairs, pair)) = (squares_of(&self.nodes), squares_of(&self.ends), squares_of(&self.pairs));
        let lost = |share: f64| (1.0 - share) / share;
        let variance = nodes * lost(p) + ends * lost(q) + pairs * lost(p) * lost(q);
        let most = [(node, p < 1.0, p), (end, q < 1.0, q), (pair, p < 1.0 && q < 1.0, p * q)];
        let most = most.iter().filter(|(_, is_sampled, _)| *is_sampled).map(|(weight, _, share)| weight / share).fold(0.0, f64::max);
        let linear = most * SELDOM / 3.0;
        linear + (linear * linear + 2.0 * SELDOM * variance).sqrt()
    }
}

/// Returns the smallest share that is followed of `degree` neighbours, except with probability exp(-`seldom`). The
/// `followed`-th smallest of `degree` uniform hashes, and so the threshold above it, is below followed / (degree c)
/// with a probability of at most exp(-followed (ln c - 1 + 1 / c)).
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
