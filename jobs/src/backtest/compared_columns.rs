//! The columns of two definitions of a sink: the one in which they decide, and the one that is summed.

use arrow::datatypes::{DataType, Schema};
use types::sql_types::sql_name;
use types::suggest::nearest;
use types::{Error, Result};

use super::{AMOUNT, VERDICTS};

/// The columns of the live and of the changed definition.
pub(super) struct ComparedColumns<'s> {
    pub(super) live: &'s Schema,
    pub(super) changed: &'s Schema,
}

/// The column that is summed, with its types in the live and in the changed definition.
#[derive(Debug)]
pub(super) struct SummedColumn {
    pub(super) name: String,
    pub(super) types: [DataType; 2],
}

impl<'s> ComparedColumns<'s> {
    /// Returns the column in which both decide: the one that is named, else one of [`VERDICTS`].
    ///
    /// Errors: `Input` with the columns that both have.
    pub(super) fn verdict(&self, named: Option<&str>) -> Result<String> {
        if let Some(named) = named {
            return self.types_in_both(named, "--verdict", |_| true).map(|_| named.to_owned());
        }
        let found = VERDICTS.into_iter().find(|name| self.types(name).is_some());
        found.map(str::to_owned).ok_or_else(|| {
            Error::input(format!("no column of both definitions is named {}", VERDICTS.join(" or ")))
                .with("expected", self.choices("--verdict", |_| true))
        })
    }

    /// Returns the column that is summed: the one that is named, else [`AMOUNT`] where it is a number in both.
    ///
    /// Errors: `Input` with the numbers that both have.
    pub(super) fn amount(&self, named: Option<&str>) -> Result<Option<SummedColumn>> {
        let Some(named) = named else {
            let types = self.types(AMOUNT).filter(|types| types.iter().all(|found| is_number(found)));
            return Ok(types.map(|types| SummedColumn { name: AMOUNT.to_owned(), types: types.map(DataType::clone) }));
        };
        let types = self.types_in_both(named, "--amount", is_number)?;
        if let Some(other) = types.iter().find(|found| !is_number(found)) {
            return Err(Error::input(format!("the column \"{named}\" is {}", sql_name(other)))
                .with("expected", self.choices("--amount", is_number)));
        }
        Ok(Some(SummedColumn { name: named.to_owned(), types: types.map(DataType::clone) }))
    }

    /// Refuses a column that one of the definitions does not have.
    fn types_in_both(&self, name: &str, option: &str, fits: fn(&DataType) -> bool) -> Result<[&'s DataType; 2]> {
        self.types(name).ok_or_else(|| {
            let which = if self.live.column_with_name(name).is_none() { "live" } else { "changed" };
            let near = nearest(name, self.fitting(fits)).map(|near| format!(": did you mean \"{near}\"?")).unwrap_or_default();
            Error::input(format!("the {which} definition has no column \"{name}\"{near}")).with("expected", self.choices(option, fits))
        })
    }

    /// The types of a column that both definitions have.
    fn types(&self, name: &str) -> Option<[&'s DataType; 2]> {
        let type_in = |columns: &'s Schema| columns.column_with_name(name).map(|(_, field)| field.data_type());
        Some([type_in(self.live)?, type_in(self.changed)?])
    }

    /// What an error recommends: the columns that an option may name.
    fn choices(&self, option: &str, fits: fn(&DataType) -> bool) -> String {
        match self.fitting(fits).as_slice() {
            [] => format!("{option} with a column that both definitions have, and they share none"),
            names => format!("{option} with one of {}", names.join(", ")),
        }
    }

    /// The columns that both definitions have with types that fit.
    fn fitting(&self, fits: fn(&DataType) -> bool) -> Vec<&'s str> {
        let names = self.live.fields().iter().map(|field| field.name().as_str());
        names.filter(|name| self.types(name).is_some_and(|types| types.into_iter().all(fits))).collect()
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || matches!(data_type, DataType::Decimal128(..))
}

#[cfg(test)]
mod tests;
