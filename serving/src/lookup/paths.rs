//! Which of the paths that link a linked view's keys are returned.

use committed::registry::LiveView;
use engine::plan::OutputColumn;
use types::{Error, Result};

use crate::answerer::{WantedPaths, answerer};

/// One lookup returns at most this many linking paths.
pub const MAX_PATHS: usize = 10_000;

/// Which paths a lookup returns for each key. Those that count in a column come first, each newest first.
#[derive(Debug, Clone, Default)]
pub struct AskedPaths {
    /// At most this many paths; 0 for none.
    pub most: usize,
    /// Only those that count in this column of the view.
    pub of: Option<String>,
}

impl AskedPaths {
    /// Errors: `Input` for paths of a view without JOIN, and for a column in which no path can count; `Limit` if there
    /// could be more than [`MAX_PATHS`].
    pub(super) fn check(&self, view: &LiveView, keys: usize) -> Result<()> {
        match (self.most, &self.of) {
            (0, None) => Ok(()),
            (0, Some(column)) => Err(Error::input(format!(
                "paths that count in \"{column}\" are requested without a number of paths: expected at least one path"
            ))),
            _ if !answerer(view).follows_links() => {
                Err(Error::input(format!("the view \"{}\" has no JOIN, so that no paths link its keys: expected no paths", view.name)))
            }
            (most, _) if most.saturating_mul(keys) > MAX_PATHS => {
                Err(Error::limit(format!("{most} paths of each of {keys} keys in one lookup: expected at most {MAX_PATHS} paths in all")))
            }
            _ => self.column(view).map(|_| ()),
        }
    }

    /// The same for a view, with the column as an index.
    pub(super) fn wanted_in_view(&self, view: &LiveView) -> Result<WantedPaths> {
        Ok(WantedPaths { most: self.most, counted_in: self.column(view)? })
    }

    /// The column in which the paths have to count, as an index of the plan's columns.
    fn column(&self, view: &LiveView) -> Result<Option<usize>> {
        let Some(name) = &self.of else { return Ok(None) };
        let columns = &view.plan.columns;
        let found = columns.iter().position(|column| counts_paths(column) && column.field.name() == name);
        found.map(Some).ok_or_else(|| unknown_column(name, columns))
    }
}

/// Paths do not count in keys, nor in a column that depends on the time alone.
fn counts_paths(column: &OutputColumn) -> bool {
    !column.uses().is_empty()
}

fn unknown_column(name: &str, columns: &[OutputColumn]) -> Error {
    let known: Vec<&str> = columns.iter().filter(|column| counts_paths(column)).map(|column| column.field.name().as_str()).collect();
    let expected = if known.is_empty() { "no column: the view has none".to_owned() } else { format!("one of {}", known.join(", ")) };
    Error::input(format!("\"{name}\" is not a column of the view in which paths count: expected {expected}"))
}
