//! Line diff of two short texts.

use serde::Serialize;

/// One line of a diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "op", content = "line", rename_all = "lowercase")]
pub enum DiffLine {
    Same(String),
    Removed(String),
    Added(String),
}

/// Returns the lines of both texts, keeping the longest common subsequence; removed lines come before added ones.
pub(crate) fn line_diff(old: &str, new: &str) -> Vec<DiffLine> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let common = common_lengths(&old, &new);
    let (mut i, mut j) = (0, 0);
    let mut diff = Vec::with_capacity(old.len().max(new.len()));
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            diff.push(DiffLine::Same(old[i].to_owned()));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            diff.push(DiffLine::Removed(old[i].to_owned()));
            i += 1;
        } else {
            diff.push(DiffLine::Added(new[j].to_owned()));
            j += 1;
        }
    }
    diff
}

/// `[i][j]`: how many lines `old[i..]` and `new[j..]` have in common, in order.
fn common_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<u32>> {
    let mut lengths = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i][j] = if old[i] == new[j] { lengths[i + 1][j + 1] + 1 } else { lengths[i + 1][j].max(lengths[i][j + 1]) };
        }
    }
    lengths
}
