//! How often an alert could not be run since it was last evaluated: when that is reported.

/// This many ordinary failures in a row are not reported: another process has taken over, or something is not available
/// for a moment.
const ORDINARY: u64 = 10;

/// The failures of one alert since its last evaluated round. The two kinds are counted apart: an ordinary failure does
/// not hide a lasting one that follows it.
#[derive(Debug, Default)]
pub(super) struct FailureCounts {
    ordinary: u64,
    lasting: u64,
}

impl FailureCounts {
    /// Counts a failure. Returns how many of its kind are to be reported by now; 0 while none is.
    pub(super) fn count(&mut self, is_ordinary: bool) -> u64 {
        if is_ordinary {
            self.ordinary += 1;
            return self.ordinary.saturating_sub(ORDINARY);
        }
        self.lasting += 1;
        self.lasting
    }
}

#[cfg(test)]
mod tests;
