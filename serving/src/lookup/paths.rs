//! Which of the paths that link a linked view's keys are returned.

use committed::registry::LiveView;
use engine::plan::OutputColumn;
use types::{Error, Result};

use crate::answerer::{WantedPaths, answerer};

/// This many linking paths in one lookup at the most.
pub const MAX_PATHS: usize = 10_000;

/// The paths that a lookup returns for each key: the newest.
#[derive(Debug, Clone, Default)]
pub struct AskedPaths {
    /// At most this many; 0 for none.
    pub most: usize,
    /// Only those that count in this column of the view.
    pub of: Option<String>,
}

impl AskedPaths {
    /// Errors: `Input` for paths of a view without JOIN, and of a column in which no path can count; `Limit` where they
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

    /// The same for a view, its column by index.
    pub(super) fn of_view(&self, view: &LiveView) -> Result<WantedPaths> {
        Ok(WantedPaths { most: self.most, counted_in: self.column(view)? })
    }

    /// The column in which they are to count: an index of the plan's.
    fn column(&self, view: &LiveView) -> Result<Option<usize>> {
        let Some(name) = &self.of else { return Ok(None) };
        let columns = &view.plan.columns;
        let found = columns.iter().position(|column| counts_paths(column) && column.field.name() == name);
        found.map(Some).ok_or_else(|| unknown_column(name, columns))
    }
}

/// Keys count none, and neither does a column of the time alone.
fn counts_paths(column: &OutputColumn) -> bool {
    !column.uses().is_empty()
}

fn unknown_column(name: &str, columns: &[OutputColumn]) -> Error {
    let known: Vec<&str> = columns.iter().filter(|column| counts_paths(column)).map(|column| column.field.name().as_str()).collect();
    let expected = if known.is_empty() { "no column: the view has none".to_owned() } else { format!("one of {}", known.join(", ")) };
    Error::input(format!("\"{name}\" is not a column of the view in which paths count: expected {expected}"))
}
