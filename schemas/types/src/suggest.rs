//! Finds the known word nearest to a mistyped one, by optimal string alignment: swapping two neighbours is one change.

/// Returns the candidate that needs the fewest single changes, if they are few for the word's length; the first of
/// equals. A candidate that continues after the word's end (`ordered`: `ordered_at`) is one change away.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 60;
    let word = word.to_lowercase();
    let length = word.chars().count();
    if length == 0 || length > LONGEST {
        return None;
    }
    let allowed = (length / 3).max(1);
    let rank = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let distance = strsim::osa_distance(&word, &candidate);
        let goes_on = length > 2 && candidate.strip_prefix(word.as_str()).is_some_and(|rest| rest.starts_with('_'));
        (if goes_on { 1 } else { distance }, distance)
    };
    let ranked = candidates.into_iter().map(|candidate| (rank(candidate), candidate));
    ranked.min_by_key(|(rank, _)| *rank).filter(|((changes, _), _)| *changes <= allowed).map(|(_, candidate)| candidate)
}

/// What an error says after an unknown name: the nearest known one, then all of them; `none` if there are none.
pub fn expected(name: &str, known: &[&str], none: &str) -> String {
    if known.is_empty() {
        return none.to_owned();
    }
    let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
    format!("{near}expected one of {}", known.join(", "))
}

#[cfg(test)]
mod tests;
