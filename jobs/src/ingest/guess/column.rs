//! A guessed column, and what its values were in the sampled records.

use definitions::{ColumnType, TimeUnit};

use super::seen::FirstOfKind;

/// A guessed column.
pub(super) struct Guess {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) column_type: ColumnType,
    pub(super) unit: Option<TimeUnit>,
    pub(super) nullable: bool,
    /// In how many records its value came before.
    pub(super) repeats: usize,
    pub(super) is_without_zone: bool,
    /// How many of its values are strings with a time, and with a date.
    pub(super) times: usize,
    pub(super) dates: usize,
    pub(super) values: usize,
    /// The first value; a string without its quotes.
    pub(super) first: Option<String>,
    /// If most values are times as numbers of this unit: the first that is none, and where it is.
    pub(super) outside_epoch: Option<(TimeUnit, String)>,
    /// The most digits after a decimal point, if the type was guessed from numbers.
    pub(super) places: Option<usize>,
    /// The first value of each kind, if it is of a JSON lines file.
    pub(super) kinds: Vec<FirstOfKind>,
    pub(super) oddity: Option<String>,
}

impl Guess {
    pub(super) fn may_be_id(&self) -> bool {
        self.has_type_of_id() && !self.nullable
    }

    pub(super) fn has_type_of_id(&self) -> bool {
        matches!(self.column_type, ColumnType::Text | ColumnType::Uuid | ColumnType::Int | ColumnType::BigInt)
    }
}
