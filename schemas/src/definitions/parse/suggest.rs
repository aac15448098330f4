//! The nearest known word to a mistyped one.

/// The candidate that takes the fewest single changes to reach, if those are few for the word's length; of equals the first. One that
/// goes on where the word ends (`ordered`: `ordered_at`) is one change away.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 60;
    let word = word.to_lowercase();
    let length = word.chars().count();
    if length == 0 || length > LONGEST {
        return None;
    }
    let allowed = (length / 3).max(1);
    let rank = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let distance = distance(&word, &candidate);
        let goes_on = length > 2 && candidate.strip_prefix(word.as_str()).is_some_and(|rest| rest.starts_with('_'));
        (if goes_on { 1 } else { distance }, distance)
    };
    let ranked = candidates.into_iter().map(|candidate| (rank(candidate), candidate));
    ranked.min_by_key(|(rank, _)| *rank).filter(|((changes, _), _)| *changes <= allowed).map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, with two neighbours swapped counting as one change.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests;
