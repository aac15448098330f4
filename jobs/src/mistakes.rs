//! Collects all mistakes in the arguments of a command and reports them at once.

use types::{Error, ErrorKind, Result};

/// The mistakes that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(Vec<Error>);

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: Error) {
        self.0.push(mistake);
    }

    /// Returns what was found, or notes the mistake.
    ///
    /// Errors: those that are no mistake of the caller.
    pub(crate) fn noted<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.kind(), ErrorKind::Input | ErrorKind::NotFound) => {
                self.0.push(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the outcome of what other mistakes are found with.
    ///
    /// Errors: these mistakes, if there are any, instead of the outcome's error.
    pub(crate) fn before<T>(self, outcome: Result<T>) -> Result<T> {
        outcome.or_else(|error| self.into_result().and(Err(error)))
    }

    /// Errors: the mistake, or a list of all.
    pub(crate) fn into_result(mut self) -> Result<()> {
        if self.0.len() < 2 {
            return self.0.pop().map_or(Ok(()), Err);
        }
        let listed: String = self.0.iter().map(|mistake| format!("\n- {mistake}")).collect();
        Err(Error::input(format!("{} mistakes:{listed}", self.0.len())))
    }
}

#[cfg(test)]
mod tests;
