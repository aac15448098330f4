//! Checks a lookup against the version of its view: keys, paths and columns.

use datafusion::common::ScalarValue;
use types::{Error, Result};

use super::keys::Keys;
use super::paths::AskedPaths;
use crate::answerer::WantedPaths;
use crate::read_view::LoadedView;

/// One lookup has at most this many keys, of all its views.
pub const MAX_KEYS: usize = 10_000;

/// Keys and paths as those of one view version.
pub(super) struct CheckedLookup {
    /// Each in the order of the view's keys and of their types.
    pub(super) keys: Vec<Vec<ScalarValue>>,
    pub(super) paths: WantedPaths,
}

pub(super) fn checked(view: &LoadedView, keys: Keys, paths: &AskedPaths) -> Result<CheckedLookup> {
    check_count(keys.len())?;
    paths.check(&view.live, keys.len())?;
    Ok(CheckedLookup { paths: paths.wanted_in_view(&view.live)?, keys: keys.typed(&view.live.plan)? })
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
