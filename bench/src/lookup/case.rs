//! The installations that lookups are measured on.

use std::fmt;
use std::str::FromStr;

use crate::purchases::ALL_WINDOWS;

/// A number of views, each with a number of windows and keys. As text: `views:windows:keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub views: usize,
    pub windows: usize,
    pub keys: u64,
}

impl Case {
    /// Whether peers take part: they have one view, and its final rows.
    pub(super) fn has_peers(&self) -> bool {
        self.views == 1 && self.windows == 4
    }

    /// Whether keys of several views can be asked in one call.
    pub(super) fn has_several_views(&self) -> bool {
        self.views > 1
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.views, self.windows, self.keys)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let expected = || format!("expected views:windows:keys, at least one of each and at most {} windows", ALL_WINDOWS.len());
        let numbers: Vec<u64> = text.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
        let [views, windows, keys] = numbers[..] else { return Err(expected()) };
        match views > 0 && (1..=ALL_WINDOWS.len() as u64).contains(&windows) && keys > 0 {
            true => Ok(Case { views: views as usize, windows: windows as usize, keys }),
            false => Err(expected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let case = Case { views: 15, windows: 4, keys: 1_000_000 };
        assert_eq!(case.to_string().parse(), Ok(case));
        for wrong in ["", "1:4", "0:4:10", "1:9:10", "1:4:x", "1:4:10:2"] {
            assert!(wrong.parse::<Case>().is_err(), "{wrong}");
        }
    }
}
