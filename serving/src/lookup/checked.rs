//! Checks a lookup against the version of its view: keys, paths and columns.

use committed::registry::LiveView;
use datafusion::common::ScalarValue;
use types::{Error, ErrorKind, Result};

use super::keys::Keys;
use super::paths::AskedPaths;
use crate::answerer::WantedPaths;
use crate::read_view::{LoadedView, ReadView, only_served_version_answers};

/// One lookup has at most this many keys, of all its views.
pub const MAX_KEYS: usize = 10_000;

/// Keys and paths as those of one view version.
pub(super) struct CheckedLookup {
    /// Each in the order of the view's keys and of their types.
    pub(super) keys: Vec<Vec<ScalarValue>>,
    pub(super) paths: WantedPaths,
}

/// Checks what is asked of a view of this read view.
///
/// Errors: `Input` for a mistake; `Unavailable` for keys and paths that the served version has, while the version
/// before answers in its place.
pub(super) fn checked(read_view: &ReadView, view: &LoadedView, keys: Keys, paths: &AskedPaths) -> Result<CheckedLookup> {
    let Some(served) = read_view.awaited(&view.live.name) else { return checked_in(&view.live, keys, paths) };
    match checked_in(&view.live, keys.clone(), paths) {
        Err(mistake) if mistake.kind() == ErrorKind::Input => {
            checked_in(served, keys, paths).and_then(|_| Err(only_served_version_answers(&mistake)))
        }
        outcome => outcome,
    }
}

fn checked_in(live: &LiveView, keys: Keys, paths: &AskedPaths) -> Result<CheckedLookup> {
    check_count(keys.len())?;
    paths.check(live, keys.len())?;
    Ok(CheckedLookup { paths: paths.wanted_in_view(live)?, keys: keys.typed(&live.plan)? })
}

pub(super) fn check_count(keys: usize) -> Result<()> {
    match keys > MAX_KEYS {
        true => Err(Error::limit(format!("{keys} keys in one lookup: expected at most {MAX_KEYS}"))),
        false => Ok(()),
    }
}

/// The indices of a view's columns.
pub(super) fn all_columns(view: &LoadedView) -> Vec<usize> {
    (0..view.live.plan.columns.len()).collect()
}
